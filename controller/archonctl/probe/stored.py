"""A verdict as it is stored, ``archonctl.evidence/1``: what was said, and everything that it was said from. Pure.

Older and narrower values are read as well (``archonctl.verify/1``, ``up/1``, ``probe/1``): what they lack is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, get_args

from archonctl.deployment.schema import Contract, Endpoint
from archonctl.errors import UsageError
from archonctl.ledger.as_json import ledger_json
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.values import BootLedger, Reading, Remark
from archonctl.memory.interval import Interval
from archonctl.probe.ledger_leg import replicas_of
from archonctl.probe.readback import read_back
from archonctl.probe.values import Leg, LegStatus, Proof, VerdictWord
from archonctl.redact import Redactor

SCHEMA = "archonctl.evidence/1"
T = TypeVar("T")
_READABLE = (SCHEMA, "archonctl.verify/1", "archonctl.up/1", "archonctl.probe/1")
Json = dict[str, object]
_LINES = 2048


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored verdict. ``value`` is the whole of it; ``contract`` is None where its schema did not keep it."""

    value: Mapping[str, object]
    schema: str
    endpoint: str
    word: VerdictWord
    reasons: tuple[str, ...]
    legs: tuple[Leg, ...]
    ledger: BootLedger | None = None
    contract: Contract | None = None
    engine: str = ""
    version: str = ""
    model: str = ""
    replicas: int = 1


def evidence(
    endpoint: Endpoint, name: str, probe: Mapping[str, object] | None, ledger: BootLedger | None, **more: object
) -> Json:
    """The value to store. ``more`` goes in as it is: ``verdict``, ``reasons``, ``release``, ``at`` and the like."""
    lines, sound = kept_lines(ledger, endpoint) if ledger else ([], [])
    return {
        "schema": SCHEMA,
        "endpoint": name,
        "contract": endpoint.contract.model_dump(),
        "engine": {"kind": endpoint.engine.kind, "version": endpoint.engine.version or None},
        "model": endpoint.model.path,
        "replicas": replicas_of(endpoint),
        "ledger": ledger_json(ledger) if ledger else None,
        "ledger_lines": lines,
        "ledger_lines_suffice_for": sound,
        "probe": dict(probe) if probe else None,
        **more,
    }


def kept_lines(ledger: BootLedger, endpoint: Endpoint) -> tuple[list[Json], list[str]]:
    """The lines that figures and remarks come from, without secrets, and the figures that can be read from them alone.

    Some figures need more of a log than their own line (sums, figures of one context among several).
    """
    found: dict[int, str] = {}
    series = [reading for each in ledger.series.values() for reading in each]
    for reading in (*series, *ledger.figures.values()):
        found[reading.line_no] = reading.text
    for remark in ledger.remarks:
        found.setdefault(remark.line_no, remark.text)
    clean = Redactor().clean
    lines: list[Json] = [{"line": number, "text": clean(found[number])} for number in sorted(found)][:_LINES]
    again = reread(lines, endpoint.engine.kind, endpoint.engine.version)
    same = [name for name, each in ledger.figures.items() if name in again and again[name] == each.value]
    return lines, sorted(same)


def reread(lines: Sequence[Mapping[str, object]], kind: str, version: str) -> dict[str, Interval]:
    """What today's grammar reads from kept lines."""
    reader = LedgerReader(kind, version)
    for each in lines:
        reader.feed(str(each.get("text", "")))
    return {name: reading.value for name, reading in reader.result().figures.items()}


def read_stored(value: object, where: str = "") -> Stored:
    """A stored verdict of any readable schema. Raises UsageError ``verdict-unreadable``."""
    if not isinstance(value, dict) or value.get("schema") not in _READABLE:
        schema = value.get("schema") if isinstance(value, dict) else type(value).__name__
        raise _unreadable(f"schema {schema!r:.80} is not one of {', '.join(_READABLE)}", where)
    try:
        return _read(value)
    except (TypeError, ValueError, KeyError, AttributeError) as err:
        raise _unreadable(f"{type(err).__name__} {err}"[:300], where) from None


