"""Where a line of a boot log lies: its byte offset in a file, or its cursor in the journal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from archonctl.redact import without_secrets
from archonctl.service.journal import journal_command
from archonctl.service.process import LOG_HEAD_BYTES

Json = dict[str, object]
_LONGEST = 200_000
"""Lines of a journal that are gone through, at most."""
_LIKE = 40
"""Characters by which a line is known again; what precedes them may have been cleaned away."""


def locate_in_file(probe: Mapping[str, object], log: Path) -> Json:
    """The probe's value with ``offset_bytes`` and the file's name in the proofs that quote it."""
    try:
        with log.open("rb") as file:
            lines = file.read(LOG_HEAD_BYTES).split(b"\n")
    except OSError:
        return dict(probe)
    offsets, at = [], 0
    for line in lines:
        offsets.append(at)
        at += len(line) + 1

    def place(proof: Json) -> Json:
        number = proof["line"]
        if not isinstance(number, int) or not 0 < number <= len(lines):
            return {"where": str(log)}
        text = lines[number - 1].decode("utf-8", "replace")
        found = _is_like(text, str(proof["text"] or ""))
        return {"where": str(log), "offset_bytes": offsets[number - 1] if found else None}

    return _placed(probe, place)


def locate_in_journal(probe: Mapping[str, object], unit: str, invocation: str, *, user: bool = False) -> Json:
    """The probe's value with the journal's cursors in the proofs that quote a line of this start."""
    wanted = {proof["line"] for proof in _log_proofs(probe) if isinstance(proof["line"], int)}
    cursors = _cursors(unit, invocation, max(wanted, default=0), user=user) if wanted else {}
    return _placed(probe, lambda proof: {"where": unit, "cursor": cursors.get(_number(proof["line"]))})


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _cursors(unit: str, invocation: str, last: int, *, user: bool) -> dict[int, str]:
    """Line number -> cursor of the entry that it lies in; an entry may hold several lines."""
    command = [word.replace("--output=cat", "--output=json") for word in journal_command(unit, invocation, user=user)]
    found: dict[int, str] = {}
    number = 0
    try:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as journal:
            assert journal.stdout is not None
            while number < min(last, _LONGEST) and (line := journal.stdout.readline(LOG_HEAD_BYTES)):
                entry = json.loads(line)
                text, cursor = _message(entry.get("MESSAGE")), str(entry.get("__CURSOR") or "")
                for _ in text.split("\n"):
                    number += 1
                    found[number] = cursor
            journal.terminate()
    except (OSError, ValueError):
        return found
    return found


def _message(value: object) -> str:
    """journald gives what is no UTF-8 as a list of bytes."""
    if isinstance(value, list):
        return bytes(each for each in value if isinstance(each, int) and 0 <= each < 256).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _is_like(line: str, text: str) -> bool:
    tail = text.strip()[:_LIKE]
    return bool(tail) and (tail in line or tail in without_secrets(line[:1600]))


def _log_proofs(probe: Mapping[str, object]) -> Iterable[Json]:
    legs = probe.get("legs")
    for leg in legs if isinstance(legs, list) else []:
        for proof in leg.get("proof") or []:
            if proof.get("kind") == "log":
                yield proof


def _placed(probe: Mapping[str, object], place: Callable[[Json], Json]) -> Json:
    """A copy of the value in which every proof from the log got what ``place`` says of it."""
    copy: Json = json.loads(json.dumps(probe))
    for proof in _log_proofs(copy):
        proof.update(place(proof))
    return copy
