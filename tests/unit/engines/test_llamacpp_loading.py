"""Whether weights are locked, held or only mapped, from a command line of any build."""

from __future__ import annotations

import pytest

from archonctl.engines.llamacpp.loading import holds_weights, locks_weights


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
