"""How a llama-server command line loads the weights: locked in RAM, read into it, or mapped.

Sources: llama.cpp b10878 and before: ``--mlock``, ``--no-mmap``; from b10105 ``--load-mode`` (common/arg.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from archonctl.engines.llamacpp.declared import DeclaredKnobs
from archonctl.memory.demand import Demand

_MODE_NAMES = ("-lm", "--load-mode")
_LOCKED = frozenset({"mlock", "mmap+mlock"})
_READ = frozenset({"none", "mlock", "dio"})


def locks_weights(words: Sequence[str]) -> bool:
    """True if the weights are locked: the memlock limit of the process has to allow that."""
    return "--mlock" in words or _mode(words) in _LOCKED


def holds_weights(words: Sequence[str]) -> bool:
    """True if the weights are the process's own memory, which the kernel cannot drop like a mapped file."""
    return "--no-mmap" in words or locks_weights(words) or _mode(words) in _READ


def _mode(words: Sequence[str]) -> str:
    """The last one wins, as in its parser."""
    given = [value for name, value in pairwise(words) if name.replace("_", "-") in _MODE_NAMES]
    return given[-1] if given else ""


def as_loaded(demands: Iterable[Demand], knobs: DeclaredKnobs) -> list[Demand]:
    """The demands with what becomes of weights in RAM: locked (pinned), the process's own, or mapped from the file.

    Raises DeclarationError ``knob-bad-value`` for a switch that is none.
    """
    mode = knobs.text("load-mode").strip()
    locked = knobs.switch("mlock", False) or mode in _LOCKED
    own = knobs.switch("no-mmap", False) or not knobs.switch("mmap", True) or mode in _READ
    how = "locked in RAM" if locked else "read into RAM" if own else "mapped: the kernel may drop and read them again"
    return [
        replace(demand, detail=f"{demand.detail}, {how}", pinned=locked, droppable=not (locked or own))
        if demand.scope == "host" and demand.cls == "weights"
        else demand
        for demand in demands
    ]
