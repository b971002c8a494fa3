"""From a declaration to a verdict; whatever happens on the way, nothing of ours is left running by accident."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from archonctl.errors import ArchonError, GateRefusal, HostRefusal, UsageError
from archonctl.service.events import Event, OnEvent, ignore
from archonctl.service.follow import Boot, EngineExited, EngineNotReady, follow
from archonctl.service.launcher import Engine, start_engine
from archonctl.service.lookup import boot_log, find_running, stop
from archonctl.service.state import EndpointState
from archonctl.service.up import up
from archonctl.service.values import Options, UpResult
from support import starts
from support.engines import Mark, wait_for

Up = Callable[..., UpResult]


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def run_up(tmp_path: Path, mark: Mark, free_port: int, events: list[Event]) -> Up:
    """``run_up(*words of the fake engine, options=..., timeout_s=..., **rooms)``."""

    def run(
        *words: str,
        options: Options | None = None,
        timeout_s: int = 200,
        on_verdict: Callable[[UpResult], None] | None = None,
        on_event: OnEvent = ignore,
        **rooms: object,
    ) -> UpResult:
        def tell(event: Event) -> None:
            events.append(event)
            on_event(event)

        return up(
            starts.endpoint(tmp_path, free_port, timeout_s),
            options or with_options(once=True),
            rooms=starts.fake_rooms(words, mark.value, **rooms),  # type: ignore[arg-type]
            environ={"ARCHON_STATE_DIR": str(tmp_path)},
            on_event=tell,
            on_verdict=on_verdict,
        )

    return run


@pytest.fixture
def state(tmp_path: Path) -> EndpointState:
    return EndpointState(tmp_path, "tiny")


def with_options(**changes: object) -> Options:
    return dataclasses.replace(Options(run_as="child", grace_s=30.0), **changes)  # type: ignore[arg-type]


def test_once_goes_from_plan_to_verdict_and_stops(
    run_up: Up, mark: Mark, events: list[Event], state: EndpointState, tmp_path: Path
) -> None:
    once = tmp_path / "once"
    result = run_up("serve", "--once", str(once), on_event=lambda event: event.phase == "load" and once.touch())
    assert (result.verdict.word, result.ended) == ("holds", "stopped")
    assert result.exit is not None
    assert result.exit.signal == signal.SIGTERM
    phases = list(dict.fromkeys(e.phase for e in events))
    assert phases == ["plan", "preflight", "render", "start", "load", "ready", "ledger", "probe", "verdict", "stop"]
    assert [e.elapsed_s for e in events] == sorted(e.elapsed_s for e in events)
    assert mark.pids() == []
    assert state.recorded() is None
    assert "listening" in state.log.read_text()


def test_while_the_verdict_is_told_the_engine_runs_and_can_be_found(
    run_up: Up, mark: Mark, state: EndpointState
) -> None:
    seen: list[UpResult] = []

    def look(result: UpResult) -> None:
        seen.append(result)
        found = find_running(state)
        assert found == result.running
        assert found.pid in mark.pids()
        assert b"listening" in boot_log(found)

    run_up("serve", on_verdict=look)
    assert seen[0].ended == "running"


@pytest.mark.parametrize("word", ["broken", "no evidence"])
def test_an_engine_that_does_not_hold_is_stopped(run_up: Up, mark: Mark, word: str) -> None:
    result = run_up("serve", options=with_options(), verdict=word)
    assert (result.verdict.word, result.ended) == (word, "stopped")
    assert mark.pids() == []


def test_a_short_plan_is_refused_before_anything_is_touched(run_up: Up, state: EndpointState) -> None:
    with pytest.raises(GateRefusal, match="512 tokens, 1,024 wanted: 512 short") as caught:
        run_up("serve", plan="short")
    assert caught.value.code == "contract-short"
    assert "set len to 512" in caught.value.hint
    assert not state.releases.exists()
    assert not state.log.exists()


def test_a_short_plan_can_be_forced_and_is_said(run_up: Up, events: list[Event]) -> None:
    result = run_up("serve", options=with_options(once=True, force=True), plan="short", verdict="broken")
    assert result.verdict.word == "broken"
    assert "--force" in events[0].text


def test_an_unknown_plan_proceeds_and_is_said(run_up: Up, events: list[Event]) -> None:
    assert run_up("serve", plan="unknown").ended == "stopped"
    assert events[0].text.startswith("unknown")


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (("crash",), EngineExited, "engine-exited-at-boot"),
        (("killed",), EngineExited, "engine-exited-at-boot"),
        (("silent",), EngineNotReady, "engine-silent"),
        (("hang",), EngineNotReady, "engine-not-ready"),
        (("deaf",), EngineNotReady, "engine-not-ready"),
        (("ignore-term",), EngineNotReady, "engine-not-ready"),
    ],
)
def test_an_engine_that_fails_at_boot_leaves_nothing(
    run_up: Up,
    mark: Mark,
    state: EndpointState,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    kind: type[ArchonError],
    code: str,
) -> None:
    def follow_what_has_spoken(*args: Any, **options: Any) -> Boot:
        wait_for(lambda: state.log.stat().st_size or words == ("silent",))
        return follow(*args, **options)

    monkeypatch.setattr("archonctl.service.up.follow", follow_what_has_spoken)
    with pytest.raises(kind) as caught:
        run_up(*words, timeout_s=1 if kind is EngineNotReady else 60, options=with_options(grace_s=0.2))
    assert caught.value.code == code
    assert caught.value.where == str(state.log)
    assert mark.pids() == []
    assert state.recorded() is None


def test_an_engine_that_dies_while_it_is_probed_does_not_hold(
    run_up: Up, mark: Mark, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Engine] = []
    monkeypatch.setattr(
        "archonctl.service.up.start_engine", lambda *args: started.append(start_engine(*args)) or started[0]
    )

    def kill() -> None:
        os.kill(started[0].pid, signal.SIGKILL)
        wait_for(started[0].poll)

    result = run_up("serve", options=with_options(), during_probe=kill)
    assert (result.verdict.word, result.ended) == ("broken", "died")
    assert "ended while it was probed: killed by signal 9 (SIGKILL)" in result.verdict.reasons[0]


def test_a_supervised_engine_that_dies_is_told(run_up: Up, mark: Mark, state: EndpointState) -> None:
    result = run_up("serve", options=with_options(), on_verdict=lambda told: os.kill(told.running.pid, signal.SIGKILL))
    assert (result.verdict.word, result.ended) == ("holds", "died")
    assert result.exit is not None
    assert result.exit.words == "killed by signal 9 (SIGKILL)"
    assert state.recorded() is None


def test_a_held_port_is_refused_before_the_start(run_up: Up, free_port: int, state: EndpointState) -> None:
    with socket.create_server(("127.0.0.1", free_port)), pytest.raises(HostRefusal) as caught:
        run_up("serve")
    assert caught.value.code == "port-in-use"
    assert not state.log.exists()


def test_once_and_keep_contradict_each_other(run_up: Up) -> None:
    with pytest.raises(UsageError):
        run_up("serve", options=with_options(once=True, keep=True))


def test_a_unit_where_there_is_no_systemd_is_refused(run_up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archonctl.service.unit.available", lambda: False)
    with pytest.raises(HostRefusal) as caught:
        run_up("serve", options=with_options(run_as="unit"))
    assert caught.value.code == "no-systemd"


def test_a_detached_engine_is_left_found_and_stopped(run_up: Up, mark: Mark, state: EndpointState) -> None:
    result = run_up("serve", options=with_options(run_as="detached"))
    assert result.ended == "running"
    assert mark.pids() == [result.running.pid]
    assert find_running(state) == result.running
    with pytest.raises(HostRefusal, match=f"pid {result.running.pid}") as caught:
        run_up("serve")
    assert caught.value.code == "already-running"
    assert mark.pids() == [result.running.pid]
    assert stop(state) == result.running
    assert mark.pids() == []
    assert stop(state) is None


def test_keep_leaves_an_engine_that_does_not_hold(run_up: Up, state: EndpointState) -> None:
    result = run_up("serve", options=with_options(run_as="detached", keep=True), verdict="broken")
    assert (result.verdict.word, result.ended) == ("broken", "running")
    stop(state)


def test_a_callback_that_fails_leaves_nothing(run_up: Up, mark: Mark, events: list[Event]) -> None:
    def fail(_result: UpResult) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_up("serve", on_verdict=fail)
    assert mark.pids() == []


def test_an_event_callback_that_fails_at_the_stop_does_not_prevent_it(
    tmp_path: Path, mark: Mark, free_port: int
) -> None:
    def tell(event: Event) -> None:
        if event.phase == "stop":
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        up(
            starts.endpoint(tmp_path, free_port),
            with_options(once=True),
            rooms=starts.fake_rooms(("serve",), mark.value),
            environ={"ARCHON_STATE_DIR": str(tmp_path)},
            on_event=tell,
        )
    assert mark.pids() == []


Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def command(tmp_path: Path, mark: Mark, free_port: int, repository: Path) -> Iterator[Command]:
    """``command("serve", probe_s=5)`` runs ``up`` over the fake engine in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str, **options: object) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "support.starts", tmp_path, str(free_port), mark.value]
        child = subprocess.Popen(
            [*argv, json.dumps({"grace_s": 30.0} | options), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(repository / "tests")},
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def read_until(child: subprocess.Popen[str], beginning: str) -> list[str]:
    """The lines up to one that begins so."""
    assert child.stdout is not None
    lines: list[str] = []
    for line in child.stdout:
        lines.append(line.strip())
        if line.startswith(beginning):
            return lines
    raise AssertionError(f"no {beginning!r} in {lines}")


PHASES = [("start", "hang"), ("load", "hang"), ("ready", "serve"), ("probe", "serve"), ("serve", "serve")]


@pytest.mark.parametrize(("phase", "behaviour"), PHASES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_phase_stops_what_was_started(
    command: Command, mark: Mark, state: EndpointState, phase: str, behaviour: str, number: signal.Signals
) -> None:
    child = command(behaviour, probe_s=0 if phase == "serve" else 1000)
    read_until(child, phase)
    child.send_signal(number)
    out, _ = child.communicate(timeout=60)
    if phase == "serve":
        assert "ended interrupted" in out
        assert child.returncode == 0
    else:
        assert f"interrupted {number.name}" in out
        assert child.returncode == 130
    assert mark.pids() == []
    assert state.recorded() is None


def test_a_signal_at_any_moment_leaves_nothing(command: Command, mark: Mark) -> None:
    rng = random.Random(7)
    for _ in range(5):
        child = command("family", probe_s=0.5)
        time.sleep(0.2 + rng.random())
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        assert mark.wait_until_gone() == []


def test_a_second_signal_hurries(command: Command, mark: Mark) -> None:
    child = command("ignore-term", grace_s=1000.0)
    read_until(child, "load ignoring")
    child.send_signal(signal.SIGINT)
    read_until(child, "stop")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130
    assert mark.pids() == []


def test_signals_in_quick_succession_leave_nothing(command: Command, mark: Mark) -> None:
    child = command("family", probe_s=1000)
    read_until(child, "probe")
    for _ in range(20):
        child.send_signal(signal.SIGINT)
        time.sleep(0.005)
    child.communicate(timeout=60)
    assert mark.wait_until_gone() == []


def test_a_stranger_is_left_alone_by_a_signal(command: Command, mark: Mark) -> None:
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        try:
            child = command("serve")
            read_until(child, "serve")
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=60)
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.parametrize("phase", ["load", "probe", "serve"])
def test_kill_9_of_up_leaves_nothing_and_the_next_one_starts(command: Command, mark: Mark, phase: str) -> None:
    child = command("family", "--delay", "0.7", probe_s=0.5)
    read_until(child, phase)
    child.kill()
    child.communicate()
    assert mark.wait_until_gone() == []
    again = command("serve", once=True)
    out, _ = again.communicate(timeout=60)
    assert "ended stopped" in out


def test_a_second_up_is_refused_while_the_first_starts_and_serves(command: Command, tmp_path: Path) -> None:
    once = tmp_path / "once"
    first = command("serve", "--once", str(once))
    read_until(first, "load")
    out, _ = command("serve").communicate(timeout=60)
    assert "error up-in-progress" in out
    once.touch()
    read_until(first, "serve")
    out, _ = command("serve").communicate(timeout=60)
    assert "error already-running" in out
    assert first.poll() is None


def test_two_ups_at_once_start_one_engine(command: Command, mark: Mark) -> None:
    both = [command("serve") for _ in range(2)]
    wait_for(lambda: any(child.poll() is not None for child in both))
    refused, serves = sorted(both, key=lambda child: child.poll() is None)
    out, _ = refused.communicate(timeout=60)
    assert "error up-in-progress" in out or "error already-running" in out
    read_until(serves, "serve")
    serves.send_signal(signal.SIGINT)
    out, _ = serves.communicate(timeout=60)
    assert "ended interrupted" in out


def test_stop_from_elsewhere_ends_a_supervised_engine(command: Command, mark: Mark, state: EndpointState) -> None:
    child = command("serve")
    read_until(child, "serve")
    found = stop(state)
    assert found is not None
    assert found.mode == "child"
    out, _ = child.communicate(timeout=60)
    assert "ended died" in out
    assert mark.pids() == []


def test_a_dead_terminal_does_not_keep_the_engine(command: Command, mark: Mark) -> None:
    child = command("serve", probe_s=1.0)
    read_until(child, "ready")
    assert child.stdout is not None
    child.stdout.close()
    child.wait(60)
    assert mark.wait_until_gone() == []
