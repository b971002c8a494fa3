"""A model's geometry: what decides the size of its KV cache and of its weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from archonctl.errors import ModelError

if TYPE_CHECKING:
    from archonctl.model.rad import RadManifest

AttentionKind = Literal["full", "sliding", "chunked", "mla", "recurrent", "none"]
"""``chunked`` attends within fixed chunks (Llama 4); its ``window`` is the chunk."""
RecurrentKind = Literal["", "gated_delta_net", "mamba1", "mamba2", "kda", "short_conv", "lightning"]
TensorClass = Literal[
    "embedding", "attention", "dense_ffn", "routed_experts", "shared_experts", "recurrent", "output", "other"
]


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. ``k_width`` and ``v_width`` are elements a token in the cache (all KV heads together).

    MLA keeps one latent row: ``k_width`` is the latent plus the rope part and ``v_width`` is 0.
    """

    index: int
    attention: AttentionKind
    kv_heads: int = 0
    head_dim_k: int = 0
    head_dim_v: int = 0
    k_width: int = 0
    v_width: int = 0
    window: int = 0


_KIND = attrgetter("attention", "kv_heads", "head_dim_k", "head_dim_v", "k_width", "v_width", "window")


@dataclass(frozen=True, slots=True)
class Recurrent:
    """State a sequence keeps in each recurrent layer, in elements (before the engine's dtype)."""

    conv_elements: int
    ssm_elements: int
    conv_kernel: int
    state_size: int
    inner_size: int
    groups: int
    time_step_rank: int
    kind: RecurrentKind = ""
    ssm_element_bytes: int = 0
    """Bytes an element of the state-space part, where the model's own config asks for a dtype; 0: it does not."""


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """Bytes of one class of tensors at one dtype."""

    cls: TensorClass
    dtype: str
    bytes: int
    tensors: int


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the weights of a checkpoint are stored: method, bits a weight, weights a scale; None where it is not said.

    ``kv_cache`` is the dtype that it asks of the cache ("" for none), ``packed`` what packed tensors stand for.
    """

    method: str
    bits: int | None = None
    group_size: int | None = None
    kv_cache: str = ""
    packed: str = ""


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a header says. Counts are 0 where the architecture has no such thing."""

    architecture: str
    name: str
    layers: tuple[Layer, ...]
    hidden: int
    heads: int
    vocab: int
    trained_context: int
    experts: int = 0
    experts_used: int = 0
    experts_shared: int = 0
    recurrent: Recurrent | None = None
    nextn_layers: int = 0
    """Trailing layers for multi-token prediction, which serve no KV of their own unless asked to."""
    element_bytes: int = 0
    """Bytes an element of the dtype the model is run in, where the header says it; 0: it does not."""
    indexer_dim: int = 0
    """Width of the key that a sparse-attention indexer keeps beside each MLA row (DeepSeek-V3.2, GLM-5); 0: none."""
    sharing_layers: int = 0
    """Trailing layers that read the rows of earlier ones (Gemma 3n, Gemma 4 E2B): of attention "none" here, and an
    engine that shares none has rows for them all the same."""
    kinds: tuple[tuple[Layer, int], ...] = field(init=False, repr=False, compare=False)
    """One serving layer of each kind, in the order of the first of it, and how many are like it: a law goes over a
    few kinds, not over a hundred layers."""
    kind_of: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The place in ``kinds`` of each serving layer."""

    def __post_init__(self) -> None:
        kinds = [_KIND(layer) for layer in self.serving]
        examples = dict(zip(reversed(kinds), reversed(self.serving), strict=True))
        counts = Counter(kinds)
        numbers = {kind: number for number, kind in enumerate(counts)}
        object.__setattr__(self, "kinds", tuple((examples[kind], count) for kind, count in counts.items()))
        object.__setattr__(self, "kind_of", tuple(map(numbers.__getitem__, kinds)))

    @property
    def serving(self) -> tuple[Layer, ...]:
        """All layers but those for multi-token prediction."""
        return self.layers[: len(self.layers) - self.nextn_layers] or self.layers

    @property
    def latent_dim(self) -> int:
        """Elements of the latent that an MLA row holds; 0 without MLA."""
        return next((layer.head_dim_v for layer in self.layers if layer.attention == "mla"), 0)

    @property
    def rope_dim(self) -> int:
        """Elements beside it that carry the position; 0 without MLA."""
        return next((layer.k_width - layer.head_dim_v for layer in self.layers if layer.attention == "mla"), 0)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Everything read from one model artefact: geometry, bytes by class and the size on disk."""

    path: str
    format: Literal["gguf", "manifest", "safetensors"]
    geometry: Geometry | None
    file_bytes: int
    tensor_bytes: tuple[TensorBytes, ...] = ()
    tensors: int = 0
    metadata: dict[str, int | float | str | bool] | None = None
    """Scalar header keys only; arrays (vocabulary, merges) are never materialised."""
    rad: RadManifest | None = None
    """The declared manifest, where the file's own layout is not public."""
    parts: int = 1
    """Files that the model is split over."""
    quantization: Quantization | None = None
    """As a Hugging Face config says; None for a GGUF, whose tensors say it each for itself."""
    geometry_reason: str = ""
    """Why ``geometry`` is None; empty where there is one."""
    tensor_sizes: tuple[tuple[str, int], ...] = ()
    """Name and bytes of every tensor, where what is asked needs them one by one (GGUF)."""
    projector_bytes: int = 0
    """Weights of a multimodal projector that is declared beside the model; 0: there is none."""
    draft: ModelFacts | None = None
    """The draft model that is declared beside it."""

    def require_geometry(self) -> Geometry:
        """The geometry; raises ModelError ``model-architecture-unknown`` where no law covers the model."""
        if self.geometry is not None:
            return self.geometry
        raise ModelError(
            "model-architecture-unknown",
            self.geometry_reason or "the file says nothing about its layers",
            where=self.path,
            hint="its weights can be counted, its cache cannot be planned",
        )

    @property
    def weight_bytes(self) -> int:
        """Sum of all tensor bytes."""
        return sum(part.bytes for part in self.tensor_bytes)
