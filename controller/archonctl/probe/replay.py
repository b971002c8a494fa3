"""A stored verdict judged again: the same evidence, today's rules. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from archonctl.deployment.schema import Contract
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import Interval
from archonctl.probe.capacity_judge import flown_from, judge_flown
from archonctl.probe.faults import Fault
from archonctl.probe.identity import judge_identity, process_from
from archonctl.probe.ledger_leg import ledger_leg
from archonctl.probe.readback import read_back
from archonctl.probe.report import EngineReport, judge_report
from archonctl.probe.stored import Stored, reread
from archonctl.probe.values import Leg, Verdict, VerdictWord
from archonctl.probe.verdict import judge


@dataclass(frozen=True, slots=True)
class Change:
    """What is judged otherwise today: a leg or a figure of the boot log, then and now."""

    what: str
    was: str
    now: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The word then and now. ``again`` are the legs that were judged again, ``stands`` those whose outcome is itself
    the evidence (a connection that was refused has nothing more to say)."""

    was: VerdictWord
    now: VerdictWord
    reasons: tuple[str, ...]
    changes: tuple[Change, ...]
    again: tuple[str, ...]
    stands: tuple[str, ...]

    @property
    def same(self) -> bool:
        """True if nothing is judged otherwise."""
        return self.was == self.now and not self.changes


def replay(stored: Stored) -> Replayed:
    """Judge what was seen again. Without a contract in the stored value nothing is, and every leg stands."""
    if stored.contract is None or not stored.legs:
        return Replayed(stored.word, stored.word, stored.reasons, (), (), tuple(leg.id for leg in stored.legs))
    ledger, changes = _ledger(stored)
    legs, again = [], []
    for leg in stored.legs:
        now = _again(leg, stored, stored.contract, ledger)
        if now is not None:
            again.append(leg.id)
            changes += _change(leg, now)
        legs.append(now or leg)
    verdict = _word(stored, judge(legs))
    stands = tuple(leg.id for leg in legs if leg.id not in again)
    return Replayed(stored.word, verdict.word, verdict.reasons, tuple(changes), tuple(again), stands)


def _word(stored: Stored, now: Verdict) -> Verdict:
    """What the legs do not tell stays: an engine that ended while it was probed is broken whatever it had answered."""
    if stored.word == "broken" and judge(stored.legs).word != "broken":
        return replace(now, word="broken", reasons=stored.reasons)
    return now


def _ledger(stored: Stored) -> tuple[BootLedger | None, list[Change]]:
    """The ledger as today's grammar reads the kept lines, where those suffice, and what it reads otherwise."""
    found = stored.ledger
    lines, names = stored.value.get("ledger_lines"), stored.value.get("ledger_lines_suffice_for")
    if found is None or not isinstance(lines, list) or not isinstance(names, list) or not stored.engine:
        return found, []
    today = reread([each for each in lines if isinstance(each, dict)], stored.engine, stored.version)
    figures, changes = dict(found.figures), []
    for name in map(str, names):
        if name not in figures or (name in today and _alike(today[name], figures[name].value)):
            continue
        if name in today:
            was, now = figures[name].value, today[name]
            figures[name] = replace(figures[name], value=now)
            changes.append(Change(f"log figure {name}", f"{was.best:,.10g}", f"{now.best:,.10g}"))
        else:
            was = figures.pop(name).value
            changes.append(Change(f"log figure {name}", f"{was.best:,.10g}", "not read"))
    return replace(found, figures=figures), changes


def _alike(one: Interval, other: Interval) -> bool:
    """The same but for the digits that a stored figure is rounded to."""
    ends = ((one.low, other.low), (one.best, other.best), (one.high, other.high))
    return all(abs(a - b) <= 1e-5 for a, b in ends)


@dataclass(frozen=True, slots=True)
class _Case:
    """What a leg is judged by again."""

    leg: Leg
    stored: Stored
    contract: Contract
    ledger: BootLedger | None


def _again(leg: Leg, stored: Stored, contract: Contract, ledger: BootLedger | None) -> Leg | None:
    """The leg by today's rules; None where its outcome is the evidence."""
    judgement = _JUDGES.get(leg.id)
    if judgement is None or (leg.id != "ledger" and not leg.observed):
        return None
    try:
        return judgement(_Case(leg, stored, contract, ledger))
    except Fault as fault:
        return fault.leg(leg.id, required=leg.required)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None


def _ledger_leg(case: _Case) -> Leg:
    said = next((leg.observed for leg in case.stored.legs if leg.id == "engine-report" and leg.status == "pass"), {})
    report = read_back(EngineReport, said) if said else None
    blocks = report.pool_blocks if report else None
    stored = case.stored
    return ledger_leg(case.ledger, case.contract, stored.engine, "the boot log", stored.replicas, blocks)


def _identity(case: _Case) -> Leg:
    process, runs = process_from(case.leg.observed)
    return judge_identity(process, case.ledger, runs)


_JUDGES: dict[str, Callable[[_Case], Leg]] = {
    "ledger": _ledger_leg,
    "capacity": lambda case: judge_flown(flown_from(case.leg.observed), case.contract),
    "engine-report": lambda case: judge_report(
        read_back(EngineReport, case.leg.observed),
        case.contract,
        case.ledger,
        case.stored.model,
    ),
    "identity": _identity,
}
"""Legs whose status follows from what they saw."""


def _change(was: Leg, now: Leg) -> list[Change]:
    if (was.status, was.code) == (now.status, now.code):
        return []
    return [Change(f"leg {was.id}", _said(was), _said(now), now.message)]


def _said(leg: Leg) -> str:
    return f"{leg.status} ({leg.code})" if leg.code else leg.status
