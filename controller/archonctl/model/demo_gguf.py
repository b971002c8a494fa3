"""Write a small model with random weights that llama-server loads: the KV geometry of a real model, almost no weights.

The size of a KV cache depends on layers, KV heads and head size only, so ``layers``, ``kv_heads`` and ``head_dim`` of a
real model with a small ``hidden`` give its exact cache in a file of a few MiB. The tokenizer is byte-level BPE with one
token a byte, so one ASCII character of a prompt is one token. Needs nothing but the standard library.

Tensor names and shapes: load_arch_tensors in src/models/*.cpp of llama.cpp b11434; file layout: docs/gguf.md of ggml.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from archonctl.model.gguf_writer import GgufWriter

ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "gpt-oss", "qwen3next")

_MOE = ("qwen3moe", "deepseek2", "gpt-oss", "qwen3next")
_LAYERS = {"gemma3": 6}
_WINDOWS = {"gpt-oss": 128}
_EXPERTS, _EXPERTS_USED, _EXPERT_FF = 4, 2, 64
_LATENT, _ROPE, _NOPE, _V, _Q_LATENT = 512, 64, 128, 128, 64
"""MLA of DeepSeek V2 and V3 (config.json: kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim)."""
_STATE, _K_GROUPS, _V_GROUPS, _CONV = 32, 2, 4, 4
_FULL_EVERY = 4
_VOCABULARY = 320
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True, slots=True)
class _Shape:
    arch: str
    ctx: int
    layers: int
    hidden: int
    ff: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int
    seed: int
    name: str

    def check(self) -> None:
        if self.arch not in ARCHITECTURES:
            raise ValueError(f"architecture {self.arch!r} is not one of {', '.join(ARCHITECTURES)}")
        for key in ("ctx", "layers", "hidden", "ff", "heads", "kv_heads", "head_dim", "window"):
            if getattr(self, key) < 1:
                raise ValueError(f"{key} must be at least 1, got {getattr(self, key)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads must be a multiple of kv_heads, got {self.heads} and {self.kv_heads}")
        if self.arch == "qwen2" and self.hidden != self.heads * self.head_dim:
            raise ValueError(f"qwen2 needs hidden = heads x head_dim = {self.heads * self.head_dim}, got {self.hidden}")


def write_tiny_gguf(
    path: Path,
    arch: str,
    *,
    ctx: int = 262_144,
    layers: int | None = None,
    hidden: int | None = None,
    ff: int = 128,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 32,
    window: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Path:
    """Write a model of one of ``ARCHITECTURES`` to ``path`` (replaced at once, when it is whole) and return ``path``.

    ``ctx`` and ``window`` in tokens; the rest in elements or counts. ``hidden`` is 64 unless given (qwen2: heads x
    head_dim, which it must be). deepseek2 has the MLA geometry of DeepSeek V3 whatever ``kv_heads`` and ``head_dim``
    say. The same arguments give the same bytes.
    Raises ValueError for an unknown architecture or an impossible figure, OSError if the file cannot be written.
    """
    shape = _Shape(
        arch=arch,
        ctx=ctx,
        layers=_LAYERS.get(arch, 4) if layers is None else layers,
        hidden=(heads * head_dim if arch == "qwen2" else 64) if hidden is None else hidden,
        ff=ff,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        window=_WINDOWS.get(arch, 1024) if window is None else window,
        seed=seed,
        name=name or f"tiny-random-{arch}",
    )
    shape.check()
    content = GgufWriter()
    _describe(content, shape)
    _tokenizer(content, arch)
    _tensors(content, shape)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.writelines(content.encode(shape.seed))
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path


def _describe(out: GgufWriter, s: _Shape) -> None:
    out.string("general.architecture", s.arch)
    out.string("general.name", s.name)
    out.u32("general.file_type", 0)
    out.prefix = f"{s.arch}."
    out.u32("context_length", s.ctx)
    out.u32("embedding_length", s.hidden)
    out.u32("block_count", s.layers)
    out.u32("feed_forward_length", s.ff)
    out.u32("attention.head_count", s.heads)
    out.f32("attention.layer_norm_rms_epsilon", 1e-6)
    out.f32("rope.freq_base", 1_000_000.0)
    out.u32("vocab_size", _VOCABULARY)
    if s.arch == "deepseek2":
        _describe_mla(out)
    else:
        out.u32("attention.head_count_kv", s.kv_heads)
        out.u32("attention.key_length", s.head_dim)
        out.u32("attention.value_length", s.head_dim)
        out.u32("rope.dimension_count", s.head_dim)
    if s.arch in ("gemma3", "gpt-oss"):
        out.u32("attention.sliding_window", s.window)
    if s.arch in _MOE:
        out.u32("expert_count", _EXPERTS)
        out.u32("expert_used_count", _EXPERTS_USED)
        out.u32("expert_feed_forward_length", _EXPERT_FF)
    if s.arch == "qwen3next":
        out.u32("ssm.conv_kernel", _CONV)
        out.u32("ssm.state_size", _STATE)
        out.u32("ssm.group_count", _K_GROUPS)
        out.u32("ssm.time_step_rank", _V_GROUPS)
        out.u32("ssm.inner_size", _STATE * _V_GROUPS)
        out.u32("full_attention_interval", _FULL_EVERY)
        out.u32("expert_shared_feed_forward_length", _EXPERT_FF)
    out.prefix = ""


def _describe_mla(out: GgufWriter) -> None:
    out.u32("attention.head_count_kv", 1)
    out.u32("attention.kv_lora_rank", _LATENT)
    out.u32("attention.q_lora_rank", _Q_LATENT)
    out.u32("attention.key_length", _LATENT + _ROPE)
    out.u32("attention.value_length", _LATENT)
    out.u32("attention.key_length_mla", _NOPE + _ROPE)
    out.u32("attention.value_length_mla", _V)
    out.u32("rope.dimension_count", _ROPE)
    out.u32("leading_dense_block_count", 1)
    out.u32("expert_shared_count", 1)
    out.f32("expert_weights_scale", 1.0)
    out.u32("expert_gating_func", 2)
    out.u32("expert_group_count", 1)
    out.u32("expert_group_used_count", 1)


def _byte_tokens() -> list[str]:
    """The 256 printable stand-ins for bytes of GPT-2's byte-level BPE (openai/gpt-2 encoder.py, bytes_to_unicode)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _tokenizer(out: GgufWriter, arch: str) -> None:
    tokens = [*_byte_tokens(), "<|im_start|>", "<|im_end|>", "<|pad|>"]
    control = len(tokens) - 256
    unused = _VOCABULARY - len(tokens)
    tokens += [f"<|unused{i}|>" for i in range(len(tokens), _VOCABULARY)]
    out.prefix = "tokenizer."
    out.string("ggml.model", "gpt2")
    out.string("ggml.pre", "qwen2" if arch.startswith("qwen") else "gpt-2")
    out.strings("ggml.tokens", tokens)
    out.i32s("ggml.token_type", [1] * 256 + [3] * control + [5] * unused)
    out.strings("ggml.merges", ["! !"])  # the list must not be empty; this pair is not in the vocabulary
    out.u32("ggml.bos_token_id", 256)
    out.u32("ggml.eos_token_id", 257)
    out.u32("ggml.padding_token_id", 258)
    out.flag("ggml.add_bos_token", False)
    out.string("chat_template", _CHAT_TEMPLATE)
    out.prefix = ""


