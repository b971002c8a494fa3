"""From one release to another and back, over a simulated systemd."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from archonctl.errors import GateRefusal, HostRefusal, UsageError
from archonctl.service.events import Event
from support.simd import digest_of, do_apply, do_rollback, endpoint, machine, rooms


def test_a_first_apply_starts_and_records_what_holds(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    result = do_apply(simd, "a")
    digest = digest_of("a", tmp_path)
    assert (result.outcome, result.release, simd.running) == ("applied", digest, digest)
    assert simd.installed.current() == digest
    assert simd.ran_with == simd.installed.placed()
    assert simd.installed.pending() is None
    last = simd.installed.history().last()
    assert last is not None
    assert (last.event, last.verdict, last.release, last.facts["depth"]) == ("applied", "holds", digest, "full")


def test_the_same_again_restarts_nothing(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    assert do_apply(simd, "a").outcome == "unchanged"
    assert simd.starts == 1


def test_the_same_again_asks_deeper_if_that_is_wanted(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a", depth="ledger")
    assert do_apply(simd, "a", depth="ledger").attempts == ()
    result = do_apply(simd, "a", depth="full")
    assert (result.outcome, result.attempts[0].depth, simd.starts) == ("unchanged", "full", 1)


@pytest.mark.parametrize(("fact", "starts"), [("program", 2), ("model_mtime_ns", 2), ("image", 2), ("pages_limit", 1)])
def test_what_changed_under_the_running_release_is_started_anew_or_raised(
    tmp_path: Path, fact: str, starts: int
) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    raised: list[Path] = []

    def raise_limit(folder: Path) -> tuple[str, ...]:
        raised.append(folder)
        return ("raised",)

    chosen = replace(rooms(), changed=lambda *_: frozenset({fact}), raise_limit=raise_limit)
    result = do_apply(simd, "a", chosen=chosen)
    assert simd.starts == starts
    assert result.outcome == ("unchanged" if starts == 1 else "applied")
    assert bool(raised) is (fact == "pages_limit")
    assert simd.installed.history().records[-1].held


def test_a_limit_that_cannot_be_raised_under_the_running_engine_is_refused_and_it_runs_on(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")

    def raise_limit(_folder: Path) -> tuple[str, ...]:
        raise HostRefusal("ttm-cap-not-raised", "still half of RAM")

    chosen = replace(rooms(), changed=lambda *_: frozenset({"pages_limit"}), raise_limit=raise_limit)
    with pytest.raises(HostRefusal, match="ttm-cap-not-raised"):
        do_apply(simd, "a", chosen=chosen)
    assert simd.running == digest_of("a", tmp_path)
    assert simd.starts == 1


def test_an_upgrade_that_holds_replaces_the_old_engine(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    result = do_apply(simd, "bb")
    assert result.outcome == "applied"
    assert simd.running == simd.installed.current() == digest_of("bb", tmp_path)
    assert [diff.file for diff in result.preview.differences] == ["argv", "engine.env", "drop-in.conf"]  # type: ignore[union-attr]


@pytest.mark.parametrize("what", ["broken", "no evidence", "refuses"])
def test_a_release_that_does_not_hold_gives_way_to_the_last_that_did(tmp_path: Path, what: str) -> None:
    simd = machine(tmp_path, bb=what)
    do_apply(simd, "a")
    result = do_apply(simd, "bb")
    old, new = digest_of("a", tmp_path), digest_of("bb", tmp_path)
    assert result.outcome == "rolled back"
    assert [(attempt.release, attempt.holds) for attempt in result.attempts] == [(new, False), (old, True)]
    assert result.attempts[0].reasons
    assert result.attempts[0].tail == (() if what == "broken" else ("its last line",))
    assert simd.running == simd.installed.current() == old
    assert simd.ran_with == simd.installed.placed()
    assert [r.event for r in simd.installed.history().records] == ["applied", "failed", "rolled-back"]


def test_the_way_back_leads_to_the_last_that_held_not_to_the_last_that_was_there(tmp_path: Path) -> None:
    simd = machine(tmp_path, bb="broken", ccc="broken")
    do_apply(simd, "a")
    do_apply(simd, "bb", rollback=False)
    assert simd.running == ""
    result = do_apply(simd, "ccc")
    assert (result.outcome, simd.running) == ("rolled back", digest_of("a", tmp_path))


def test_an_old_release_that_does_not_hold_any_more_is_said_and_not_left_running(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    simd.engines = dict.fromkeys((digest_of("a", tmp_path), digest_of("bb", tmp_path)), "broken")
    result = do_apply(simd, "bb")
    assert result.outcome == "lost"
    assert [attempt.word for attempt in result.attempts] == ["broken", "broken"]
    assert simd.running == ""
    assert simd.installed.pending() is None


def test_without_a_way_back_a_broken_release_is_left_stopped(tmp_path: Path) -> None:
    simd = machine(tmp_path, a="broken")
    assert do_apply(simd, "a").outcome == "failed"
    assert simd.running == ""


def test_no_rollback_leaves_the_new_release_stopped_and_current(tmp_path: Path) -> None:
    simd = machine(tmp_path, bb="broken")
    do_apply(simd, "a")
    assert do_apply(simd, "bb", rollback=False).outcome == "failed"
    assert (simd.running, simd.installed.current()) == ("", digest_of("bb", tmp_path))


def test_what_is_refused_before_touches_nothing(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")

    def full() -> None:
        raise HostRefusal("image-missing", "it is not here")

    with pytest.raises(GateRefusal):
        do_apply(simd, "bb", chosen=rooms(plan="short"))
    with pytest.raises(HostRefusal):
        do_apply(simd, "bb", chosen=rooms(check=full))
    assert (simd.running, simd.starts) == (digest_of("a", tmp_path), 1)
    assert [r.event for r in simd.installed.history().records] == ["applied", "refused", "refused"]


def test_check_changes_nothing_and_says_what_it_cannot_preview(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    before = sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.name != "lock")
    result = do_apply(simd, "bb", check=True)
    assert (result.outcome, result.preview.action) == ("checked", "restart")  # type: ignore[union-attr]
    assert "the verdict" in result.preview.not_previewed  # type: ignore[union-attr]
    assert sorted((str(p), p.stat().st_mtime_ns) for p in tmp_path.rglob("*") if p.name != "lock") == before


def test_dependants_that_were_stopped_are_started_again(tmp_path: Path) -> None:
    simd = machine(tmp_path, bb="broken")
    do_apply(simd, "a")
    simd.add_dependant("proxy.service")
    do_apply(simd, "ccc")
    assert simd.unit("proxy.service") == "active"
    do_apply(simd, "bb")
    assert simd.unit("proxy.service") == "active"


def test_two_at_once_are_one_and_the_other_is_named(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    handle = os.open(simd.installed.folder / "lock", os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.pwrite(handle, b"777\n", 0)
    os.ftruncate(handle, 4)
    with pytest.raises(HostRefusal, match="pid 777") as caught:
        do_apply(simd, "bb")
    os.close(handle)
    assert caught.value.code == "up-in-progress"
    assert simd.running == digest_of("a", tmp_path)


def test_rollback_goes_to_the_last_other_release_that_held(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    for word in ("a", "bb", "ccc"):
        do_apply(simd, word)
    assert do_rollback(simd).release == digest_of("bb", tmp_path)
    assert do_rollback(simd, digest_of("a", tmp_path)[:6]).release == digest_of("a", tmp_path)
    assert simd.running == digest_of("a", tmp_path)
    assert do_rollback(simd, "2").release == digest_of("ccc", tmp_path)


def test_rollback_to_a_release_that_fails_returns_to_what_ran(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    do_apply(simd, "bb")
    simd.engines = {digest_of("a", tmp_path): "refuses"}
    result = do_rollback(simd)
    assert (result.outcome, simd.running) == ("rolled back", digest_of("bb", tmp_path))


def test_there_may_be_nothing_to_roll_back_to(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    with pytest.raises(UsageError) as caught:
        do_rollback(simd)
    assert caught.value.code == "nothing-to-roll-back-to"
    with pytest.raises(UsageError) as caught:
        do_rollback(simd, "beef")
    assert caught.value.code == "release-unknown"


def test_a_damaged_release_is_not_gone_back_to(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    do_apply(simd, "bb")
    (simd.installed.releases / digest_of("a", tmp_path) / "start").write_text("#!/bin/sh\n")
    with pytest.raises(HostRefusal) as caught:
        do_rollback(simd)
    assert caught.value.code == "release-damaged"
    assert simd.running == digest_of("bb", tmp_path)


def test_a_drop_in_that_systemd_refuses_is_taken_back_before_anything_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    before = simd.installed.placed()
    monkeypatch.setattr(type(simd), "reload", _refuse)
    with pytest.raises(HostRefusal):
        do_apply(simd, "bb")
    assert (simd.installed.placed(), simd.running) == (before, digest_of("a", tmp_path))


def _refuse(simd: object) -> None:
    if "TimeoutStartSec=62" in (simd.installed.placed() or ""):  # type: ignore[attr-defined]
        raise HostRefusal("systemctl-failed", "no")


def test_an_engine_that_changed_under_its_release_is_started_anew(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    (tmp_path / "proc/4242/cmdline").write_bytes(b"/bin/engine\0--by-hand\0")
    events: list[Event] = []
    result = do_apply(simd, "a", events=events)
    assert (result.outcome, simd.starts) == ("applied", 2)


def test_what_a_newer_version_wrote_is_read(tmp_path: Path) -> None:
    simd = machine(tmp_path)
    do_apply(simd, "a")
    file = simd.installed.history_file
    from archonctl.service import history

    value = json.loads(file.read_text()) | {"shiny": {"new": 1}, "event": "teleported"}
    value.pop("sum")
    file.write_bytes(file.read_bytes() + json.dumps(value | {"sum": history._sum(value)}).encode() + b"\n")
    assert simd.installed.history().records[-1].event == "teleported"
    assert simd.installed.history().unreadable == 0
    assert do_apply(simd, "a").outcome == "unchanged"


def test_the_declaration_is_the_only_input_of_a_release(tmp_path: Path) -> None:
    assert digest_of("a", tmp_path) == digest_of("a", tmp_path / "elsewhere")
    assert endpoint("a").name == "tiny"
