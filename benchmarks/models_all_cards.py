"""How long the whole catalogue takes on every card.

usage: .venv/bin/python benchmarks/models_all_cards.py

Printed: seconds of processor and wall time for loading the catalogue and for all verdicts, the first time (laws are
asked) and again (their answers are kept for the life of the process).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from archonctl.catalogue import load_catalogue
from archonctl.fit.cards import every_card
from archonctl.fit.everything import verdicts
from archonctl.fit.values import Ask


def timed(name: str, work: Callable[[], object]) -> object:
    """The result, after a line with both times."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = work()
    print(f"{name:<24} {time.process_time() - cpu:7.3f} s CPU {time.perf_counter() - wall:7.3f} s")
    return result


def main() -> None:
    """Load, list, judge twice."""
    timed("load the catalogue", load_catalogue)
    catalogue, cards = load_catalogue(), every_card()
    print(f"{len(catalogue.models)} models x {len(cards)} cards")
    timed("all verdicts", lambda: verdicts(catalogue.models, cards, Ask()))
    timed("all verdicts again", lambda: verdicts(catalogue.models, cards, Ask()))


if __name__ == "__main__":
    main()
