"""How the predictions of an endpoint turned out, from the verdicts that are kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.schema import Prediction
from archonctl.errors import UsageError
from archonctl.service.verdict_store import kept, read_value


@dataclass(frozen=True, slots=True)
class Scoring:
    """One prediction at one verdict: ``value`` as ``archonctl.probe/1`` has it."""

    release: str
    at: str
    by: str
    value: dict[str, object]

    @property
    def measured(self) -> bool:
        """True if it came to a figure."""
        return self.value.get("score") != "not measured"


@dataclass(frozen=True, slots=True)
class History:
    """A prediction and every scoring of it, newest first. ``declared`` is None if it was withdrawn since."""

    name: str
    declared: Prediction | None
    scorings: tuple[Scoring, ...]

    @property
    def last(self) -> Scoring | None:
        """The newest that came to a figure, else the newest."""
        return next((each for each in self.scorings if each.measured), next(iter(self.scorings), None))


def scores(folder: Path, declared: Sequence[Prediction]) -> tuple[History, ...]:
    """Every prediction that is declared, and every one that a kept verdict scored; unreadable verdicts are passed over.

    A prediction that was changed since is another one: only scorings of the same expectation count for it.
    """
    found: dict[str, list[Scoring]] = {each.name: [] for each in declared}
    for file in kept(folder):
        try:
            value = read_value(file.path)  # no more of it is judged: this is asked of hundreds
        except UsageError:
            continue
        probe = value.get("probe") if isinstance(value, dict) else None
        rows = probe.get("predictions") if isinstance(probe, dict) else None
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict):
                found.setdefault(str(row.get("name")), []).append(Scoring(file.release, file.at, file.by, row))
    wanted = {each.name: each for each in declared}
    return tuple(_history(name, wanted.get(name), rows) for name, rows in found.items())


def _history(name: str, declared: Prediction | None, rows: list[Scoring]) -> History:
    if declared is not None:
        rows = [each for each in rows if (each.value.get("expect"), each.value.get("band")) == _terms(declared)]
    return History(name, declared, tuple(rows))


def _terms(declared: Prediction) -> tuple[float, float]:
    return declared.expect, declared.band
