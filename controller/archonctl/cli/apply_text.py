"""The change of an endpoint, for people and for tools."""

from __future__ import annotations

from typing import Any

from archonctl.cli.output import Output
from archonctl.service.carry import ApplyResult
from archonctl.service.preview import Preview
from archonctl.service.turn import Attempt

SCHEMA = "archonctl.apply/1"
EXIT = {"checked": 0, "unchanged": 0, "applied": 0, "rolled back": 6, "lost": 7}

_ACTION = {
    "nothing": "nothing to do: it runs, and this start holds",
    "verify": "it runs as declared, and will be asked again; nothing is restarted",
    "start": "nothing runs; it will be started",
    "restart": "the running engine will be stopped, and this release started",
}
_HEAD = {
    "unchanged": ("HOLDS", "green", "unchanged"),
    "applied": ("HOLDS", "green", "applied"),
    "rolled back": ("ROLLED BACK", "yellow", "the release before runs again and holds"),
    "lost": ("LOST", "red", "rolled back, and the release before does not hold either"),
    "failed": ("FAILED", "red", "it does not hold, and there was no way back"),
}


def exit_code(result: ApplyResult) -> int:
    """As in the table of archonctl(1)."""
    if result.outcome != "failed":
        return EXIT[result.outcome]
    return 3 if result.attempts and result.attempts[-1].word == "no evidence" else 1


def preview_text(seen: Preview, out: Output, *, diff: bool) -> str:
    """What would be done."""
    lines = [f"{out.paint(seen.endpoint, 'bold')}: release {seen.old or 'none'} -> {seen.new}"]
    lines.append(f"  {_ACTION[seen.action]}")
    if seen.loss and seen.action == "restart":
        lines.append(f"  stops serving meanwhile: {seen.loss}")
    lines += [f"  {remark}" for remark in seen.remarks]
    for difference in seen.differences if diff else ():
        lines += [_diff_line(line, out) for line in difference.lines]
    if not diff and seen.differences:
        lines.append(f"  differs: {', '.join(each.file for each in seen.differences)} (--diff shows how)")
    lines += [out.paint(f"  not previewed: {'; '.join(seen.not_previewed)}", "dim")] if seen.not_previewed else []
    return "\n".join(lines)


def _diff_line(line: str, out: Output) -> str:
    if line.startswith(("---", "+++", "@@")):
        return out.paint(line, "dim")
    return out.paint(line, "red" if line.startswith("-") else "green") if line[:1] in "+-" else line


def result_text(result: ApplyResult, out: Output) -> str:
    """What was done: the word, and the story of every start that was made."""
    word, colour, means = _HEAD[result.outcome]
    lines = [f"{out.paint(word, 'bold', colour)}  {result.endpoint}: {means}; release {result.release}"]
    for attempt in result.attempts:
        lines += _story(attempt, out)
    lines += [f"  {remark}" for remark in result.remarks]
    return "\n".join(lines)


def _story(attempt: Attempt, out: Output) -> list[str]:
    took = f" after {attempt.seconds:.1f} s" if attempt.seconds >= 0.05 else ""
    lines = [f"  release {attempt.release}: {attempt.word}{took}"]
    lines += [f"    {reason}" for reason in attempt.reasons]
    lines += [out.paint(f"    | {line}", "dim") for line in attempt.tail]
    lines += [out.paint(f"    more: archonctl explain {code}", "dim") for code in attempt.codes]
    return lines


def result_json(result: ApplyResult) -> dict[str, Any]:
    """One change under its published schema, ``archonctl.apply/1``."""
    seen = result.preview
    return {
        "schema": SCHEMA,
        "endpoint": result.endpoint,
        "outcome": result.outcome,
        "release": result.release or None,
        "before": (seen.old or None) if seen else None,
        "action": seen.action if seen else None,
        "attempts": [_attempt(attempt) for attempt in result.attempts],
        "differences": [{"file": d.file, "lines": list(d.lines)} for d in seen.differences] if seen else [],
        "remarks": list(result.remarks or (seen.remarks if seen else ())),
        "not_previewed": list(seen.not_previewed) if seen and result.outcome == "checked" else [],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "release": attempt.release,
        "verdict": attempt.word,
        "reasons": list(attempt.reasons),
        "codes": list(attempt.codes),
        "depth": attempt.depth or None,
        "seconds": round(attempt.seconds, 3),
        "log_tail": list(attempt.tail),
    }
