"""How long a run may take by its own word: the bounds that the program states, and what it reports of its time.

No clock of a test is read here. A leg says how many seconds it took, and ``Limits`` says how many it may; a boot says
how many it took, and ``service.load_timeout_s`` how many it may.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archonctl.probe.limits import Limits
from archonctl.probe.values import Verdict

BUSY_S = 60.0
"""More that a machine may take which does much else: what hangs takes longer than any of this."""
TRIES = 3
"""Requests of one leg that may each run into its bound: the question, once more, and what the question needs."""


def bound_s(leg: str, limits: Limits) -> float:
    """The longest that a leg may take."""
    if leg in ("ledger", "identity"):
        return limits.read_s  # nothing is asked of the engine
    if leg in ("generation", "auth-closed"):
        return limits.connect_s + TRIES * limits.generation_s
    if leg in ("capacity", "refusal", "interference", "recall", "prefill"):
        return limits.idle_s + 2 * limits.calibrate_s + limits.hang_s + limits.cap_s
    return limits.connect_s + TRIES * limits.read_s


def in_time(verdict: Verdict, limits: Limits) -> None:
    """Every leg says that it took no longer than it may, and the run no less than its legs together."""
    for leg in verdict.legs:
        assert 0 <= leg.seconds <= bound_s(leg.id, limits) + BUSY_S, f"{leg.id} took {leg.seconds} s"
    assert sum(leg.seconds for leg in verdict.legs) <= float(verdict.facts["seconds"]) + 0.01


def boot_in_time(answer: Mapping[str, Any], load_timeout_s: float) -> None:
    """The answer of ``archonctl up --json``: the boot, or its failure, took no longer than was declared."""
    if answer["schema"] == "archonctl.error/1":
        took = float(answer["error"]["seconds"])
        patience_s = load_timeout_s + BUSY_S
    else:
        took, patience_s = float(answer["boot_seconds"]), load_timeout_s
        for leg in answer["probe"]["legs"]:
            assert 0 <= leg["seconds"] <= bound_s(leg["id"], Limits()) + BUSY_S
    assert 0 <= took <= patience_s, f"the boot took {took} s of {load_timeout_s} s"
