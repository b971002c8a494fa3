"""What the preflight script said, read back: its lines, and the verdict file that it leaves for the start script."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Outcome = Literal["ok", "refused", "unfinished"]
RefusalClass = Literal["final", "passing", "either"]

_PREFIX = "ttm-preflight: "
_REFUSAL = re.compile(r"refused: ([a-z][a-z0-9-]*): (.*)")
_LAST = re.compile(r"(?P<ok>ok (?P<name>[A-Za-z0-9._-]+))|refused [A-Za-z0-9._ -]+: [a-z0-9, -]+")
_VERDICT = re.compile(r"(?:ok|refused) ([0-9a-f]{1,64}|-)(?: [a-z0-9-]+ (final|passing))?")


@dataclass(frozen=True, slots=True)
class PreflightRefusal:
    """One refusal: its code, and the sentence with have, need and margin."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """One run. ``unfinished``: it ended without a last word, so it proves nothing."""

    outcome: Outcome
    refusals: tuple[PreflightRefusal, ...]
    said: tuple[str, ...]
    """Every other line, without the script's name."""


@dataclass(frozen=True, slots=True)
class PreflightVerdict:
    """A verdict file. ``invocation`` is systemd's INVOCATION_ID of that start, ``-`` outside of a unit.

    ``passing``: the refusal may be gone at the next start.
    """

    invocation: str
    passing: bool
    report: PreflightReport


def read_report(text: str) -> PreflightReport:
    """The script's output as a value. Lines that are not its own are passed over."""
    own = [line.removeprefix(_PREFIX) for line in text.splitlines() if line.startswith(_PREFIX)]
    refusals = tuple(PreflightRefusal(found[1], found[2]) for line in own if (found := _REFUSAL.fullmatch(line)))
    last = _LAST.fullmatch(own[-1]) if own else None
    # "ok: CHECK: ..." is a check that passed; "ok NAME" is the end
    outcome: Outcome = "refused" if refusals else "ok" if last is not None and last["ok"] else "unfinished"
    return PreflightReport(outcome, refusals, tuple(line for line in own if not _REFUSAL.fullmatch(line)))


def read_verdict(text: str) -> PreflightVerdict | None:
    """A verdict file; None if it is none, or was written for something else."""
    first, _, rest = text.partition("\n")
    found = _VERDICT.fullmatch(first)
    if found is None:
        return None
    report = read_report(rest)
    if (report.outcome == "ok") != first.startswith("ok "):
        return None
    return PreflightVerdict(found[1], found[2] == "passing", report)


@cache
def refusal_classes() -> dict[str, RefusalClass]:
    """Every code of the script, and whether another start may help (``preflight_codes.toml``)."""
    rows = tomllib.loads(Path(__file__).with_name("preflight_codes.toml").read_text(encoding="utf-8"))["refusal"]
    return {row["code"]: row["class"] for row in rows}
