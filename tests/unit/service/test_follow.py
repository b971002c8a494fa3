"""A boot is followed until the engine is ready, gone, or out of time; each end is told with its reason."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from archonctl.errors import ContractBroken, HostRefusal, NoEvidence
from archonctl.ledger.values import Remark
from archonctl.service.events import Event
from archonctl.service.follow import (
    Boot,
    EngineExited,
    EngineNotReady,
    Health,
    Limits,
    check_listener,
    follow,
    http_health,
)
from archonctl.service.logtail import FileTail
from archonctl.service.process import EngineProcess
from support.engines import Launch, wait_for

GENEROUS = Limits(60, 60, 120)
HASTY = Limits(0.5, 0.3, 2.0)


class Lines(list[str]):
    feed = list.append


def boot(
    process: EngineProcess,
    port: int,
    limits: Limits = GENEROUS,
    sink: Lines | None = None,
    *,
    health_s: float = 30.0,
    **options: object,
) -> Boot:
    return follow(
        process,
        FileTail(process.spec.log),
        Lines() if sink is None else sink,
        lambda: http_health("127.0.0.1", port, "/health", health_s),
        limits,
        where=str(process.spec.log),
        **options,  # type: ignore[arg-type]
    )


def has_said(process: EngineProcess, line: str) -> EngineProcess:
    """The process, once that is in its log: what a short deadline is about comes after."""
    wait_for(lambda: line in process.spec.log.read_text())
    return process


def test_ready_is_what_the_health_path_says(launch: Launch, free_port: int, tmp_path: Path) -> None:
    sink, events, once = Lines(), list[Event](), tmp_path / "once"

    def let_it_be_ready(event: Event) -> None:
        events.append(event)
        once.touch()

    process = launch("serve", "--port", str(free_port), "--once", str(once))
    done = boot(process, free_port, sink=sink, on_event=let_it_be_ready, model_bytes=1 << 30)
    assert sink == [f"listening on http://127.0.0.1:{free_port}"]
    assert done.lines == 1
    assert {e.phase for e in events} == {"load"}
    assert all(e.fraction is not None and 0 < e.fraction < 1 for e in events)


def test_what_an_engine_that_serves_has_not_written_yet_is_waited_for(
    launch: Launch, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archonctl.service.follow.LAG_S", 60.0)
    sink = Lines()
    process = launch("serve", "--port", str(free_port), "--late", "1")
    boot(process, free_port, sink=sink, is_whole=lambda: "the last line" in sink)
    assert sink[-1] == "the last line"


def test_a_log_that_stays_incomplete_is_waited_for_with_a_bound(
    launch: Launch, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archonctl.service.follow.LAG_S", 0.3)
    process = launch("serve", "--port", str(free_port))
    assert boot(process, free_port, is_whole=lambda: False).lines == 1


def test_a_listening_line_without_an_answer_is_not_ready(launch: Launch, free_port: int) -> None:
    process = has_said(launch("deaf", "--port", str(free_port)), "listening")
    with pytest.raises(EngineNotReady, match="accepts connections but does not answer") as caught:
        boot(process, free_port, HASTY, health_s=0.5)
    assert caught.value.code == "engine-not-ready"
    assert isinstance(caught.value, NoEvidence)


def test_a_death_at_boot_is_told_with_status_and_last_lines(launch: Launch, free_port: int) -> None:
    process = launch("crash")
    with pytest.raises(EngineExited, match="exit 1; its last line: error: invalid argument: --no-such-flag") as caught:
        boot(process, free_port)
    assert isinstance(caught.value, ContractBroken)
    assert caught.value.code == "engine-exited-at-boot"
    assert caught.value.tail == ("loading", "error: invalid argument: --no-such-flag")
    assert caught.value.as_dict()["log_tail"].splitlines()[0] == "loading"
    assert caught.value.where == str(process.spec.log)


def test_a_death_at_boot_names_the_refusal_that_the_ledger_saw(launch: Launch, free_port: int) -> None:
    remarks = (Remark("warn", "warning", "odd", 1), Remark("unknown-argument", "refusal", "--no-such-flag", 2))
    with pytest.raises(EngineExited, match="the log names unknown-argument: --no-such-flag") as caught:
        boot(launch("crash"), free_port, remarks=lambda: remarks)
    assert "unknown-argument" in caught.value.hint


def test_the_last_lines_of_a_dead_engine_show_no_key(launch: Launch, free_port: int) -> None:
    process = launch(argv=(sys.executable, "-I", "-S", "-c", "import sys; sys.exit('bad --api-key abcdef123456')"))
    with pytest.raises(EngineExited) as caught:
        boot(process, free_port)
    assert "abcdef123456" not in str(caught.value.as_dict())


def test_a_death_without_a_word_says_so(launch: Launch, free_port: int) -> None:
    with pytest.raises(EngineExited, match="exit 3; it printed nothing"):
        boot(launch("exit"), free_port)


def test_an_unfinished_last_line_is_evidence_too(launch: Launch, free_port: int) -> None:
    process = launch(argv=("/bin/sh", "-c", "printf 'no newline here'; exit 2"))
    with pytest.raises(EngineExited) as caught:
        boot(process, free_port)
    assert caught.value.tail == ("no newline here",)


def test_silence_ends_at_the_deadline(launch: Launch, free_port: int) -> None:
    with pytest.raises(EngineNotReady, match="it printed nothing") as caught:
        boot(launch("silent"), free_port, HASTY)
    assert caught.value.code == "engine-silent"


def test_a_hanging_load_ends_at_the_deadline_with_its_last_line(launch: Launch, free_port: int) -> None:
    with pytest.raises(EngineNotReady, match="nobody listens on its port; its last line: loading model") as caught:
        boot(has_said(launch("hang"), "loading model\n"), free_port, HASTY)
    assert caught.value.code == "engine-not-ready"


def test_loading_forever_ends_at_the_deadline(launch: Launch, free_port: int) -> None:
    process = has_said(launch("serve", "--port", str(free_port), "--delay", "1000"), "listening")
    with pytest.raises(EngineNotReady, match="503"):
        boot(process, free_port, HASTY)


class Clock:
    """Time that passes only where somebody sleeps, who finds then that something was done meanwhile."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.now, self.meanwhile = 0.0, meanwhile

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


