"""What ``archonctl watch`` makes of the looks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from archonctl.observe.values import Sample, one_hot, sample
from archonctl.observe.watch import Planned, Snapshot, changes, snapshot
from archonctl.observe.watch_live import Watcher
from archonctl.service.unit import UnitState
from support.simd import Simd, do_apply, machine
from support.watched import ARCHON, AT

STATES = ("active", "inactive", "failed")


def of(samples: list[Sample], *names: str) -> Snapshot:
    return snapshot(samples, names=names, at=AT, looked=True)


def plan(name: str, card: str = "") -> list[Sample]:
    return [
        sample("archon_plan_bytes", name, "weights", "device", card, "q8", value=10),
        sample("archon_plan_bytes", name, "weights", "device", card, "f16", value=1),
        sample("archon_plan_bytes", name, "kv_cache", "host", "", "f16", value=7),
        sample("archon_plan_want_bytes", name, "device", "1", value=11),
    ]


def test_what_is_not_seen_is_unknown_and_never_zero() -> None:
    (found,) = of([], "a").endpoints
    known = {name for name in ("verdict", "unit", "release", "engine", "version") if getattr(found, name)}
    assert known == set()
    assert [found.live_tokens, found.kv_usage, found.running, found.restarts, found.contract_tokens] == [None] * 5
    assert of([], "a").memory[-1].used_bytes is None


def test_a_plan_is_drawn_on_the_cards_that_it_wants_while_its_unit_runs() -> None:
    cards = [sample("archon_gpu_memory_bytes", card, "total", value=99) for card in ("0", "1")]
    up = one_hot("archon_unit_state", "a", STATES, "active")
    first, second, host = of([*cards, *plan("a"), *up], "a").memory
    assert (first.planned, second.planned) == ((), (Planned("a", "weights", 11.0),))
    assert host.planned == (Planned("a", "kv_cache", 7.0),)
    down = one_hot("archon_unit_state", "a", STATES, "inactive")
    assert all(each.planned == () for each in of([*cards, *plan("a"), *down], "a").memory)


def test_a_card_that_no_driver_shows_is_drawn_as_the_plan_knows_it() -> None:
    declared = [sample("archon_capacity_bytes", "a", "device", "1", value=50)]
    declared.append(sample("archon_capacity_bytes", "a", "host", "", value=70))
    card, host = of([*declared, *plan("a"), *one_hot("archon_unit_state", "a", STATES, "active")], "a").memory
    assert (card.place, card.total_bytes, card.used_bytes) == ("1", 50, None)
    assert card.planned == (Planned("a", "weights", 11.0),)
    assert host.total_bytes is None


def test_cards_are_counted_by_their_number_and_the_host_comes_last() -> None:
    cards = [sample("archon_gpu_memory_bytes", str(card), "total", value=99) for card in (10, 2, 0)]
    assert [each.place for each in of(cards).memory] == ["0", "2", "10", "host"]


def test_what_became_different_is_a_finding_and_what_is_unknown_is_not() -> None:
    now = replace(
        ARCHON, verdict="broken", unit="failed", restarts=2, turned_away=5, preemptions=None, release="ff" * 8
    )
    found = [(each.level, each.text) for each in changes({"archon": ARCHON}, [now], AT)]
    assert found == [
        ("bad", "holds -> broken"),
        ("bad", "unit failed"),
        ("info", "release 1a2b3c4d -> ffffffff"),
        ("warn", "restarted by systemd: 2 more, 2 in all"),
        ("warn", "requests turned away for lack of room: 5 more, 5 in all"),
    ]
    assert changes({}, [now], AT) == []
    assert changes({"archon": now}, [replace(now, restarts=0)], AT) == [], "a counter that begins anew is no event"


@pytest.fixture
def simd(tmp_path: Path) -> Simd:
    """A machine with an endpoint that holds, by its verdict."""
    found = machine(tmp_path)
    do_apply(found, "a")
    return found


def watcher(simd: Simd, show: Callable[[str], UnitState] | None = None) -> Watcher:
    return Watcher(lambda: [simd.installed], lambda each: (show or simd.show)(each.unit), 0.1)


def test_one_look_sees_the_contract_and_its_findings(simd: Simd) -> None:
    looking = watcher(simd)
    try:
        seen = looking.once()
    finally:
        looking.end()
    (found,) = seen.endpoints
    assert (seen.looked, found.verdict, found.contract_tokens, found.unit) == (True, "holds", 1024, "active")
    assert any(note.code == "drift-kernel" for note in seen.notes)


def test_neither_a_hanging_engine_nor_a_hanging_systemd_makes_a_snapshot_wait(simd: Simd) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def hang(_unit: str) -> UnitState:
        asked.set()
        let_go.wait()
        raise OSError("let go")

    with socket.create_server(("127.0.0.1", 0)):
        looking = watcher(simd, hang)
        looking.begin()
        try:
            assert asked.wait(60)
            assert looking.snapshot().endpoints[0].verdict == ""
        finally:
            looking.end()
            let_go.set()


def test_a_defect_of_a_look_comes_up_where_the_screen_is_drawn(simd: Simd) -> None:
    def broken(_unit: str) -> UnitState:
        raise ZeroDivisionError("a defect")

    looking = watcher(simd, broken)
    looking.begin()
    try:
        end = time.monotonic() + 60
        while looking.defect is None and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(ZeroDivisionError):
            looking.snapshot()
    finally:
        looking.end()
