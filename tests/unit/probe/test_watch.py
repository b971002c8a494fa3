"""Others' requests: what is ours is never taken for theirs, and theirs are given way to."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from archonctl.probe.metrics import load_of_json, load_of_metrics
from archonctl.probe.values import Depth, Extras
from support import lying_server as lies
from support.engines import wait_for
from support.lying_server import Engine, LyingServer, lying_server
from support.probing import API, ROOMY, leg, probe, told

COUNTING = replace(API, metrics="/metrics")
GAUGES = replace(API, busy="/metrics", metrics="/metrics")
LONG_WINDOW, ENDLESS = 50_000, 40_000
"""An answer so long that it goes on until the server is closed."""


@pytest.mark.parametrize("depth", ["admission", "full"])
def test_a_request_of_ours_that_the_engine_still_works_on_is_not_of_others(depth: Depth) -> None:
    """The stream beside the calibration is closed when that is done; an engine may notice much later, and keep the
    slot until then: with two slots, one of two sequences waits."""
    with lying_server(Engine(slots=2, gauges="llamacpp", lingers_s=0.7, step_s=0.01)) as server:
        verdict = probe(server, api=COUNTING, legs=depth, limits=ROOMY)
    assert verdict.word == "holds", told(verdict)


def test_a_gauge_that_an_abort_left_standing_is_renewed_by_one_token() -> None:
    with lying_server(Engine(gauges="vllm", step_s=0.01)) as server:
        server.gauge = (1, 0)
        verdict = probe(server, api=GAUGES, limits=ROOMY)
    assert verdict.word == "holds", told(verdict)


OTHERS = 3


@contextmanager
def traffic(server: LyingServer, words: int, answer: int) -> Iterator[None]:
    """Somebody else, who asks again and again."""
    done = threading.Event()
    body = json.dumps({"prompt": "other " * words, "max_tokens": answer, "stream": False}).encode()

    def ask() -> None:
        request = urllib.request.Request(f"http://{server.listen}/v1/completions", body)
        while not done.is_set():
            with suppress(OSError):
                urllib.request.urlopen(request, timeout=120).close()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(OTHERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        server.stopping.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.parametrize("when_idle", [False, True])
def test_traffic_of_others_that_stays_is_given_way_to(when_idle: bool) -> None:
    limits = replace(ROOMY, idle_s=1.0, patient_s=1.0, settled_s=0.1)
    engine = Engine(slots=4, window=LONG_WINDOW, gauges="llamacpp", step_s=0.005)
    with lying_server(engine) as server, traffic(server, 50, ENDLESS):
        wait_for(lambda: server.running == OTHERS)
        verdict = probe(server, api=COUNTING, limits=limits, extras=Extras(when_idle=when_idle))
    where = "generation" if when_idle else "capacity"
    assert (verdict.word, leg(verdict, where).code) == ("no evidence", "engine-busy"), told(verdict)


def test_others_that_come_in_the_middle_and_go_again_cost_a_second_flight() -> None:
    with lying_server(Engine(slots=2, gauges="llamacpp", step_s=0.01)) as server:
        busy = threading.Event()

        def on_progress(event: object) -> None:
            if "past prefill" in getattr(event, "text", "") and not busy.is_set():
                busy.set()
                threading.Thread(target=come, daemon=True).start()

        def come() -> None:
            body = json.dumps({"prompt": "other " * 9, "max_tokens": 20, "stream": False}).encode()
            requests = [urllib.request.Request(f"http://{server.listen}/v1/completions", body) for _ in range(2)]
            threads = [threading.Thread(target=ask, args=(each,), daemon=True) for each in requests]
            for each in threads:
                each.start()

        def ask(request: urllib.request.Request) -> None:
            with suppress(OSError):
                urllib.request.urlopen(request, timeout=120).close()

        verdict = probe(server, api=COUNTING, limits=ROOMY, on_progress=on_progress)
    assert busy.is_set()
    assert verdict.word == "holds", told(verdict)


def test_an_engine_too_busy_to_tell_its_load_is_waited_for_and_then_called_busy() -> None:
    """The ik fork of llama.cpp answers nothing while it reads a prompt."""
    with lying_server(Engine()) as server:
        server.engine.override["/slots"] = lies.silent
        verdict = probe(server, limits=replace(ROOMY, read_s=0.3, idle_s=1.0))
    assert (verdict.word, leg(verdict, "capacity").code) == ("no evidence", "engine-busy"), told(verdict)


def test_an_older_list_of_slots_is_read_too_and_one_that_says_nothing_is_unknown() -> None:
    older = load_of_json([{"id": 0, "state": 1}, {"id": 1, "state": 0}])
    assert older is not None
    assert (older.running, older.slots) == (1, 2)
    assert load_of_json([{"id": 0}, {"id": 1}]) is None
    assert load_of_json([1, None]) is None


def test_only_what_is_written_step_by_step_is_a_gauge() -> None:
    told_by = load_of_metrics("vllm:num_requests_running 1.0\n"), load_of_json({"running": 1, "waiting": 0})
    assert [each is not None and each.gauge for each in told_by] == [True, False]


@pytest.mark.usefixtures("one_flight")
def test_slots_that_never_work_prove_nothing_against_an_engine() -> None:
    """They contradict the very answer that comes meanwhile."""
    idle = lies.answers_json([{"id": i, "is_processing": False} for i in range(4)])
    with lying_server(Engine(hold_back=1.0, lie_above=150, override={"/slots": idle})) as server:
        verdict = probe(server)
    assert (verdict.word, leg(verdict, "capacity").code) == ("no evidence", "hold-unproven"), told(verdict)


@pytest.mark.parametrize("when_idle", [False, True])
def test_an_engine_whose_slots_all_are_of_others_is_busy_and_not_broken(when_idle: bool) -> None:
    """They answer for longer than a short request is waited for; with ``--when-idle`` it is not even sent."""
    limits = replace(ROOMY, generation_s=4.0, patient_s=1.0)
    engine = Engine(slots=2, window=LONG_WINDOW, gauges="llamacpp", step_s=0.02)
    with lying_server(engine) as server, traffic(server, 5, ENDLESS):
        wait_for(lambda: server.waiting)
        sent = len(server.requests)
        verdict = probe(server, api=COUNTING, limits=limits, extras=Extras(when_idle=when_idle))
        asked = [path for _, path, _ in server.requests[sent:] if path == API.chat]
    assert (verdict.word, leg(verdict, "generation").code) == ("no evidence", "engine-busy"), told(verdict)
    assert bool(asked) != when_idle


def test_an_engine_that_stands_still_is_broken_whoever_waits_beside() -> None:
    stuck = [{"id": i, "is_processing": True, "n_decoded": 7} for i in range(4)]
    with lying_server(Engine()) as server:
        server.engine.override |= {"/slots": lies.answers_json(stuck), API.chat: lies.silent}
        verdict = probe(server, limits=replace(ROOMY, generation_s=0.5))
    assert (verdict.word, leg(verdict, "generation").code) == ("broken", "request-timeout"), told(verdict)
