"""From header keys to the geometry that decides a cache, by llama.cpp's own rules and never by a guess.

Follows ``load_hparams`` of llama.cpp b11434 src/llama-model.cpp and the accessors of src/llama-hparams.cpp;
what differs between architectures is data (gguf_architectures.toml).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.errors import ModelError
from archonctl.model.geometry import AttentionKind, Geometry, Layer, Recurrent
from archonctl.model.gguf_cursor import shown
from archonctl.model.gguf_header import Header
from archonctl.model.gguf_laws import Law, laws

MAX_LAYERS = 512
"""LLAMA_MAX_LAYERS of llama.cpp b11434 src/llama-hparams.h: more are refused at load."""
MAX_FIGURE = 2**31 - 1
MAX_WIDTH = 2**32 - 1
"""Row widths are 32-bit in llama.cpp (uint32_t n_embd_k_gqa)."""


def geometry_of(header: Header, *, shared_experts: bool = False) -> Geometry:
    """The geometry of a model whose metadata ``header`` holds.

    ``shared_experts``: the tensor list has shared experts (some converters write no count; then it is one).
    Raises ModelError ``model-architecture-unknown`` for an architecture without a law, and
    ``model-geometry-invalid`` for figures that llama.cpp would refuse or that make no cache.
    """
    keys = _Keys.of(header)
    law = laws().get(keys.architecture)
    if law is None:
        raise ModelError(
            "model-architecture-unknown",
            f"no law for architecture {shown(keys.architecture)}; this release knows {len(laws())} of them",
            where=header.path,
            hint="its weights can be counted, its cache cannot be planned; say how large it is in the declaration",
        )
    heads = keys.per_layer("attention.head_count", 0)
    kv_heads = keys.per_layer("attention.head_count_kv", None) or heads
    recurrent = _recurrent_layers(keys, law, kv_heads)
    window, sliding = _sliding_layers(keys, law, recurrent)
    dims = _head_dims(keys, law, heads[0])
    kinds = _kinds(keys, law, kv_heads, recurrent, sliding)
    layers = tuple(_layer(keys, i, kinds[i], kv_heads[i], dims[sliding[i]], window) for i in range(keys.layers))
    state = _state(keys, law, heads[0], dims[False][0]) if "recurrent" in kinds else None
    if not any(layer.k_width for layer in layers) and state is None:
        raise keys.invalid("no layer keeps any KV: head_count_kv is 0 throughout")
    used = keys.per_layer("expert_used_count", 0)
    return Geometry(
        architecture=keys.architecture,
        name=_text(header, "general.name"),
        layers=layers,
        hidden=keys.positive("embedding_length"),
        heads=heads[0],
        vocab=header.array_lengths.get("tokenizer.ggml.tokens") or keys.number("vocab_size", 0),
        trained_context=keys.positive("context_length"),
        experts=keys.number("expert_count", 0),
        experts_used=max(used),
        experts_shared=keys.number("expert_shared_count", int(shared_experts)),
        recurrent=state,
        nextn_layers=0 if law.trailing_layers_serve or not keys.serving else keys.nextn,
    )


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of one architecture, with checked reading. ``layers`` counts all blocks, ``nextn`` the trailing ones."""

    header: Header
    architecture: str
    layers: int
    nextn: int

    @classmethod
    def of(cls, header: Header) -> _Keys:
        architecture = _text(header, "general.architecture")
        if architecture not in laws():
            return cls(header, architecture, 0, 0)
        bare = cls(header, architecture, 0, 0)
        layers = bare.positive("block_count")
        if layers > MAX_LAYERS:
            raise bare.invalid(f"block_count is {layers:,}; llama.cpp loads at most {MAX_LAYERS} layers")
        nextn = bare.number("nextn_predict_layers", 0)
        if nextn > layers:
            raise bare.invalid(f"nextn_predict_layers is {nextn:,}, more than the {layers} layers there are")
        return cls(header, architecture, layers, nextn)

    @property
    def serving(self) -> int:
        """Layers without those for multi-token prediction (llama.cpp: n_layer)."""
        return self.layers - self.nextn

    def invalid(self, message: str) -> ModelError:
        hint = "the file is damaged, or not a whole model: fetch or convert it again"
        return ModelError(
            "model-geometry-invalid", f"{self.architecture}: {message}", where=self.header.path, hint=hint
        )

    def number(self, key: str, default: int | None) -> int:
        """A whole number of at least 0; ``default`` None means that the key must be there."""
        value = self.header.scalars.get(f"{self.architecture}.{key}")
        if value is None and default is not None and not self.is_array(key):
            return default
        return self._checked(key, value)

    def positive(self, key: str) -> int:
        value = self.number(key, None)
        if value == 0:
            raise self.invalid(f"{key} is 0")
        return value

    def is_array(self, key: str) -> bool:
        return f"{self.architecture}.{key}" in self.header.array_lengths

    def array(self, key: str) -> tuple[int, ...]:
        """A short array of whole numbers or booleans."""
        name = f"{self.architecture}.{key}"
        values = self.header.arrays.get(name)
        if values is None:
            count = self.header.array_lengths.get(name)
            found = "is missing" if count is None else f"has {count:,} elements that are no per-layer figures"
            raise self.invalid(f"{key} {found}")
        for value in values:
            self._checked(key, value)
        return values

    def per_layer(self, key: str, default: int | None) -> tuple[int, ...]:
        """One number a layer: an array of exactly that length, or one number for all. Empty without key and default."""
        if self.is_array(key):
            values = self.array(key)
            if len(values) != self.layers:
                raise self.invalid(f"{key} lists {len(values)} layers, block_count says {self.layers}")
            return values
        if f"{self.architecture}.{key}" not in self.header.scalars and default is None:
            return ()
        return (self.number(key, default),) * self.layers

    def _checked(self, key: str, value: object) -> int:
        if value is None:
            raise self.invalid(f"the header has no {key}")
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_FIGURE:
            said = shown(value) if isinstance(value, str) else repr(value)
            raise self.invalid(f"{key} is {said}, not a whole number from 0 to {MAX_FIGURE:,}")
        return value


