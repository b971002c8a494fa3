"""What a check says, and what a check is, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from archonctl.doctor.bounded import NoAnswer
from archonctl.errors import ArchonError
from archonctl.findings import Finding

Status = Literal["pass", "warn", "fail", "skip"]
Per = Literal["machine", "endpoint"]


@dataclass(frozen=True, slots=True)
class Result:
    """One answer of one check.

    ``code`` names a runbook page and is there for "fail" and "warn". ``unseen`` tells the two kinds of "skip" apart:
    True where something could not be looked at, False where the check does not apply.
    """

    status: Status
    message: str
    code: str = ""
    fix: str = ""
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A row of ``checks.toml``. ``needs`` names the facts that are gathered before; ``codes`` what it may say."""

    id: str
    title: str
    group: str
    per: Per
    looks_at: str
    needs: tuple[str, ...]
    codes: tuple[str, ...]
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Line:
    """One result with the check that gave it; ``endpoint`` is empty for what concerns the whole machine."""

    check: Check
    endpoint: str
    result: Result


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was found, in the order of the table."""

    machine: str
    """The host's name; empty where it is not known."""
    lines: tuple[Line, ...]
    endpoints: tuple[str, ...]
    strict: bool = False

    def count(self, status: Status) -> int:
        """How many results have this status."""
        return sum(line.result.status == status for line in self.lines)

    @property
    def unseen(self) -> int:
        """How many were skipped because something could not be looked at."""
        return sum(line.result.unseen for line in self.lines)

    @property
    def exit_code(self) -> int:
        """1 if a check failed (strict: or warns); 3 if nothing passed (strict: or something was not seen); else 0."""
        if self.count("fail") or (self.strict and self.count("warn")):
            return 1
        is_evidence = bool(self.count("pass") or self.count("warn"))
        return 0 if is_evidence and not (self.strict and self.unseen) else 3


def passed(message: str) -> Result:
    """What was looked at is as it should be."""
    return Result("pass", message)


def failed(code: str, message: str, fix: str = "") -> Result:
    """An endpoint cannot keep its promise, or cannot start."""
    return Result("fail", message, code, fix)


def warned(code: str, message: str, fix: str = "") -> Result:
    """It works, or may work, and will surprise."""
    return Result("warn", message, code, fix)


def skipped(message: str) -> Result:
    """The check does not apply here."""
    return Result("skip", message)


def unseen(message: str, fix: str = "") -> Result:
    """The check applies, and what it needs could not be looked at."""
    return Result("skip", message, fix=fix, unseen=True)


def of_finding(finding: Finding) -> Result:
    """An error fails, a warning warns, a note is not judged."""
    where = f"{finding.place}: " if str(finding.place) else ""
    if finding.severity == "note":
        return unseen(f"{where}{finding.message}", finding.fix)
    status: Status = "fail" if finding.severity == "error" else "warn"
    return Result(status, f"{where}{finding.message}", finding.code, finding.fix)


CLOSED = frozenset({"declaration-unreadable", "model-unreadable"})
"""Refusals that may only mean that who asks is not who it is for."""


def of_error(err: ArchonError, *, theirs: bool = False) -> Result:
    """A refusal of another room, in its own words. ``theirs``: another account's file, and root is not asking."""
    where = f"{err.where}: " if err.where else ""
    if theirs and err.code in CLOSED:
        return unseen(f"{where}{err.message}; needs root", "sudo archonctl doctor")
    return Result("fail", f"{where}{err.message}", err.code, err.hint)


def unanswered(answer: object) -> Result:
    """What is said for a piece of work that gave no answer: hanging is a finding, falling over a defect of ours."""
    why = answer.why if isinstance(answer, NoAnswer) else "no answer"
    if isinstance(answer, NoAnswer) and answer.late:
        fix = "ps -eo pid,stat,wchan:30,cmd | grep ' D' shows what waits in the kernel: a disk, a share, a driver"
        return failed("check-unanswered", why, fix)
    return failed("internal-fault", why, "a defect of archonctl: please report it")
