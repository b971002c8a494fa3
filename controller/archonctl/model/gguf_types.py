"""Sizes of ggml element types, and the class of memory that a tensor's name says it belongs to."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TypedDict, cast

from archonctl.errors import ModelError
from archonctl.model.geometry import TensorClass
from archonctl.model.gguf_cursor import hostile, shown
from archonctl.model.gguf_header import TensorInfo

MAX_TENSOR_ELEMENTS = 2**63 - 1
"""INT64_MAX, past which llama.cpp b11434 ggml/src/gguf.cpp refuses a shape."""


@dataclass(frozen=True, slots=True)
class ElementType:
    """One ggml type: ``block`` values take ``bytes`` bytes."""

    id: int
    name: str
    block: int
    bytes: int


@cache
def element_types() -> dict[int, ElementType]:
    """All ggml types of llama.cpp b11434 by id (data: gguf_types.toml)."""
    rows = _table()["types"]
    return {row["id"]: ElementType(row["id"], row["name"], row["block"], row["bytes"]) for row in rows}


def tensor_size(tensor: TensorInfo, path: str) -> tuple[str, int]:
    """Element type name and bytes of one tensor; ``path`` is for messages.

    Raises ModelError ``model-tensor-type-unknown`` for a type id outside the table, and ``model-header-hostile``
    for a shape that no loader takes (rows that are no whole number of blocks, more than 2^63 - 1 elements).
    """
    kind = element_types().get(tensor.type_id)
    if kind is None:
        raise _unknown_type(tensor, path)
    elements = 1
    for dim in tensor.dims:
        elements *= dim
        if dim > MAX_TENSOR_ELEMENTS or elements > MAX_TENSOR_ELEMENTS:
            shape = " x ".join(map(str, tensor.dims))
            raise hostile(path, f"tensor {shown(tensor.name)} has {shape} elements; the limit is 2^63 - 1")
    row = tensor.dims[0] if tensor.dims else 1
    if row % kind.block:
        message = (
            f"tensor {shown(tensor.name)} has rows of {row:,} values; {kind.name} stores whole blocks of {kind.block}"
        )
        raise hostile(path, message)
    return kind.name, elements // kind.block * kind.bytes


def _unknown_type(tensor: TensorInfo, path: str) -> ModelError:
    table = _table()
    newest = max(row["id"] for row in table["types"])
    if tensor.type_id in table["removed"]:
        said, hint = "which llama.cpp no longer reads", "convert the model again with a current llama.cpp"
    else:
        said, hint = f"this release knows ids up to {newest}", "a newer archonctl may know it; see the model's own page"
    message = f"tensor {shown(tensor.name)} has element type {tensor.type_id}, {said}"
    return ModelError("model-tensor-type-unknown", message, where=path, hint=hint)


class _Row(TypedDict):
    id: int
    name: str
    block: int
    bytes: int
    source: str


class _Table(TypedDict):
    removed: list[int]
    types: list[_Row]


@cache
def _table() -> _Table:
    text = files("archonctl.model").joinpath("gguf_types.toml").read_text("utf-8")
    return cast(_Table, tomllib.loads(text))


# Names: gguf-py/gguf/constants.py (TENSOR_NAMES) of llama.cpp b11434. Routed experts are what --cpu-moe moves
# (common/common.h, LLM_FFN_EXPS_REGEX), and the one-tensor-an-expert files from before mid 2024.
_CLASSES: tuple[tuple[TensorClass, str], ...] = (
    ("routed_experts", r"blk\.\d+\.ffn_(?:up|down|gate|gate_up)(?:_(?:ch)?exps|\.\d+)\."),
    ("shared_experts", r"blk\.\d+\.ffn_\w*shexp"),
    ("recurrent", r"blk\.\d+\.(?:ssm_|time_mix_|channel_mix_|shortconv)"),
    ("other", r"blk\.\d+\.(?:nextn|ffn_gate_inp|exp_probs_b)|rope_|v\.|mm\.|a\."),
    ("dense_ffn", r"blk\.\d+\.(?:ffn_|post_ffw|pre_ffw|layer_output_norm|layer_out)"),
    ("attention", r"blk\.\d+\.(?:attn_|post_attention_norm|inp_gate|indexer)"),
    ("embedding", r"token_embd|position_embd|token_types|per_layer_token_embd|altup|per_layer"),
    ("output", r"output|cls|dense_"),
)
_CLASS_PATTERN = re.compile("|".join(f"({pattern})" for _, pattern in _CLASSES))


def tensor_class(name: str) -> TensorClass:
    """The class of memory that a tensor belongs to, judged by its name; "other" for a router or an unknown name."""
    found = _CLASS_PATTERN.match(name)
    return _CLASSES[found.lastindex - 1][0] if found and found.lastindex else "other"
