"""What an engine wrote must not command the terminal of whoever reads about it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.cli.harmless import harmless
from archonctl.cli.output import Output, say
from archonctl.errors import ContractBroken
from archonctl.service.notify import Notifier

HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[8mhidden\x9b31m\rover\u202eback"


@pytest.mark.parametrize("colour", [True, False])
def test_an_engines_escapes_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str], *, colour: bool) -> None:
    out = Output(json=False, quiet=False, colour=colour, unicode=True, width=80)
    out.answer(out.paint("holds", "bold", "green") + HOSTILE)
    out.talk(HOSTILE)
    say(HOSTILE)
    out.error(ContractBroken("engine-exited-at-boot", f"its last line: {HOSTILE}"))
    seen = capsys.readouterr()
    text = (seen.out + seen.err).replace("\x1b[1;32m", "").replace("\x1b[0m", "")
    assert not set(text) & set("\x1b\x07\x9b\r\u202e")
    assert r"\x1b[8mhidden\x9b31m\x0dover\u202eback" in text
    assert ("\x1b[1;32mholds\x1b[0m" in seen.out) is colour


@given(st.text())
def test_what_is_harmless_stays_as_it_is(text: str) -> None:
    once = harmless(text)
    assert harmless(once) == once
    if text.isprintable():
        assert once == text


def test_the_status_line_of_a_unit_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def keep(_self: Notifier, text: str, *_given: Any) -> None:
        sent.append(text)

    monkeypatch.setattr(Notifier, "_send", keep)
    Notifier({}).status(HOSTILE)
    assert sent[0].removeprefix("STATUS=").isprintable()
