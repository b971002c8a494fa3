"""The screen of ``archonctl watch`` as a pure function of what is known and of the window."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from archonctl.cli.harmless import harmless
from archonctl.cli.output import Output
from archonctl.cli.watch_bars import plain
from archonctl.cli.watch_screen import keys_of
from archonctl.cli.watch_text import View, frame, moved, natural_height, painted, share, text_of
from archonctl.observe.watch import Note, Snapshot
from support.watched import ARCHON, AT, CASES, golden

FOLDER = Path(__file__).parents[2] / "golden" / "watch"
VIEW = View("host", zone=UTC)


@pytest.mark.parametrize("name", CASES)
def test_every_frame_is_the_one_that_was_looked_at(name: str) -> None:
    assert golden(name) == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


@given(
    st.sampled_from(sorted(CASES)),
    st.integers(1, 200),
    st.integers(1, 70),
    st.booleans(),
    st.lists(st.text(max_size=200), max_size=12),
)
def test_no_window_and_no_words_break_the_frame(
    name: str, width: int, height: int, unicode: bool, words: list[str]
) -> None:
    notes = tuple(
        Note(AT - n * 9_000, "" if n % 2 else "archon", "bad", text, "code-x") for n, text in enumerate(words)
    )
    seen = replace(CASES[name], notes=notes)
    lines = frame(seen, replace(VIEW, unicode=unicode), width, height)
    assert len(lines) == height
    for line in lines:
        text = plain(line)
        assert cell_len(text) <= width
        assert harmless(text) == text
        assert unicode or text.isascii()


@given(st.integers(0, 80), st.integers(1, 9), st.integers(0, 60), st.integers(0, 200))
def test_lines_are_shared_out_and_never_more_than_there_are(room: int, places: int, endpoints: int, notes: int) -> None:
    parts = share(room, places, endpoints, notes)
    assert sum(parts) <= room
    assert all(part >= 0 for part in parts)


def test_a_look_without_a_screen_shows_every_endpoint() -> None:
    seen = CASES["twenty"]
    text = text_of(frame(seen, replace(VIEW, keys=False), 100, natural_height(seen)))
    assert all(each.name in text for each in seen.endpoints)
    assert "quit" not in text


def test_the_chosen_endpoint_is_in_sight_wherever_it_is() -> None:
    view, seen = VIEW, CASES["twenty"]
    found = []
    for _ in range(20):
        lines = text_of(frame(seen, view, 80, 24)).splitlines()
        found.append(next(line.split()[1] for line in lines if line.startswith("▸")))
        view = moved(view, seen, "down")
    assert len(set(found)) == 20
    assert moved(view, seen, "down") == view
    assert moved(view, seen, "first").chosen == found[0]
    assert moved(moved(view, seen, "page up"), seen, "page down") == view
    assert moved(VIEW, CASES["none"], "down") == VIEW


def test_an_endpoint_that_is_gone_is_no_longer_chosen() -> None:
    seen = Snapshot(AT, True, (), (ARCHON,))
    assert "▸ archon" in text_of(frame(seen, replace(VIEW, chosen="gone"), 80, 24))


def test_colour_is_there_only_where_it_is_wanted() -> None:
    line = frame(CASES["broken"], VIEW, 80, 24)[3]
    plain_out = Output(json=False, quiet=False, colour=False, unicode=True, width=80)
    assert "\x1b" not in painted(line, plain_out)
    assert "\x1b[" in painted(line, replace(plain_out, colour=True))


@pytest.mark.parametrize(
    ("raw", "keys", "rest"),
    [
        (b"q", ["quit"], b""),
        (b"jk\x1b[A\x1bOB", ["down", "up", "up", "down"], b""),
        (b"\x1b[5~\x1b[6~G\x0c", ["page up", "page down", "last", "redraw"], b""),
        (b"\x1b[", [], b"\x1b["),
        (b"\x1b[1", [], b"\x1b[1"),
        (b"x\x1b[99mzq", ["quit"], b""),
        (b"\xff\x00", [], b""),
    ],
)
def test_keys_come_whole_or_wait_for_the_rest(raw: bytes, keys: list[str], rest: bytes) -> None:
    assert keys_of(raw) == (keys, rest)
