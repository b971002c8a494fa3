"""The boot log of a start as it was read then: a journal is rotated away, and the engine may run for much longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from archonctl.errors import ArchonError
from archonctl.ledger.values import BootLedger
from archonctl.service.verdict_store import kept, load

LOG_NAME = "the boot log, as it was kept with an earlier verdict on this start"


def kept_boot(folder: Path, release: str, invocation: str) -> BootLedger | None:
    """What the latest stored verdict on this very start read; None where there is none, or it read nothing.

    ``folder`` is the endpoint's, which only root writes (or the user whose endpoint it is).
    """
    for each in kept(folder, release) if invocation else ():
        try:
            stored = load(each.path)
        except ArchonError:
            continue
        if stored.value.get("invocation") == invocation and stored.ledger is not None and stored.ledger.figures:
            return stored.ledger
    return None


def fuller(now: BootLedger, then: BootLedger | None) -> BootLedger | None:
    """The boot as it was read then, with what the log says since; None where the log still tells as much itself."""
    if then is None or len(then.figures) <= len(now.figures):
        return None
    known = {remark.text for remark in then.remarks}
    return replace(then, remarks=(*then.remarks, *(each for each in now.remarks if each.text not in known)))
