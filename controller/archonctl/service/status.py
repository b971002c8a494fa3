"""Every installed endpoint in one look."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from archonctl.deployment.load import LoadedEndpoint
from archonctl.errors import ArchonError
from archonctl.service.declared import declared_since
from archonctl.service.history import Record
from archonctl.service.installed import Installed
from archonctl.service.recheck import Recheck
from archonctl.service.unit import UnitState
from archonctl.service.verdicts import written_record

StatusWord = Literal["holds", "broken", "no evidence", "unverified", "down", "half done"]
"""``unverified``: it runs, and this very start was not asked. ``half done``: a change was interrupted."""


@dataclass(frozen=True, slots=True)
class Status:
    """One endpoint. What is unknown is empty or None. ``age_s`` counts from when the unit became active."""

    endpoint: str
    unit: str
    word: StatusWord
    active: str
    release: str
    verdict: str
    verdict_at: float | None
    age_s: float | None
    restarts: int
    seqs: int | None
    len_tokens: int | None
    engine: str
    listen: str
    remark: str = ""
    recheck: Recheck | None = None
    """The timer that verifies it again; None where it was not asked for."""


def last_verdict(installed: Installed, state: UnitState) -> Record | None:
    """The latest verdict on the current release: of the history, or newer, of this start by the unit itself."""
    digest = installed.current()
    recorded = installed.history().last(digest)
    written = written_record(installed, digest, state.invocation)
    if written is None:
        return recorded
    # of one start the later; of another start the history's is older, whatever the clock said then
    if recorded is not None and recorded.invocation == written.invocation and recorded.at >= written.at:
        return recorded
    return replace(written, facts={**recorded.facts, **written.facts}) if recorded else written


def status(installed: Installed, state: UnitState) -> Status:
    """Look at one endpoint. Raises HostRefusal ``state-unreadable``."""
    digest, remark = installed.current(), ""
    seqs = length = None
    engine = listen = ""
    try:
        loaded = installed.stored(digest).loaded
        endpoint, remark = loaded.endpoint, not_applied(loaded)
        seqs, length, listen = endpoint.contract.seqs, endpoint.contract.len, endpoint.service.listen
        engine = f"{endpoint.engine.kind} {endpoint.engine.version}".strip()
    except ArchonError as err:
        remark = err.message
    pending, verdict = installed.pending(), last_verdict(installed, state)
    word = _word(state, verdict)
    if pending is not None:
        word, remark = "half done", f"a change to release {pending.new}: archonctl apply or rollback finishes it"
    up_s = time.monotonic() - state.active_us / 1e6 if state.active_us and state.active == "active" else None
    return Status(
        installed.name,
        installed.unit,
        word,
        state.active,
        digest,
        verdict.verdict if verdict else "",
        verdict.at if verdict else None,
        up_s,
        state.restarts,
        seqs,
        length,
        engine,
        listen,
        remark,
    )


def not_applied(applied: LoadedEndpoint) -> str:
    """A sentence where the declaration says something else than what runs; empty where it does not."""
    try:
        found = declared_since(applied)
    except ArchonError as err:
        return f"its declaration cannot be applied: {err.message}"
    if not found:
        return ""
    keys = ", ".join(key for key, _was, _now in found[:3]) + (" ..." if found[3:] else "")
    return f"{applied.path} declares something else than what runs ({keys}): an apply would take it"


def engine_kinds(endpoints: Iterable[Installed]) -> dict[str, str]:
    """The kind of each endpoint's engine by its name; those without a readable release are left out."""
    found: dict[str, str] = {}
    for each in endpoints:
        with contextlib.suppress(ArchonError):
            found[each.name] = each.stored(each.current()).loaded.endpoint.engine.kind
    return found


def _word(state: UnitState, verdict: Record | None) -> StatusWord:
    if state.active != "active":
        return "down"
    if verdict is None or verdict.invocation != state.invocation:
        return "unverified"
    return "holds" if verdict.held else "broken" if verdict.verdict == "broken" else "no evidence"
