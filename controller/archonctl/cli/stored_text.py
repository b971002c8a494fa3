"""Stored verdicts for people and for tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archonctl.cli.output import Output
from archonctl.cli.verdict_text import WORD, leg_text
from archonctl.probe.replay import Replayed
from archonctl.probe.stored import Stored
from archonctl.probe.values import Proof
from archonctl.service.verdict_store import Kept

SCHEMA = "archonctl.verdict/1"


def shown_text(stored: Stored, where: str, out: Output) -> str:
    """The word, each leg, and below it what it rests on."""
    word, colour = WORD[stored.word]
    lines = [f"{out.paint(word, 'bold', colour)}  {stored.endpoint}, {_about(stored)}"]
    lines += [f"  {reason}" for reason in stored.reasons]
    for leg in stored.legs:
        lines.append(leg_text(leg, out))
        lines += [out.paint(f"      {_proof(proof)}", "dim") for proof in leg.proof]
    return "\n".join([*lines, f"stored in {where}"])


def _about(stored: Stored) -> str:
    value = stored.value
    release = str(value.get("release") or "")[:16]
    parts = [f"release {release}" if release else "", f"by {value['by']}" if value.get("by") else "", stored.schema]
    return ", ".join(part for part in parts if part)


def _proof(proof: Proof) -> str:
    place = proof.where
    if proof.kind == "log":
        place += f" line {proof.line}" if proof.line else ""
        place += f", byte {proof.offset_bytes:,}" if proof.offset_bytes is not None else ""
        place += f", cursor {proof.cursor}" if proof.cursor else ""
    elif proof.status is not None:
        place += f" HTTP {proof.status}" + (f", {proof.times} times" if proof.times > 1 else "")
    text = proof.text if len(proof.text) <= 160 else proof.text[:159] + "\N{HORIZONTAL ELLIPSIS}"
    return f"{place}: {text}" if text else place


def shown_json(stored: Stored, where: str) -> dict[str, Any]:
    """Under the published schema, ``docs/schemas/verdict-1.json``."""
    return {"schema": SCHEMA, "action": "show", "file": where, "stored": dict(stored.value)}


def listed_text(name: str, found: Sequence[Kept]) -> str:
    """A line a verdict."""
    if not found:
        return f"{name}: no verdict is stored"
    return "\n".join(f"{each.at}  {each.release:<16}  {each.by:<7} {each.path}" for each in found)


def listed_json(name: str, found: Sequence[Kept]) -> dict[str, Any]:
    """The same as a value."""
    rows = [{"at": e.at, "release": e.release, "by": e.by, "file": str(e.path)} for e in found]
    return {"schema": SCHEMA, "action": "list", "endpoint": name, "verdicts": rows}


def replayed_text(stored: Stored, where: str, found: Replayed, out: Output) -> str:
    """Then and now, and what is judged otherwise."""
    was, now = WORD[found.was], WORD[found.now]
    lines = [f"then {out.paint(was[0], was[1])}, by today's rules {out.paint(now[0], 'bold', now[1])}"]
    if stored.contract is None:
        lines.append(f"  {stored.schema} does not keep the contract: nothing could be judged again")
    lines += [
        f"  {each.what}: {each.was} then, {each.now} now{f': {each.why}' if each.why else ''}" for each in found.changes
    ]
    if found.same and found.again:
        lines.append(f"  nothing is judged otherwise: {', '.join(found.again)}")
    if found.stands:
        lines.append(out.paint(f"  as it was seen, with nothing to judge again: {', '.join(found.stands)}", "dim"))
    return "\n".join([*lines, f"stored in {where}"])


def replayed_json(stored: Stored, where: str, found: Replayed) -> dict[str, Any]:
    """The same as a value."""
    return {
        "schema": SCHEMA,
        "action": "replay",
        "file": where,
        "endpoint": stored.endpoint,
        "was": found.was,
        "now": found.now,
        "same": found.same,
        "reasons": list(found.reasons),
        "changes": [{"what": e.what, "was": e.was, "now": e.now, "why": e.why or None} for e in found.changes],
        "judged_again": list(found.again),
        "stands": list(found.stands),
    }
