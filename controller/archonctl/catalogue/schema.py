"""The form of a catalogue file. A file of a user may say any part of a model; what is missing is asked for later."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_BYTES = 1 << 46
"""64 TiB: more than ten times the largest public checkpoint."""
MAX_PARAMETERS = 1 << 45

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Field(gt=0, le=2**31 - 1)]
Parameters = Annotated[int, Field(gt=0, le=MAX_PARAMETERS)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
Repository = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=200)]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=300)]
Revision = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Engine = Literal["vllm", "sglang", "llamacpp", "ollama", "radiance", "exllama", "lmdeploy", "tensorrt-llm"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Attention(_Strict):
    """Heads of the layers of one kind. ``window`` is the chunk where layers attend within chunks."""

    kv_heads: Positive
    head_dim: Positive
    head_dim_v: Positive | None = None
    window: Positive | None = None


class Latent(_Strict):
    """One latent row for all heads (MLA)."""

    latent: Positive
    rope: Count


class State(_Strict):
    """What a recurrent layer keeps for a sequence, in elements."""

    kind: Literal["", "gated_delta_net", "mamba1", "mamba2", "kda", "short_conv", "lightning"] = ""
    conv_elements: Count
    ssm_elements: Count
    conv_kernel: Count
    state_size: Count
    inner_size: Count
    groups: Count
    time_step_rank: Count
    ssm_element_bytes: Literal[0, 2, 4] = 0


Architecture = Annotated[str, Field(min_length=1, max_length=80)]
Layers = Annotated[int, Field(gt=0, le=1024)]
Pattern = Annotated[str, Field(pattern=r"^[FSCMRN]+$", max_length=1024)]


class GeometryPart(_Strict):
    """As much of a geometry as a file says."""

    architecture: Architecture | None = None
    layers: Layers | None = None
    pattern: Pattern | None = None
    hidden: Positive | None = None
    heads: Count | None = None
    vocab: Positive | None = None
    full: Attention | None = None
    sliding: Attention | None = None
    chunked: Attention | None = None
    mla: Latent | None = None
    recurrent: State | None = None
    experts: Count = 0
    experts_used: Count = 0
    experts_shared: Count = 0
    nextn_layers: Count = 0
    element_bytes: Literal[0, 2, 4] = 0
    indexer_dim: Count = 0
    sharing_layers: Count = 0


class GeometryRow(GeometryPart):
    """A whole one. ``pattern`` is repeated over the layers, a letter each.

    F full, S sliding, C chunked, M latent, R recurrent; N keeps nothing: it does not attend, or reads another's rows.
    """

    architecture: Architecture
    layers: Layers
    pattern: Pattern
    hidden: Positive
    heads: Count
    vocab: Positive


class ParametersRow(_Strict):
    """Parameters of the language model by class of tensors."""

    embedding: Parameters | None = None
    attention: Parameters | None = None
    dense_ffn: Parameters | None = None
    routed_experts: Parameters | None = None
    shared_experts: Parameters | None = None
    recurrent: Parameters | None = None
    output: Parameters | None = None
    other: Parameters | None = None


class QuantRow(_Strict):
    """One published form of the weights. ``bytes`` is left out where no public figure was found."""

    name: Name
    engines: Annotated[tuple[Engine, ...], Field(strict=False)] = ()
    repo: Repository | None = None
    file: FileName | None = None
    revision: Revision | None = None
    bytes: Annotated[int, Field(gt=0, le=MAX_BYTES)] | None = None
    sha256: Annotated[tuple[Digest, ...], Field(strict=False, max_length=1000)] = ()
    source: Annotated[str, Field(min_length=3, max_length=500)] | None = None


class ModelRow(_Strict):
    """One model. ``towers`` are the parameters of encoders for pictures and sound, which GGUF keeps in a file apart."""

    name: Name
    repo: Repository | None = None
    aliases: Annotated[tuple[Name, ...], Field(strict=False, max_length=20)] = ()
    source: Annotated[str, Field(min_length=3, max_length=1000)] | None = None
    trained_context: Positive | None = None
    towers: Parameters | None = None
    geometry: GeometryPart | None = None
    parameters: ParametersRow | None = None
    quant: Annotated[tuple[QuantRow, ...], Field(strict=False, max_length=100)] = ()


class CatalogueFile(_Strict):
    """A whole file."""

    model: Annotated[tuple[ModelRow, ...], Field(strict=False, max_length=2000)] = ()
