"""What to simulate: the version, the machine and the pace. Never a flag of the engine itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast


@dataclass(frozen=True)
class Simulation:
    """Fields are ``--simulate-<name>`` and ``RADIANCE_SIM_<NAME>``. Sizes in MiB, times in seconds."""

    version: str = "1.8.1"
    cards: int = 2
    card_mib: int = 31_856
    pages_limit: str = ""
    """Path of a file such as /sys/module/ttm/parameters/pages_limit; empty: pinned memory is not limited."""
    load_s: float = 0.0
    """How long reading the model takes."""
    prefill_tps: float = 2_000_000.0
    """Prompt tokens a second."""
    step_s: float = 0.001
    """A step that only decodes; 0.0187 on the archon host."""
    reasoning_tokens: int = 200
    """How long a chat answer thinks before it says anything."""
    answer_tokens: int = 256
    """How long an answer is (after the thinking) unless the request ignores the end of text."""
    fail: str = ""
    """"exit" ends the process with 70 after the load, "hang" never gets ready."""

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(int(part) for part in self.version.split("."))


def read(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[Simulation, list[str]]:
    """The simulation and what is left of ``argv`` for the engine's own parser."""
    values = {field.name: environ.get(f"RADIANCE_SIM_{field.name.upper()}", "") for field in fields(Simulation)}
    words = list(argv)
    while len(words) > 1 and words[0].startswith("--simulate-"):
        values[words[0].removeprefix("--simulate-").replace("-", "_")] = words[1]
        del words[:2]
    kinds = {field.name: cast("Callable[[str], Any]", type(field.default)) for field in fields(Simulation)}
    return Simulation(**{name: kinds[name](value) for name, value in values.items() if value}), words
