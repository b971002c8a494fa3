"""What was measured while KV cache was moved, kept beside the endpoint's verdicts: it wins over what is declared."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from archonctl.service.state import atomic_write

FILE = "tiers-measured.json"
SCHEMA = "archonctl.tiers-measured/1"
GUARDS = Path("/var/lib/archon-guard")
"""Where the guard's unit keeps it (its StateDirectory=): only root writes beside the verdicts."""
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


def folders_of(name: str, state: Path, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where the figures of an endpoint may be kept; ``state`` is its state folder."""
    return (state,) if "ARCHON_STATE_DIR" in environ else (state, GUARDS / name)


def kept_in(state: Path, environ: Mapping[str, str]) -> Path:
    """Where a guard keeps them: in the folder that systemd made for it (systemd.exec(5)), else beside the verdicts."""
    return Path(environ.get("STATE_DIRECTORY") or state)


def read_measured(folders: Iterable[Path]) -> Measured:
    """The latest figures in these folders. What cannot be read or is no figure counts as not measured."""
    found: list[tuple[float, bytes]] = []
    for folder in folders:
        with contextlib.suppress(OSError), (folder / FILE).open("rb") as file:
            found.append((os.fstat(file.fileno()).st_mtime, file.read(_LIMIT_BYTES)))
    for _at, data in sorted(found, reverse=True):
        if (measured := _measured(data)) is not None:
            return measured
    return Measured()


def write_measured(folder: Path, measured: Measured) -> None:
    """Keep them. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / FILE, json.dumps(measured.as_json()).encode(), 0o644)


def _measured(data: bytes) -> Measured | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        return None
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