def _tensors(out: GgufWriter, s: _Shape) -> None:
    out.tensor("token_embd.weight", s.hidden, _VOCABULARY, fill="printable")
    out.tensor("output_norm.weight", s.hidden, fill="ones")
    if s.arch == "gpt-oss":
        out.tensor("output.weight", s.hidden, _VOCABULARY, fill="printable")
    for i in range(s.layers):
        block = f"blk.{i}."
        out.tensor(block + "attn_norm.weight", s.hidden, fill="ones")
        if s.arch == "deepseek2":
            _latent_attention(out, s, block)
        elif s.arch == "qwen3next" and (i + 1) % _FULL_EVERY:
            _linear_attention(out, s, block)
        else:
            _attention(out, s, block)
        _norms(out, s, block)
        if s.arch in _MOE and not (s.arch == "deepseek2" and i == 0):
            _experts(out, s, block)
        else:
            _feed_forward(out, s, block)


def _attention(out: GgufWriter, s: _Shape, block: str) -> None:
    q, kv = s.heads * s.head_dim, s.kv_heads * s.head_dim
    out.tensor(block + "attn_q.weight", s.hidden, q * (2 if s.arch == "qwen3next" else 1))
    out.tensor(block + "attn_k.weight", s.hidden, kv)
    out.tensor(block + "attn_v.weight", s.hidden, kv)
    out.tensor(block + "attn_output.weight", q, s.hidden)
    if s.arch in ("qwen2", "gpt-oss"):
        for part, width in (("q", q), ("k", kv), ("v", kv)):
            out.tensor(f"{block}attn_{part}.bias", width)
    if s.arch in ("qwen3", "qwen3moe", "gemma3", "qwen3next"):
        out.tensor(block + "attn_q_norm.weight", s.head_dim, fill="ones")
        out.tensor(block + "attn_k_norm.weight", s.head_dim, fill="ones")
    if s.arch == "gpt-oss":
        out.tensor(block + "attn_sinks.weight", s.heads)
        out.tensor(block + "attn_output.bias", s.hidden)


