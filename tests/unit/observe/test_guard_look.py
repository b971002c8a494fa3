"""What the guards before endpoints count, in the exporter: a guard's metrics over HTTP, and guards that are dead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client import make_wsgi_app

from archonctl.errors import HostRefusal
from archonctl.guard import refusals as codes
from archonctl.guard.metrics import GuardMetrics
from archonctl.guard.values import Refusal
from archonctl.observe.board import Board
from archonctl.observe.exporter import Looker
from archonctl.observe.guard_look import guard_look, parse, refusals
from archonctl.observe.refusals import METRIC, guard_kinds
from archonctl.observe.serve import serving_app
from archonctl.probe.faults import Fault
from archonctl.probe.limits import Limits
from archonctl.service.installed import Installed
from support.simd import Simd

SHOWN = """\
Id=archon-guard@a.service
ActiveState=active
Environment=ARCHON_GUARD_LISTEN=127.0.0.1:8080 ARCHON_GUARD_ADMIN=127.0.0.1:9488 "O=a b" ARCHON_GUARD_ADMIN=[::]:9500

Id=archon-guard@b.service
ActiveState=inactive
Environment=ARCHON_GUARD_ADMIN=127.0.0.1:9489

Id=archon-guard@c.service
ActiveState=failed
Environment=ARCHON_GUARD_ADMIN=127.0.0.1:9490

Id=archon-guard@d.service
ActiveState=active
Environment=ARCHON_GUARD_ADMIN=off

Id=archon-guard@e.service
ActiveState=active
Environment="half
"""


@contextmanager
def a_guard(metrics: GuardMetrics) -> Iterator[str]:
    """Serves what a guard publishes."""
    with serving_app(make_wsgi_app(metrics.registry), "127.0.0.1", 0, "--admin") as port:
        yield f"http://127.0.0.1:{port}"


def busy() -> GuardMetrics:
    """A guard that has turned some away."""
    metrics = GuardMetrics()
    for code in (
        codes.POOL_BUSY,
        codes.POOL_BUSY,
        codes.SLOTS_BUSY,
        codes.NEVER_WINDOW,
        codes.NEVER_POOL,
        codes.QUEUE_FULL,
        "key-missing",
    ):
        metrics.refused(Refusal(503, code, "no"))
    return metrics


COUNTED = {
    ("kv_cache", "no_room"): 2.0,
    ("unknown", "no_room"): 1.0,
    ("kv_cache", "never_fits"): 2.0,
    ("unknown", "queue_full"): 1.0,
}


def test_the_codes_are_those_of_the_guards_admission() -> None:
    admission = {codes.NEVER_WINDOW, codes.NEVER_POOL, codes.POOL_BUSY, codes.SLOTS_BUSY}
    assert set(guard_kinds()) == admission | {codes.QUEUE_FULL, codes.CLIENT_WAITING}


def test_systemd_says_where_each_guard_publishes() -> None:
    assert parse(SHOWN) == {"a": "http://[::1]:9500", "c": "http://127.0.0.1:9490"}
    assert parse("") == {}


def test_a_guards_refusals_are_counted_by_class_and_reason_and_others_of_its_are_not() -> None:
    with a_guard(busy()) as base:
        found = guard_look("a", base)
    assert {each.metric for each in found} == {METRIC}
    assert {each.labels[1:3]: each.value for each in found} == COUNTED
    assert {(each.labels[0], each.labels[3]) for each in found} == {("a", "guard")}


def test_a_guard_that_turned_nobody_away_counts_from_0() -> None:
    with a_guard(GuardMetrics()) as base:
        found = guard_look("a", base)
    assert {each.labels[1:3]: each.value for each in found} == dict.fromkeys(COUNTED, 0)


def test_labels_stay_a_closed_set_whatever_stands_at_that_address() -> None:
    text = "".join(f'archon_guard_refusals_total{{code="pool-busy",class="x{n}"}} 1\n' for n in range(50))
    text += 'archon_guard_refusals_total{code="x"} 1\n'
    found = {(kind.cls, kind.reason): count for kind, count in refusals(text).items()}
    assert set(found) == set(COUNTED)
    assert found["kv_cache", "no_room"] == 50
    with pytest.raises(Fault):
        refusals('archon_guard_refusals_total{code="pool-busy" 1 1 1 1\n')


def test_a_guard_that_is_dead_or_is_something_else_is_a_failed_look() -> None:
    with pytest.raises(Fault):
        guard_look("a", "http://127.0.0.1:9", Limits(connect_s=0.5, read_s=0.5))
    with (
        serving_app(lambda _, start: (start("404 Not Found", []), [b""])[1], "127.0.0.1", 0, "--admin") as port,
        pytest.raises(Fault, match="404"),
    ):
        guard_look("a", f"http://127.0.0.1:{port}")


def test_the_exporter_shows_a_guard_while_there_is_one(tmp_path: Path) -> None:
    simd = Simd(tmp_path)
    name, board, there = simd.installed.name, Board(), dict[str, str]()

    def looks() -> dict[str, str]:
        if there.get("hangs"):
            raise HostRefusal("systemctl-failed", "no bus")
        return there

    looker = Looker(
        board, lambda: [Installed(name, simd.root)], lambda each: simd.show(each.unit), lambda _words: None, looks
    )

    def shown() -> dict[tuple[str, ...], float]:
        looker.once(wait_s=20)
        wanted = (METRIC, "archon_look_up")
        return {e.labels: e.value for e in board.samples() if "guard" in e.labels and e.metric in wanted}

    assert shown() == {}
    with a_guard(busy()) as base:
        there[name] = base
        first = shown()
        assert first[name, "kv_cache", "no_room", "guard"] == 2
        assert first[name, "guard"] == 1
    assert shown()[name, "guard"] == 0, "it is dead now"
    there["hangs"] = "yes"
    assert shown()[name, "kv_cache", "no_room", "guard"] == 2, "what was seen stays, with its age"
    there.clear()
    assert shown() == {}
    looker.close()
