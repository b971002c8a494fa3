"""The table of architectures: which layers slide, recur or keep nothing, and where that is written down."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

MeaningOfNoWindow = Literal["full", "default", "refuse"]


@dataclass(frozen=True, slots=True)
class Law:
    """One row of gguf_architectures.toml; its comments say what each field means."""

    architectures: tuple[str, ...]
    source: str
    mla: bool = False
    pattern: int | Literal["", "array", "attention"] = ""
    dense_first: bool = False
    window_tokens: int = 0
    absent: MeaningOfNoWindow = "refuse"
    zero: MeaningOfNoWindow = "refuse"
    fixed: bool = False
    only_at_layers: int = 0
    first_layers_with_kv: int = 0
    shared_kv_key: str = ""
    marks: Literal["", "interval", "kv_heads", "kv_heads_ff", "all"] = ""
    interval: int = 0
    state: Literal["", "ssm", "kda", "shortconv", "linear_attention"] = ""
    groups: bool = True
    head_dims_without_heads: bool = False

    @property
    def trailing_layers_serve(self) -> bool:
        """True if layers for multi-token prediction get cells like any other (no layer filter names them)."""
        return self.marks in ("kv_heads", "kv_heads_ff")


@cache
def laws() -> dict[str, Law]:
    """Law by architecture name, as ``general.architecture`` spells it."""
    table = tomllib.loads(files("archonctl.model").joinpath("gguf_architectures.toml").read_text("utf-8"))
    rows = [Law(**{**row, "architectures": tuple(row["architectures"])}) for row in table["law"]]
    return {name: row for row in rows for name in row.architectures}