def _text(header: Header, key: str) -> str:
    value = header.scalars.get(key, "")
    return value[:256] if isinstance(value, str) else ""


def _head_dims(keys: _Keys, law: Law, first_heads: int) -> dict[bool, tuple[int, int]]:
    """Elements of one K and one V head: {False: full layers, True: sliding layers}."""
    k = v = 0
    if first_heads:
        k = v = keys.positive("embedding_length") // first_heads
    if first_heads or law.head_dims_without_heads:
        k, v = keys.number("attention.key_length", k), keys.number("attention.value_length", v)
    sliding = keys.number("attention.key_length_swa", k), keys.number("attention.value_length_swa", v)
    return {False: (k, v), True: sliding}


def _recurrent_layers(keys: _Keys, law: Law, kv_heads: Sequence[int]) -> list[bool]:
    """Which layers keep a state instead of KV (llama.cpp: is_recr)."""
    if law.marks == "all":
        return [True] * keys.layers
    if law.marks == "interval":
        if listed := keys.per_layer("attention.recurrent_layers", None):
            return [bool(mark) for mark in listed]
        interval = keys.number("full_attention_interval", law.interval)
        if interval == 0:
            raise keys.invalid("full_attention_interval is 0")
        return [i < keys.serving and (i + 1) % interval != 0 for i in range(keys.layers)]
    if law.marks == "kv_heads":
        return [i < keys.serving and kv_heads[i] == 0 for i in range(keys.layers)]
    if law.marks == "kv_heads_ff":
        ff = keys.per_layer("feed_forward_length", 0)
        return [i < keys.serving and kv_heads[i] == 0 and ff[i] == 0 for i in range(keys.layers)]
    return [False] * keys.layers


def _sliding_layers(keys: _Keys, law: Law, recurrent: Sequence[bool]) -> tuple[int, list[bool]]:
    """The window in tokens, and which layers use it (llama.cpp: n_swa, is_swa)."""
    none = 0, [False] * keys.layers
    if law.pattern == "" or (law.only_at_layers and keys.serving != law.only_at_layers):
        return none
    key = "attention.sliding_window"
    window = keys.number(key, -1) if law.absent != "refuse" else keys.number(key, None)
    if window <= 0:
        meaning = law.absent if window < 0 else law.zero
        if meaning == "full":
            return none
        if meaning == "refuse":
            raise keys.invalid(f"{key} is 0, but this architecture has sliding layers")
        window = law.window_tokens
    elif law.fixed:
        window = law.window_tokens
    flags = _pattern(keys, law, recurrent)
    if not any(flags):
        raise keys.invalid(f"{key} is {window:,} tokens, but the pattern leaves no layer that slides")
    return window, flags


