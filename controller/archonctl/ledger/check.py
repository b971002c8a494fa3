"""Read many boot logs back from a JSONL file: what each line says, and how far a prediction is off.

A case is an object with ``id`` and ``log_lines``; ``engine``, ``engine_version``, ``flags`` and ``model_config`` help
where they are there. Whatever is wrong with a line of the file is reported for that line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from archonctl.errors import UsageError
from archonctl.ledger.grammar import kind_of
from archonctl.ledger.names import Plain, read_names
from archonctl.ledger.predict import Prediction, predict
from archonctl.ledger.quoted import quoted_figures
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.refusal import refusal
from archonctl.ledger.values import BootLedger

CASE_BYTES = 64 << 20
"""Longest line of a case file that is parsed."""
PROBLEM_LIMIT = 1000
"""Problems reported one by one; a file that is no JSONL at all has one on every line."""


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """One case. ``read`` holds the figures of its log lines; ``error`` is (predicted - observed) / observed."""

    id: str
    line_no: int
    engine_detected: str
    engine_version: str
    read: Mapping[str, Plain]
    observed_kv_tokens: int | None
    prediction: Prediction
    refusal: str = ""
    remarks: tuple[str, ...] = ()
    quoted: bool = False
    """True where the figures come from prose about a boot, not from lines of its log."""

    @property
    def error(self) -> float | None:
        """Relative error of the prediction; None where either side is unknown."""
        if self.observed_kv_tokens is None or not self.observed_kv_tokens or self.prediction.kv_tokens is None:
            return None
        return round((self.prediction.kv_tokens - self.observed_kv_tokens) / self.observed_kv_tokens, 6)


@dataclass(frozen=True, slots=True)
class CaseProblem:
    """A line of the case file that could not be checked."""

    line_no: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All cases of a file, and the lines that are no cases."""

    file: str
    cases: tuple[CheckedCase, ...] = ()
    problems: tuple[CaseProblem, ...] = field(default=())


def check_cases(path: str | Path) -> CheckReport:
    """Check every case of a JSONL file. Raises UsageError ``cases-unreadable`` where it cannot be opened."""
    cases: list[CheckedCase] = []
    problems: list[CaseProblem] = []
    try:
        with Path(path).open("rb") as stream:
            for line_no, raw in _lines(stream):
                found = _case(raw, line_no)
                if isinstance(found, CheckedCase):
                    cases.append(found)
                elif found is not None and len(problems) < PROBLEM_LIMIT:
                    problems.append(found)
    except OSError as err:
        raise UsageError("cases-unreadable", f"cannot read {path}: {err.strerror or err}") from err
    return CheckReport(str(path), tuple(cases), tuple(problems))


def _lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Lines with their numbers; None for one that is longer than ``CASE_BYTES``."""
    number = 0
    while raw := stream.readline(CASE_BYTES + 1):
        number += 1
        if len(raw) <= CASE_BYTES:
            yield number, raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(CASE_BYTES + 1)
        yield number, None


def _case(raw: bytes | None, line_no: int) -> CheckedCase | CaseProblem | None:
    if raw is None:
        return CaseProblem(line_no, "case-too-long", f"longer than {CASE_BYTES} bytes")
    text = raw.decode("utf-8", "replace").lstrip("\ufeff").strip()
    if not text:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as err:
        return CaseProblem(line_no, "case-not-json", f"no JSON: {str(err)[:200] or type(err).__name__}")
    if not isinstance(record, dict):
        return CaseProblem(line_no, "case-not-object", f"a JSON {type(record).__name__}, not an object")
    lines = record.get("log_lines")
    if isinstance(lines, str):
        lines = lines.splitlines()
    if not isinstance(lines, list):
        return CaseProblem(line_no, "case-without-lines", "no list under log_lines")
    return check_case(record, [line for line in lines if isinstance(line, str)], line_no)


def check_case(record: Mapping[str, object], log_lines: list[str], line_no: int = 0) -> CheckedCase:
    """Check one case: which engine, what its lines say, and what the laws predict."""
    stated = record.get("engine")
    kind = kind_of(stated) if isinstance(stated, str) else ""
    version = record.get("engine_version")
    auto = _read(log_lines, None, "")
    detected = auto.detected()
    ledger = auto.result()
    if kind and kind != ledger.engine:
        told = _read(log_lines, kind, version if isinstance(version, str) else "").result()
        ledger = told if told.figures or not ledger.figures else ledger
    cause = refusal(ledger)
    name = record.get("id")
    read = read_names(ledger)
    quoted = quoted_figures(log_lines) if kind and not read else {}
    tokens = quoted.get("kv_tokens", _tokens(ledger))
    return CheckedCase(
        id=name if isinstance(name, str) else f"line {line_no}",
        line_no=line_no,
        engine_detected=detected,
        engine_version=ledger.engine_version,
        read=read or quoted,
        observed_kv_tokens=None if tokens is None else int(tokens),
        prediction=predict(record, ledger),
        refusal=cause.code if cause else "",
        remarks=tuple(dict.fromkeys(remark.code for remark in ledger.remarks)),
        quoted=bool(quoted),
    )


def _read(log_lines: list[str], engine: str | None, version: str) -> LedgerReader:
    reader = LedgerReader(engine, version)
    for line in log_lines:
        for part in line.split("\n"):
            reader.feed(part)
    return reader


def _tokens(ledger: BootLedger) -> int | None:
    """What the engine admits by: of SGLang's two pools the full one, though the smaller may be what lasts least."""
    value = ledger.get("max_total_num_tokens") or ledger.get("kv_tokens")
    return None if value is None else int(value.best)
