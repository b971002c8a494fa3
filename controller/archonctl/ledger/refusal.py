"""Why a boot failed, in one remark."""

from __future__ import annotations

from collections.abc import Iterable

from archonctl.ledger.values import BootLedger, Remark

GENERIC = frozenset({"engine-start-failed", "engine-crashed"})
"""Codes that say that it failed, not why; they stand in only where nothing better was said."""


def refusal(ledger: BootLedger) -> Remark | None:
    """The remark that names why this boot failed; None where the log shows no refusal.

    Engines print the cause first and its consequences after it, so the first specific refusal is the cause. A refusal
    that was overcome (an allocation that succeeded on the second try) is no refusal any more.
    """
    return cause(ledger.remarks)


def cause(remarks: Iterable[Remark]) -> Remark | None:
    """The one of these remarks, in the order of the log, that names why a boot failed. See ``refusal``."""
    refusals = [remark for remark in remarks if remark.severity == "refusal"]
    specific = [remark for remark in refusals if remark.code not in GENERIC]
    return next(iter(specific or refusals), None)
