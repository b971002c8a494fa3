"""argv as text and back: through a real shell, and by systemd's published rules."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from archonctl.errors import DeclarationError
from archonctl.release.quoting import exec_start, shell_words

_WORD = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NASTY = ["", " ", "a b", '"', "'", "\\", "\\n", "$HOME", "${X}", "$$", "%", "%i", "%%", "\n", "\t", ";", "#", "é", "\u2028", "\x01", "~", "*", "-", "\x7f", '{"a": "b c"}']  # fmt: skip  # noqa: E501


@settings(max_examples=50, deadline=None)
@given(st.lists(_WORD, max_size=6))
@example(NASTY)
def test_a_shell_reads_back_the_same_argv(words: list[str]) -> None:
    program = [sys.executable, "-S", "-c", "import json,sys; print(json.dumps(sys.argv[1:]))"]
    script = f"exec {shell_words([*program, *words])}"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True, timeout=30)
    assert json.loads(done.stdout) == words


def unquote(text: str) -> list[str]:
    """systemd.syntax(7): double quotes, C escapes; systemd.unit(5): %% is a percent sign."""
    assert text.startswith(":")
    words, at = [], 1
    while at < len(text):
        assert text[at] == '"'
        word, at = "", at + 1
        while text[at] != '"':
            if text[at] == "\\":
                if text[at + 1] == "x":
                    word, at = word + chr(int(text[at + 2 : at + 4], 16)), at + 4
                    continue
                word, at = word + text[at + 1], at + 2
                continue
            if text[at] == "%":
                assert text[at + 1] == "%"
                at += 1
            word, at = word + text[at], at + 1
        words.append(word)
        at += 1
        assert text[at : at + 1] in ("", " ")
        at += 1
    return words


@given(st.lists(_WORD, min_size=1, max_size=6).filter(lambda words: words[0] != ""))
@example(["/bin/x", *NASTY])
def test_a_unit_reads_back_the_same_argv(words: list[str]) -> None:
    text = exec_start(words)
    assert unquote(text) == words
    assert "\n" not in text


@pytest.mark.parametrize("argv", [[], [""], ["/bin/x", "a\0b"], ["/bin/x", "\udcff"]])
def test_what_no_unit_can_hold_is_refused(argv: list[str]) -> None:
    for write in (exec_start, shell_words):
        with pytest.raises(DeclarationError) as caught:
            write(argv)
        assert caught.value.code == "argument-unrepresentable"
        str(caught.value).encode()