def _latent_attention(out: GgufWriter, s: _Shape, block: str) -> None:
    out.tensor(block + "attn_q_a_norm.weight", _Q_LATENT, fill="ones")
    out.tensor(block + "attn_kv_a_norm.weight", _LATENT, fill="ones")
    out.tensor(block + "attn_q_a.weight", s.hidden, _Q_LATENT)
    out.tensor(block + "attn_q_b.weight", _Q_LATENT, s.heads * (_NOPE + _ROPE))
    out.tensor(block + "attn_kv_a_mqa.weight", s.hidden, _LATENT + _ROPE)
    out.tensor(block + "attn_k_b.weight", _NOPE, _LATENT, s.heads)
    out.tensor(block + "attn_v_b.weight", _LATENT, _V, s.heads)
    out.tensor(block + "attn_output.weight", s.heads * _V, s.hidden)


def _linear_attention(out: GgufWriter, s: _Shape, block: str) -> None:
    keys, values = _STATE * _K_GROUPS, _STATE * _V_GROUPS
    out.tensor(block + "attn_qkv.weight", s.hidden, 2 * keys + values)
    out.tensor(block + "attn_gate.weight", s.hidden, values)
    out.tensor(block + "ssm_conv1d.weight", _CONV, 2 * keys + values)
    out.tensor(block + "ssm_dt.bias", _V_GROUPS)
    out.tensor(block + "ssm_a", _V_GROUPS, fill="decay")
    out.tensor(block + "ssm_ba.weight", s.hidden, 2 * _V_GROUPS)
    out.tensor(block + "ssm_norm.weight", _STATE, fill="ones")
    out.tensor(block + "ssm_out.weight", values, s.hidden)


def _norms(out: GgufWriter, s: _Shape, block: str) -> None:
    names: tuple[str, ...] = ("ffn",)
    if s.arch in ("gpt-oss", "qwen3next"):
        names = ("post_attention",)
    elif s.arch == "gemma3":
        names = ("post_attention", "ffn", "post_ffw")
    for name in names:
        out.tensor(f"{block}{name}_norm.weight", s.hidden, fill="ones")


def _feed_forward(out: GgufWriter, s: _Shape, block: str) -> None:
    out.tensor(block + "ffn_gate.weight", s.hidden, s.ff)
    out.tensor(block + "ffn_down.weight", s.ff, s.hidden)
    out.tensor(block + "ffn_up.weight", s.hidden, s.ff)


def _experts(out: GgufWriter, s: _Shape, block: str) -> None:
    e, f, x = s.hidden, _EXPERT_FF, _EXPERTS
    out.tensor(block + "ffn_gate_inp.weight", e, x)
    out.tensor(block + "ffn_gate_exps.weight", e, f, x)
    out.tensor(block + "ffn_down_exps.weight", f, e, x)
    out.tensor(block + "ffn_up_exps.weight", e, f, x)
    if s.arch == "deepseek2":
        out.tensor(block + "exp_probs_b.bias", x)
    if s.arch == "qwen3next":
        out.tensor(block + "ffn_gate_inp_shexp.weight", e)
    if s.arch in ("deepseek2", "qwen3next"):
        out.tensor(block + "ffn_gate_shexp.weight", e, f)
        out.tensor(block + "ffn_down_shexp.weight", f, e)
        out.tensor(block + "ffn_up_shexp.weight", e, f)
    if s.arch == "gpt-oss":
        out.tensor(block + "ffn_gate_inp.bias", x)
        for part, width in (("gate", f), ("down", e), ("up", f)):
            out.tensor(f"{block}ffn_{part}_exps.bias", width, x)
