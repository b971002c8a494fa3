"""The record of an endpoint is bounded, and whole after a power cut at any byte or a kill at any change of the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archonctl.service.history import FOLDED, LIMIT_BYTES, Record, read_history, record
from support.kills import CHANGES, Counter, killed_at

FOLD = 6000


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: hundreds of files, each with its fsyncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as found:
        yield Path(found)


def event(number: int, release: str = "") -> Record:
    word = ("holds", "broken", "")[number % 3]
    return Record(("applied", "failed", "stopped")[number % 3], release or f"{number % 5:016x}", 1000.0 + number, word)


def filled(path: Path, count: int, fold_bytes: int = 10**9) -> Path:
    for number in range(count):
        record(path, event(number), fold_bytes)
    return path


def seen(path: Path) -> int:
    """How many events the file accounts for, folded or not."""
    history = read_history(path)
    folded = [int(each.facts["events"]) for each in history.records if each.event == FOLDED]
    return sum(folded) + len(history.records) - len(folded)


def test_a_long_record_is_folded_and_still_accounts_for_every_event(folder: Path) -> None:
    path = filled(folder / "h", 200, FOLD)
    history = read_history(path)
    assert path.stat().st_size < FOLD + 1000
    first = history.records[0]
    assert (first.event, seen(path), history.unreadable) == (FOLDED, 200, 0)
    assert first.facts["first_at"] == 1000
    assert first.facts["verdict holds"] + sum(each.held for each in history.records) == 67
    times = [each.at for each in history.records[1:]]
    assert times == sorted(times)
    assert not list(folder.glob(".h*"))


def test_what_decides_about_a_release_stays_for_rollback(folder: Path) -> None:
    path = folder / "h"
    facts = {"cmdline": "wrapper\0engine"}
    record(path, Record("applied", "a" * 16, 1.0, "holds", facts=facts), FOLD)
    record(path, Record("verified", "a" * 16, 2.0, "broken"), FOLD)
    record(path, Record("applied", "b" * 16, 3.0, "holds"), FOLD)
    before = read_history(path).held()
    for number in range(300):
        record(path, event(number, "c" * 16), FOLD)
    history = read_history(path)
    assert [name for name in history.held() if name != "c" * 16] == before == ["b" * 16]
    last = history.last("a" * 16)
    assert last is not None
    assert last.verdict == "broken"
    assert any(each.facts == facts for each in history.records)


def test_many_releases_do_not_keep_it_from_being_bounded(folder: Path) -> None:
    path = folder / "h"
    lines = [Record("applied", f"{number:016x}", float(number), "holds") for number in range(1500)]
    for each in lines:
        record(path, each, 10**9)
    record(path, lines[0], 100_000)
    assert path.stat().st_size < 100_000 + 512 * 500
    assert seen(path) == 1501


def test_a_file_beyond_what_is_read_says_what_was_passed_over_and_is_mended_by_the_next_event(folder: Path) -> None:
    path = filled(folder / "h", 3)
    path.write_bytes(b"#" * LIMIT_BYTES + b"\n" + path.read_bytes())
    history = read_history(path)
    assert (len(history.records), history.passed_over_bytes > 0) == (3, True)
    record(path, event(3))
    history = read_history(path)
    assert (len(history.records), history.unreadable, history.passed_over_bytes) == (5, 0, 0)
    assert history.records[0].facts["unreadable"] == 1


def test_a_power_cut_at_any_byte_leaves_every_whole_line_and_takes_the_next(folder: Path) -> None:
    whole = filled(folder / "h", 60, FOLD).read_bytes()[-1500:]
    whole = whole[whole.index(b"\n") + 1 :]
    for length in range(len(whole)):
        cut = folder / "cut"
        cut.write_bytes(whole[:length])
        lines = whole[:length].count(b"\n")
        # a line that lost nothing but its line break is whole
        complete = lines + (length < len(whole) and whole[length : length + 1] == b"\n")
        history = read_history(cut)
        assert len(history.records) == complete, length
        record(cut, event(1))
        again = read_history(cut)
        assert len(again.records) == complete + 1, length
        assert again.unreadable == history.unreadable <= 1, length


def test_a_kill_at_any_change_of_the_disk_loses_no_event_that_was_written(folder: Path) -> None:
    start = filled(folder / "start", 40)
    size = start.stat().st_size
    number = 1
    while True:
        place = folder / str(number)
        place.mkdir()
        path = Path(shutil.copy(start, place / "h"))

        def work(_counter: Counter, path: Path = path) -> None:
            record(path, event(40), size)

        killed = killed_at(number, work)
        assert seen(path) in ((40, 41) if killed else (41,)), number
        assert read_history(path).unreadable == 0
        record(path, event(41), size)  # whatever was left behind is in nobody's way
        assert path.stat().st_size < size
        assert read_history(path).records[-1].at == 1041.0
        assert not list(place.glob(".h*"))
        if not killed:
            break
        number += 1
    assert number > 6
    assert {"write", "fsync", "replace"} <= set(CHANGES)


def test_writers_that_wait_while_it_is_folded_lose_nothing(folder: Path) -> None:
    path = folder / "h"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: record(path, event(number), 2000), range(200)))
    assert seen(path) == 200