def test_progress_extends_the_deadline_but_not_for_ever(
    launch: Launch, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = has_said(launch("hang"), "loading model")

    def works() -> None:
        with process.spec.log.open("a") as log:
            log.write("working\n")

    monkeypatch.setattr("archonctl.service.follow.time", Clock(works))
    with pytest.raises(EngineNotReady, match="not ready after 60 s"):
        boot(process, free_port, Limits(1, 5, 60))
    monkeypatch.setattr("archonctl.service.follow.time", Clock(lambda: None))
    with pytest.raises(EngineNotReady, match="not ready after 5 s"):
        boot(process, free_port, Limits(1, 5, 60))


def test_growing_memory_is_progress(launch: Launch, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    process, held = launch("hang"), list[bytearray]()
    monkeypatch.setattr(process, "pids", lambda: [os.getpid()])
    monkeypatch.setattr("archonctl.service.follow.time", Clock(lambda: held.append(bytearray(1 << 20))))
    with pytest.raises(EngineNotReady, match="not ready after 10 s"):
        boot(process, free_port, Limits(0.1, 3.0, 10.0))


def test_a_flooding_engine_is_still_seen_to_be_ready(
    launch: Launch, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archonctl.service.follow.DRAIN_S", 2.0)
    process = launch("flood", "--port", str(free_port), log_cap_bytes=8 << 20, log_head_bytes=1 << 20)
    assert boot(process, free_port).lines > 0


def test_a_death_in_a_flood_shows_the_last_lines(launch: Launch, free_port: int) -> None:
    script = "import os\nfor n in range(40): os.write(2, b'words and words\\n' * 65536)\nos.write(2, b'the end\\n')"
    process = launch(argv=(sys.executable, "-I", "-S", "-c", script))
    with pytest.raises(EngineExited) as caught:
        boot(process, free_port)
    assert caught.value.tail[-1] == "the end"
    assert len(caught.value.tail) == 20


def test_derived_limits_grow_with_the_model_and_a_declared_one_is_final() -> None:
    archon = Limits.derive(121_969_901_568)
    assert 1200 < archon.expected_s < 1300
    assert archon.hard_s > 1940
    assert Limits.derive(None).expected_s == 300
    assert Limits.derive(1 << 40, declared_s=5) == Limits(5, 5, 5)


@pytest.fixture
def odd_server() -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers with raw bytes."""
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def loop() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, suppress(OSError):
                    peer.recv(4096)
                    peer.sendall(answers[0])

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        yield listener.getsockname()[1], answers
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ready"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "ready"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "loading"),
        (b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", "loading"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nOops", "loading"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "silent"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok", "ready"),
        (b"\xff" * 100_000, "silent"),
        (b"", "refused"),
    ],
)
def test_health_is_read_with_care(odd_server: tuple[int, list[bytes]], answer: bytes, word: str) -> None:
    port, answers = odd_server
    answers.append(answer)
    assert http_health("127.0.0.1", port, "/health", 30.0).word == word


def test_nobody_listening_is_refused(free_port: int) -> None:
    assert http_health("127.0.0.1", free_port, "/health") == Health("refused")


def test_a_foreign_listener_on_the_port_is_named(launch: Launch, free_port: int) -> None:
    ours, theirs = launch("hang"), launch("serve", "--port", str(free_port))
    boot(theirs, free_port)
    with pytest.raises(HostRefusal, match=f"pid {theirs.pid} ") as caught:
        check_listener(ours, free_port)
    assert caught.value.code == "port-in-use"
    check_listener(theirs, free_port)


def test_two_listeners_on_one_port_are_seen(launch: Launch, free_port: int) -> None:
    script = (
        "import socket, time; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
        f"s.bind(('127.0.0.1', {free_port})); s.listen(); time.sleep(1000)"
    )
    process = launch(argv=(sys.executable, "-I", "-S", "-c", script))
    with socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        mine.bind(("127.0.0.1", free_port))
        mine.listen()
        with pytest.raises(HostRefusal, match=f"pid {os.getpid()} "):
            check_listener(process, free_port)


def test_the_log_path_may_be_missing(tmp_path: Path) -> None:
    assert FileTail(tmp_path / "none").read() == []
