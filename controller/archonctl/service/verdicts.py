"""The verdict that a unit's own start wrote down (``archonctl verify``), believed only for that very start."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from archonctl.probe.values import Depth
from archonctl.release.disk import open_unlinked
from archonctl.release.store import DIGEST_CHARS
from archonctl.service.history import VERIFIED, Record
from archonctl.service.installed import Installed
from archonctl.service.place import Place
from archonctl.service.turn import AttemptWord, Judged

_DEPTHS: tuple[Depth, ...] = ("ledger", "admission", "full")
_WORDS: tuple[AttemptWord, ...] = ("holds", "broken", "no evidence")
_LIMIT_BYTES = 8 << 20


def written_verdict(installed: Installed, digest: str, invocation: str, depth: Depth) -> Judged | None:
    """The verdict on this start of this release, if it looked as deep as is wanted (or does not hold)."""
    value = _written(installed.where, installed.name, digest, invocation)
    word = _word(value)
    if word is None:
        return None
    judged = judged_of(word, value)
    if word == "holds" and (judged.depth not in _DEPTHS or _DEPTHS.index(judged.depth) < _DEPTHS.index(depth)):
        return None
    return judged


def written_record(installed: Installed, digest: str, invocation: str) -> Record | None:
    """The same as an event of the history."""
    value = _written(installed.where, installed.name, digest, invocation)
    word, at, boot = _word(value), value.get("at"), value.get("boot_id")
    if word is None or not isinstance(at, int | float):
        return None
    judged = judged_of(word, value)
    facts = {"boot_id": boot} if isinstance(boot, str) and boot else {}
    return Record(VERIFIED, digest, float(at), word, reasons=judged.reasons, invocation=invocation, facts=facts)


def judged_of(word: AttemptWord, value: Mapping[str, object]) -> Judged:
    """A verdict's value (``archonctl.verify/1``) as what a start needs of it."""
    reasons, probe = value.get("reasons"), value.get("probe")
    legs = probe.get("legs") if isinstance(probe, dict) else None
    codes = [str(value["code"])] if value.get("code") else []
    if isinstance(legs, list):
        codes += [str(leg["code"]) for leg in legs if isinstance(leg, dict) and leg.get("status") == "fail"]
    texts = tuple(map(str, reasons)) if isinstance(reasons, list) else ()
    return Judged(word, texts, tuple(dict.fromkeys(code for code in codes if code)), str(value.get("depth") or ""))


def _word(value: Mapping[str, object]) -> AttemptWord | None:
    return next((each for each in _WORDS if each == value.get("verdict")), None)


def _written(where: Place, name: str, digest: str, invocation: str) -> Mapping[str, object]:
    """What lies there; empty if it is of another start, of another release, or of somebody who does not judge here."""
    path, owner = where.verdict(name), os.getuid() if where.user else 0
    try:
        handle = open_unlinked(path)
        with os.fdopen(handle, "rb") as file:
            value = json.loads(file.read(_LIMIT_BYTES)) if os.fstat(handle).st_uid == owner else None
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(value, dict) or not invocation or value.get("invocation") != invocation:
        return {}
    return value if digest and str(value.get("release", ""))[:DIGEST_CHARS] == digest else {}
