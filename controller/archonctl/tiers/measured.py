"""What was measured while KV cache was moved, kept beside the endpoint's verdicts: it wins over what is declared."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FILE = "tiers-measured.json"
SCHEMA = "archonctl.tiers-measured/1"
_LIMIT_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one tier, by saving to it and restoring from it."""

    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Every figure that is known; what is not there was not measured."""

    tiers: Mapping[str, Speed] = field(default_factory=dict)
    prefill_tokens_per_s: float | None = None

    def as_json(self) -> dict[str, object]:
        """The value that ``read_measured`` reads."""
        speeds = {
            name: {"bandwidth_bytes_per_s": each.bandwidth_bytes_per_s, "latency_s": each.latency_s}
            for name, each in self.tiers.items()
        }
        return {"schema": SCHEMA, "tiers": speeds, "prefill_tokens_per_s": self.prefill_tokens_per_s}


def read_measured(folder: Path) -> Measured:
    """The figures of one endpoint's state folder. What cannot be read or is no figure counts as not measured."""
    try:
        with (folder / FILE).open("rb") as file:
            value = json.loads(file.read(_LIMIT_BYTES))
    except (OSError, ValueError, RecursionError):
        return Measured()
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return Measured()
    rows = value.get("tiers")
    speeds = {
        str(name): Speed(_positive(row.get("bandwidth_bytes_per_s")), _positive(row.get("latency_s"), zero=True))
        for name, row in (rows.items() if isinstance(rows, dict) else ())
        if isinstance(row, dict)
    }
    return Measured(speeds, _positive(value.get("prefill_tokens_per_s")))


def _positive(value: object, *, zero: bool = False) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value) if value > 0 or (zero and value == 0) else None
