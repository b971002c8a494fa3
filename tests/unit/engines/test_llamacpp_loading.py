"""Whether weights are locked, held or only mapped, from a command line of any build."""

from __future__ import annotations

from typing import Any

import pytest

from archonctl.engines.llamacpp.declared import DeclaredKnobs
from archonctl.engines.llamacpp.loading import as_loaded, holds_weights, locks_weights
from archonctl.memory.demand import Demand


@pytest.mark.parametrize(
    ("words", "locked", "held"),
    [
        ((), False, False),
        (("--mlock",), True, True),
        (("--no-mmap",), False, True),
        (("--load-mode", "mlock"), True, True),
        (("-lm", "mmap+mlock"), True, True),
        (("--load_mode", "none"), False, True),
        (("--load-mode", "dio"), False, True),
        (("--load-mode", "mmap"), False, False),
        (("--load-mode", "auto"), False, False),
        (("--load-mode", "mlock", "--load-mode", "mmap"), False, False),
        (("--load-mode",), False, False),
    ],
)
def test_the_last_word_on_loading_decides(words: tuple[str, ...], locked: bool, held: bool) -> None:
    assert (locks_weights(words), holds_weights(words)) == (locked, held)


@pytest.mark.parametrize(
    ("knobs", "pinned", "said"),
    [
        ({}, False, "mapped"),
        ({"mlock": True}, True, "locked"),
        ({"no-mmap": True}, False, "read into RAM"),
        ({"load-mode": "mmap+mlock"}, True, "locked"),
        ({"load-mode": "dio"}, False, "read into RAM"),
    ],
    ids=str,
)
def test_weights_in_ram_are_pinned_only_where_they_are_locked(knobs: dict[str, Any], pinned: bool, said: str) -> None:
    asked = [Demand("weights", "host", "", 5), Demand("kv_cache", "host", "", 5), Demand("weights", "device", "", 5)]
    weights, *others = as_loaded(asked, DeclaredKnobs(knobs))
    assert (weights.pinned, said in weights.detail) == (pinned, True)
    assert others == asked[1:]
