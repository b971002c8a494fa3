"""Reading a log in the making never blocks, never grows, never loses a whole line it has room for."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from archonctl.service.guard import bound_log
from archonctl.service.logtail import FileTail, LineSplitter


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, cuts: list[int]) -> None:
    whole, pieces = LineSplitter(), LineSplitter()
    places = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    got = [line for a, b in itertools.pairwise(places) for line in pieces.feed(data[a:b])]
    assert got == whole.feed(data)
    assert pieces.rest() == whole.rest()


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20))
def test_an_overlong_line_gives_its_beginning_once(chunks: list[bytes]) -> None:
    split = LineSplitter(limit=16)
    lines = [line for chunk in chunks for line in split.feed(chunk)]
    assert all(len(line) <= 16 for line in lines)
    assert len(split.pending) <= 16


def test_an_endless_line_is_cut_and_the_next_one_is_whole() -> None:
    split = LineSplitter(limit=8)
    assert split.feed(b"x" * 20) == ["x" * 8]
    assert split.feed(b"x" * 1000) == []
    assert split.feed(b"x\nnext\n") == ["next"]


def test_progress_bars_and_strange_bytes_are_lines() -> None:
    assert LineSplitter().feed(b"10%\r20%\r\n\n\xff\xfe\x00ok\n") == ["10%", "20%", "\ufffd\ufffd\x00ok"]


def test_lines_come_once_they_are_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = FileTail(log)
    assert tail.read() == []
    log.write_bytes(b"one\ntw")
    assert (tail.read(), tail.rest()) == (["one"], "tw")
    log.write_bytes(b"one\ntwo\n")
    assert (tail.read(), tail.rest()) == (["two"], "")
    assert tail.seen_bytes == 8


def test_a_backlog_is_skipped_and_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"word word\n" * 500_000)
    tail = FileTail(log, backlog=1 << 21)
    lines = tail.read()
    assert 100_000 < len(lines) < 105_000
    assert tail.skipped_bytes == 5_000_000 - (1 << 20)


def test_skip_to_end_gives_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"word word\n" * 500_000 + b"last\n")
    tail = FileTail(log)
    tail.skip_to_end()
    assert tail.read()[-1] == "last"


def test_a_cut_log_is_read_on_from_the_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = FileTail(log)
    log.write_bytes(b"head\n" * 100)
    while tail.read():
        pass
    with log.open("ab+", buffering=0) as file:
        file.write(b"middle\n" * 1000)
        while tail.read():
            pass
        assert bound_log(file.fileno(), str(log), 1000, 502)
        assert log.read_bytes() == b"head\n" * 100
        tail.read()
        file.write(b"after\n")
    assert tail.read() == ["after"]
    assert (tmp_path / "log.1").read_bytes().endswith(b"middle\n")


def test_a_small_log_is_not_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb+", buffering=0) as file:
        file.write(b"x" * 1000)
        assert not bound_log(file.fileno(), str(log), 1000, 500)


def test_a_log_without_newlines_is_cut_at_the_head(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb+", buffering=0) as file:
        file.write(b"x" * 200_000)
        assert bound_log(file.fileno(), str(log), 100_000, 50_000)
    assert log.stat().st_size == 50_000
