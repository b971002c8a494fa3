"""One engine's reading of a log: its grammar, the book of the boot at hand, remarks, readiness."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from archonctl.engines.sighting import Book, Find, Note, Sighting
from archonctl.ledger.grammar import Grammar, Row
from archonctl.ledger.values import BootLedger, Change, Reading, Remark

TEXT_LIMIT = 400
PER_CODE = 16
"""Remarks of one code that are kept; a restart loop repeats one line thousands of times."""


def _reading(find: Find) -> Reading:
    return Reading(find.value, find.line_no, find.text)


@dataclass(frozen=True, slots=True)
class Taken:
    """What a sighting did besides giving figures."""

    remark: Remark | None
    ready: bool
    boot: bool


@dataclass
class Track:
    """What one engine's grammar makes of the lines so far."""

    grammar: Grammar
    book: Book = field(init=False)
    boots: int = 1
    ready_line: int = 0
    proof_line: int = 0
    version: str = ""
    _own: int = 0
    _shared: int = 0
    _remarks: list[Remark] = field(default_factory=list)
    _per_code: dict[str, int] = field(default_factory=dict)
    _reported: dict[str, Find] = field(default_factory=dict)
    _dirty: bool = False
    _stopped: bool = False
    _early: list[tuple[Row, Sighting]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.book = self.grammar.make_book(self.grammar.rules)

    @property
    def score(self) -> int:
        """Lines that tell this engine, over all boots; lines shared with another engine count only beside its own."""
        return self._own + self._shared if self._own else 0

    @property
    def seen(self) -> bool:
        """True if any line told this engine or one that it shares lines with."""
        return self._own + self._shared > 0

    @property
    def name(self) -> str:
        """What the engine's people call it."""
        return self.book.facts().get("engine_name", self.grammar.display)

    def take(self, row: Row, sighting: Sighting) -> Taken | None:
        """Take in one sighting of a row of this grammar. None where it counts for nothing."""
        if (row.effect == "boot" and self._dirty) or (self._stopped and sighting.figures):
            self._restart()
        elif row.early:
            self._early = [*self._early[-16:], (row, sighting)]
        if self._stopped or (row.effect == "stop" and not self.ready_line):
            return None  # what is torn down cries out; that is no news of an engine that was told to stop
        if row.effect == "stop":
            self._stopped = True
            return None
        if self.ready_line and not row.after_ready and row.effect != "remark":
            return None  # what is printed once it serves may be anybody's text
        if row.id in self.grammar.own:
            self._own += 1
        elif row.tells:
            self._shared += 1
        if "engine_version" in sighting.facts:
            self.version = sighting.facts["engine_version"]
        self.book.note(sighting)
        if not row.early and (sighting.figures or row.severity == "refusal" or row.effect == "ready"):
            self._dirty = row.effect != "boot"
            self._early.clear()
        remark = self._remark(row, sighting) if row.code else None
        if row.proof or row.effect == "ready":
            self.proof_line = sighting.line_no
        if row.effect == "ready" and not self.ready_line:
            self.ready_line = sighting.line_no
        return Taken(remark, row.effect == "ready", row.effect == "boot")

    def change(self, taken: Taken) -> Change:
        """What is new since the last call, derived figures too."""
        now = self.book.figures()
        new = {name: _reading(find) for name, find in now.items() if self._reported.get(name) != find}
        self._reported = now
        return Change(new, (taken.remark,) if taken.remark else (), taken.ready, taken.boot)

    def _restart(self) -> None:
        self.book = self.grammar.make_book(self.grammar.rules)
        self.boots += 1
        self.ready_line = self.proof_line = 0
        self._remarks.clear()
        self._per_code.clear()
        self._dirty = self._stopped = False
        early, self._early = self._early, []
        for row, sighting in early:
            self.take(row, sighting)

    def _remark(self, row: Row, sighting: Sighting) -> Remark | None:
        seen = self._per_code.get(row.code, 0)
        self._per_code[row.code] = seen + 1
        if seen >= PER_CODE:
            return None
        remark = Remark(row.code, row.severity, sighting.text, sighting.line_no)
        self._remarks.append(remark)
        return remark

    def ledger(self, lines_read: int, version: str = "") -> BootLedger:
        """The value of what was read so far. ``version`` stands in where the log names none."""
        finds = self.book.figures()
        facts = self.book.facts()
        return BootLedger(
            engine=self.grammar.engine,
            engine_version=self.version or version,
            figures={name: _reading(find) for name, find in sorted(finds.items())},
            remarks=self._judged(self.book.notes()),
            missing=tuple(name for name in self.grammar.healthy if name not in finds),
            lines_read=lines_read,
            facts={k: v for k, v in facts.items() if k != "engine_version"},
            series={n: tuple(map(_reading, s)) for n, s in self.book.series.items() if len(s) > 1},
            ready_line=self.ready_line,
            boots=self.boots,
        )

    def _judged(self, derived: Iterable[Note]) -> tuple[Remark, ...]:
        """All remarks, judged by how the boot ended: an alarm before a successful start did not refuse it."""
        every = [*self._remarks, *(Remark(n.code, n.severity, n.text, n.line_no) for n in derived)]
        judged = (
            Remark(r.code, "warning", r.text, r.line_no)
            if r.severity == "refusal" and r.line_no < self.proof_line
            else r
            for r in every
        )
        return tuple(sorted(judged, key=lambda r: r.line_no))