def _read(value: Mapping[str, object]) -> Stored:
    schema = str(value["schema"])
    probe = value if schema == "archonctl.probe/1" else value.get("probe")
    legs = tuple(_leg(each) for each in probe["legs"]) if isinstance(probe, dict) else ()
    word: VerdictWord = _one_of(get_args(VerdictWord), value["verdict"])
    contract, engine = value.get("contract"), value.get("engine")
    told = engine if isinstance(engine, dict) and "kind" in engine else {}
    ledger = value.get("ledger")
    replicas = value.get("replicas", 1)
    return Stored(
        value=value,
        schema=schema,
        endpoint=str(value["endpoint"]),
        word=word,
        reasons=_texts(value.get("reasons")),
        legs=legs,
        ledger=ledger_from(ledger) if isinstance(ledger, dict) else None,
        contract=Contract.model_validate(contract) if isinstance(contract, dict) else None,
        engine=str(told.get("kind") or ""),
        version=str(told.get("version") or ""),
        model=str(value.get("model") or ""),
        replicas=replicas if isinstance(replicas, int) and replicas > 0 else 1,
    )


def _one_of(words: tuple[T, ...], value: object) -> T:
    found = next((each for each in words if each == value), None)
    if found is None:
        raise ValueError(f"{value!r:.40} is none of {words}")
    return found


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _leg(value: Mapping[str, object]) -> Leg:
    """A leg as ``archonctl.probe/1`` has it; null is the empty text."""
    status: LegStatus = _one_of(get_args(LegStatus), value["status"])
    proof, numbers, observed = value.get("proof"), value.get("numbers"), value.get("observed")
    seconds = value.get("seconds")

    def text(name: str) -> str:
        found = value.get(name)
        return found if isinstance(found, str) else ""

    return Leg(
        text("id"),
        status,
        text("message"),
        code=text("code"),
        expected=text("expected"),
        actual=text("actual"),
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        evidence=text("evidence"),
        required=value.get("required") is not False,
        numbers=numbers if isinstance(numbers, dict) else {},
        proof=tuple(_proof(each) for each in proof) if isinstance(proof, list) else (),
        observed=observed if isinstance(observed, dict) else {},
    )


def _proof(value: Mapping[str, object]) -> Proof:
    known = {name: value[name] for name in Proof.__slots__ if value.get(name) is not None}
    return read_back(Proof, {"text": "", **known})


def ledger_from(value: Mapping[str, object]) -> BootLedger:
    """A ledger from ``archonctl.ledger/1``. Raises TypeError, ValueError or KeyError for anything else."""
    figures, remarks, facts = value["figures"], value["remarks"], value.get("facts")
    if not isinstance(figures, dict) or not isinstance(remarks, list):
        raise TypeError("no figures")
    lines, boots = value.get("lines_read"), value.get("boots")
    return BootLedger(
        engine=str(value.get("engine") or ""),
        engine_version=str(value.get("engine_version") or ""),
        figures={name: _reading(each) for name, each in figures.items()},
        remarks=tuple(Remark(r["code"], r["severity"], r["text"], r["line"]) for r in remarks),
        missing=_texts(value.get("missing")),
        lines_read=lines if isinstance(lines, int) else 0,
        facts={str(k): str(v) for k, v in facts.items()} if isinstance(facts, dict) else {},
        boots=boots if isinstance(boots, int) else 1,
    )


def _reading(value: Mapping[str, object]) -> Reading:
    low, best, high = (_number(value[name]) for name in ("low", "value", "high"))
    return Reading(Interval(low, best, high, "log"), int(_number(value["line"])), str(value["text"]))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r:.40} is no number")
    return value


def _unreadable(why: str, where: str) -> UsageError:
    hint = "it may be of a newer archonctl, or damaged"
    return UsageError("verdict-unreadable", f"not a stored verdict: {why}", where=where, hint=hint)
