"""What a boot log said: figures with their line, and what was looked for and not found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from archonctl.memory.interval import Interval


@dataclass(frozen=True, slots=True)
class Reading:
    """One figure and the line that carries it. ``line_no`` counts from 1; ``text`` is the line as read, without what
    looks like a secret, cut at 400."""

    value: Interval
    line_no: int
    text: str


@dataclass(frozen=True, slots=True)
class Remark:
    """A line that matters without being a figure: a warning, a refusal, a reduced context."""

    code: str
    severity: str
    """"refusal", "warning" or "info"."""
    text: str
    line_no: int


@dataclass(frozen=True, slots=True)
class BootLedger:
    """The reading of one boot. ``figures`` uses the names of ``engines/<name>/ledger.toml``.

    Common names: ``kv_tokens`` ``kv_mib`` ``k_mib`` ``v_mib`` ``cells`` ``n_slots`` ``n_ctx_slot``
    ``weights_gib`` ``available_gib`` ``max_concurrency`` ``compute_mib`` ``free_gib`` ``floor_mib``.
    ``kv_tokens`` is what all sequences share together. Absent means: no evidence, never zero.
    """

    engine: str
    engine_version: str = ""
    figures: Mapping[str, Reading] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    missing: tuple[str, ...] = ()
    """Figures that this engine prints at a healthy boot and that were not there."""
    lines_read: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)
    """What was said in words: cache types, devices, version hints."""
    series: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    """Every occurrence (the first 64) of figures that were seen more than once: ranks, devices, draft models."""
    ready_line: int = 0
    """Line in which the engine said that it serves; 0 if it never did. A ledger can precede a crash."""
    boots: int = 1
    """Boots seen in this log; the figures are those of the last one."""

    @property
    def is_whole(self) -> bool:
        """True if nothing that a sound boot prints is still to come: it serves by its own word, or all was said."""
        return bool(self.ready_line) or bool(self.figures and not self.missing)

    def get(self, name: str) -> Interval | None:
        """The value of a figure, or None if it was not seen."""
        reading = self.figures.get(name)
        return reading.value if reading else None

    def has(self, code: str) -> bool:
        """True if a remark of this code was made."""
        return any(remark.code == code for remark in self.remarks)


@dataclass(frozen=True, slots=True)
class Change:
    """What one line changed, for those who follow a log while it is written."""

    figures: Mapping[str, Reading] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    ready: bool = False
    boot: bool = False