def _pattern(keys: _Keys, law: Law, recurrent: Sequence[bool]) -> list[bool]:
    """llama.cpp: load_swa_pattern and set_swa_pattern. A list in the header may be short; the rest is full."""
    if law.pattern == "attention":
        return [i < keys.serving and not recurrent[i] for i in range(keys.layers)]
    key = "attention.sliding_window_pattern"
    if keys.is_array(key) or law.pattern == "array":
        listed = keys.array(key)[: keys.layers]
        return [bool(flag) for flag in listed] + [False] * (keys.layers - len(listed))
    step = keys.number(key, int(law.pattern))
    if step == 0:
        return [i < keys.serving for i in range(keys.layers)]
    full = 0 if law.dense_first else step - 1
    return [i < keys.serving and i % step != full for i in range(keys.layers)]


def _kinds(
    keys: _Keys, law: Law, kv_heads: Sequence[int], recurrent: Sequence[bool], sliding: Sequence[bool]
) -> list[AttentionKind]:
    """What each layer keeps. Layers past the first ``with_kv`` read the rows of an earlier layer."""
    latent = law.mla and keys.number("attention.key_length_mla", 0) and keys.number("attention.value_length_mla", 0)
    full: AttentionKind = "mla" if latent else "full"
    with_kv = law.first_layers_with_kv or keys.layers
    if law.shared_kv_key:
        with_kv = keys.layers - keys.number(law.shared_kv_key, 0)
    if with_kv < 2 and with_kv < keys.layers:
        raise keys.invalid(f"only {with_kv} of {keys.layers} layers keep KV; llama.cpp needs at least 2")
    ff = keys.per_layer("feed_forward_length", 0) if law.marks == "kv_heads_ff" else (0,) * keys.layers
    kinds: list[AttentionKind] = []
    for i in range(keys.layers):
        if recurrent[i]:
            kinds.append("recurrent")
        elif i >= with_kv or kv_heads[i] == 0 or ff[i]:
            kinds.append("none")
        else:
            kinds.append("sliding" if sliding[i] else full)
    return kinds


def _layer(keys: _Keys, index: int, kind: AttentionKind, kv_heads: int, dims: tuple[int, int], window: int) -> Layer:
    if kind in ("recurrent", "none"):
        return Layer(index, kind)
    k, v = dims
    if k == 0 or v == 0:
        raise keys.invalid(f"layer {index} has heads of {k} (K) and {v} (V) elements")
    k_width, v_width = k * kv_heads, 0 if kind == "mla" else v * kv_heads
    if max(k_width, v_width) > MAX_WIDTH:
        raise keys.invalid(f"layer {index} has rows of {max(k_width, v_width):,} elements; the limit is {MAX_WIDTH:,}")
    return Layer(index, kind, kv_heads, k, v, k_width, v_width, window if kind == "sliding" else 0)


def _state(keys: _Keys, law: Law, first_heads: int, head_dim: int) -> Recurrent:
    """State a sequence keeps in each recurrent layer (llama.cpp: n_embd_r, n_embd_s)."""
    if law.state == "shortconv":
        kernel, hidden = keys.positive("shortconv.l_cache"), keys.positive("embedding_length")
        return Recurrent(hidden * (kernel - 1), 0, kernel, 0, hidden, 0, 0)
    if law.state == "linear_attention":
        return Recurrent(0, head_dim * head_dim * first_heads, 0, head_dim, head_dim * first_heads, 0, 0)
    kernel = keys.number("ssm.conv_kernel", None)
    if law.state == "kda":
        size = keys.positive("kda.head_dim")
        inner = size * first_heads
        return Recurrent(3 * (kernel - 1 if kernel else 3) * inner, size * inner, kernel, size, inner, 0, 0)
    inner, size = keys.positive("ssm.inner_size"), keys.positive("ssm.state_size")
    rank = keys.number("ssm.time_step_rank", None)
    groups = keys.number("ssm.group_count", None) if law.groups else 0
    return Recurrent(max(kernel - 1, 0) * (inner + 2 * groups * size), size * inner, kernel, size, inner, groups, rank)
