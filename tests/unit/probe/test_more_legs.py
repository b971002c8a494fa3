"""The legs that run only if asked for: interference, recall, prefill of predicted sizes; and the identity leg."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from archonctl.deployment.schema import Container, Endpoint, Prediction
from archonctl.ledger.values import BootLedger, Reading, Remark
from archonctl.memory.interval import Interval
from archonctl.probe import engine as probing
from archonctl.probe.budget import costs
from archonctl.probe.identity import Process, argv_runs, judge_identity, process_from, process_json
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Extras, Leg, Verdict
from archonctl.service.identity import device_of, look
from support.lying_server import Engine, Handler, lying_server
from support.probing import API, ROOMY, boot_ledger, endpoint, leg, probe, told


def asked(engine: Engine, length: int = 400, **extras: bool) -> Verdict:
    with lying_server(engine) as server:
        return probe(server, length=length, extras=Extras(**extras))


def test_a_step_beside_a_prefill_is_told_from_one_alone() -> None:
    engine = Engine(window=2100, prefill_s=0.0004, step_s=0.005, interferes_s=0.05, cache=True)
    verdict = asked(engine, 2000, interference=True)
    found = leg(verdict, "interference")
    assert (verdict.word, found.status) == ("holds", "pass"), told(verdict)
    alone, beside = float(found.numbers["step_ms"]), float(found.numbers["step_ms_with_prefill"])
    assert alone >= 5
    assert beside >= alone + 40
    assert found.numbers["step_ms_source"] == "pauses of the stream"
    assert float(found.numbers["decode_tps"]) > float(found.numbers["decode_tps_with_prefill"])


def test_the_prefix_cache_is_measured_cold_and_warm() -> None:
    found = leg(asked(Engine(window=2100, prefill_s=0.0005, cache=True), 2000, interference=True), "interference")
    assert (found.numbers["prefix_hit_rate_cold"], found.numbers["prefix_hit_rate_warm"]) == (0, 1)
    assert float(found.numbers["ttft_warm_s"]) < float(found.numbers["ttft_cold_s"])


def test_an_engine_that_counts_its_steps_is_believed_before_the_stream() -> None:
    count = {"n": 0}

    def metrics(handler: Handler) -> None:
        count["n"] += 1
        rows = {
            "radiance:engine_steps_decode_total": 100 * count["n"],
            "radiance:engine_step_seconds_decode_total": 1.87 * count["n"],
            "radiance:draft_acceptance_ratio": 0.74,
        }
        handler.whole(200, "".join(f"{k} {v}\n" for k, v in rows.items()).encode(), "text/plain")

    with lying_server(Engine(window=2100, override={"/metrics": metrics})) as server:
        verdict = probe(server, length=2000, extras=Extras(interference=True), api=replace(API, metrics="/metrics"))
    found = leg(verdict, "interference")
    assert (found.numbers["step_ms"], found.numbers["step_ms_source"]) == (18.7, "engine counter"), told(verdict)
    assert found.numbers["draft_acceptance"] == 0.74


def test_the_stream_of_the_measurement_itself_is_not_taken_for_one_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It outlives the prompt beside it, and the engine keeps its slot for a while after it was cut off."""
    monkeypatch.setattr(probing, "LINGERS_S", 0.1)
    with lying_server(Engine(window=2100, step_s=0.004, lingers_s=0.6)) as server:
        verdict = probe(server, length=2000, legs="admission", extras=Extras(interference=True))
    assert leg(verdict, "interference").status == "pass", told(verdict)


def test_answers_too_short_to_measure_take_nothing_from_the_verdict() -> None:
    verdict = asked(Engine(burst=False, eos_after=3), interference=True)
    found = leg(verdict, "interference")
    assert (found.status, found.code, found.required) == ("no evidence", "interference-unseen", False), told(verdict)


def test_what_others_disturb_is_not_measured() -> None:
    with lying_server(Engine(window=2100, prefill_s=0.0005)) as server:
        declared = endpoint(server.listen, 1, 2000)
        declared = declared.model_copy(update={"predict": (Prediction(name="prefill_tps_1k", expect=2000),)})

        def slots(handler: Handler) -> None:
            sent = [b for _, p, b in server.requests if p == "/v1/completions" and len(b["prompt"].split()) > 1400]
            # somebody comes while the prompt of the prediction is read, and stays
            busy = server.running + (1 if any(b["max_tokens"] == 2 for b in sent) else 0)
            handler.json(200, [{"id": i, "is_processing": i < busy} for i in range(4)])

        server.engine.override["/slots"] = slots
        verdict = probe_endpoint(declared, API, boot_ledger(1_000_000, 4, 2100), legs="admission", limits=ROOMY)
    found = leg(verdict, "prefill")
    assert (found.status, found.code) == ("no evidence", "engine-busy"), told(verdict)
    assert verdict.predictions[0].score == "not measured"
    assert verdict.word == "holds"


def forgets_beyond(words: int, finish: str = "stop") -> Callable[[Handler], None]:
    """A reasoning model that says a number back only if what follows it is short."""

    def chat(handler: Handler) -> None:
        body: dict[str, Any] = handler.server_.requests[-1][2]
        text = body["messages"][0]["content"]
        number = re.search(r"secret number is (\d+)", text)
        said = number[1] if number and len(text.split()) <= words else "I do not remember."
        message = {"role": "assistant", "content": "", "reasoning_content": f"It was {said}."}
        usage = {"prompt_tokens": len(text.split()) + 8, "completion_tokens": 5}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        handler.json(200, {"model": handler.server_.engine.model, "choices": [choice], "usage": usage})

    return chat


@pytest.mark.parametrize(
    ("words", "word", "status", "code"),
    [
        (1_000_000, "holds", "pass", ""),
        (1_000, "broken", "fail", "recall-lost"),
        (10, "holds", "no evidence", "recall-unseen"),
    ],
)
def test_what_a_full_height_prompt_begins_with_is_asked_back(words: int, word: str, status: str, code: str) -> None:
    engine = Engine(window=2100, prefill_s=0.0001, override={"/v1/chat/completions": forgets_beyond(words)})
    verdict = asked(engine, 2000, recall=True)
    found = leg(verdict, "recall")
    assert (verdict.word, found.status, found.code) == (word, status, code), told(verdict)


def test_a_model_that_was_cut_while_it_thought_has_forgotten_nothing() -> None:
    lie = forgets_beyond(1_000, finish="length")
    verdict = asked(Engine(window=2100, prefill_s=0.0001, override={"/v1/chat/completions": lie}), 2000, recall=True)
    assert (verdict.word, leg(verdict, "recall").code) == ("holds", "recall-unseen"), told(verdict)


def test_a_predicted_prefill_is_measured_at_its_size_and_scored() -> None:
    with lying_server(Engine(window=2100, prefill_s=0.0005)) as server:
        declared = endpoint(server.listen, 1, 2000)
        foretold = (Prediction(name="prefill_tps_1k", expect=2000, band=0.95), Prediction(name="kv_tokens", expect=1e6))
        declared = declared.model_copy(update={"predict": foretold})
        verdict = probe_endpoint(declared, API, boot_ledger(1_000_000, 4, 2100), limits=ROOMY)
        sent = [
            len(b["prompt"].split()) for _, p, b in server.requests if p == "/v1/completions" and b["max_tokens"] == 2
        ]
    assert any(1480 <= words <= 1500 for words in sent)
    assert [each.name for each in verdict.predictions] == ["prefill_tps_1k", "kv_tokens"]
    assert [each.score for each in verdict.predictions] == ["hit", "hit"], told(verdict)


def test_the_cost_is_told_leg_by_leg() -> None:
    declared = endpoint("127.0.0.1:1", 3, 200_000)
    every = costs(declared, "full", Extras(recall=True, interference=True))
    assert [each.leg for each in every] == ["ladder", "capacity", "refusal", "interference", "recall"]
    assert next(each for each in every if each.leg == "recall").tokens > 2 * 200_000
    assert [each.leg for each in costs(declared, "ledger", Extras(recall=True))] == ["ladder"]
    foretold = declared.model_copy(update={"predict": (Prediction(name="prefill_tps_43k", expect=1),)})
    assert next(each for each in costs(foretold) if each.leg == "prefill").tokens >= 43_500


# Identity

ARGV = ("/opt/llama-server", "-m", "m.gguf", "-c", "8192")
SEEN = Process(pid=7, ours=True, argv=ARGV, cmdline=ARGV, started_at=100.0, deployed_at=90.0, who="pid 7")


def offloaded(done: int, every: int, *codes: str) -> BootLedger:
    figures = {
        "offloaded_layers": Reading(Interval.exact(done, "log"), 1, "x"),
        "model_layers": Reading(Interval.exact(every, "log"), 1, "x"),
    }
    return BootLedger("llamacpp", figures=figures, remarks=tuple(Remark(c, "warning", "x", 1) for c in codes))


PROCESSES: dict[str, tuple[Process, BootLedger | None, str, str]] = {
    "as started": (SEEN, None, "pass", ""),
    "a script with its interpreter": (replace(SEEN, cmdline=("/bin/sh", *ARGV)), None, "pass", ""),
    "a wrapper that ends in another program": (
        replace(SEEN, cmdline=("/usr/bin/python3", "serve.py")),
        None,
        "pass",
        "",
    ),
    "old flags": (replace(SEEN, cmdline=(*ARGV[:-1], "4096")), None, "fail", "argv-differs"),
    "one flag more, that wins": (replace(SEEN, cmdline=(*ARGV, "-c", "4096")), None, "fail", "argv-differs"),
    "a wrapper with options of its own": (replace(SEEN, cmdline=("/bin/run", "--x", *ARGV[1:])), None, "pass", ""),
    "somebody else": (replace(SEEN, ours=False, who="pid 9 (old)"), None, "fail", "listener-foreign"),
    "hidden": (Process(None, None), None, "no evidence", "identity-hidden"),
    "started before": (replace(SEEN, deployed_at=200.0), None, "no evidence", "started-before-deploy"),
    "a clock that is a second off": (replace(SEEN, deployed_at=101.0), None, "pass", ""),
    "a container": (replace(SEEN, container=True, cmdline=("x",)), None, "pass", ""),
    "no device asked for": (SEEN, offloaded(0, 33, "cpu-fallback"), "pass", ""),
    "all layers": (replace(SEEN, device="a device", layers=99), offloaded(33, 33), "pass", ""),
    "none of them": (replace(SEEN, device="a device", layers=99), offloaded(0, 33), "fail", "cpu-fallback"),
    "some of them": (replace(SEEN, device="a device", layers=99), offloaded(18, 33), "fail", "partial-offload"),
    "as many as asked": (replace(SEEN, device="a device", layers=18), offloaded(18, 33), "pass", ""),
    "a first runner failed, a second took it": (
        replace(SEEN, device="a device", layers=99),
        offloaded(33, 33, "cpu-fallback"),
        "pass",
        "",
    ),
    "no device node open": (replace(SEEN, device="GPUs all", device_open=False), None, "fail", "cpu-fallback"),
    "device nodes hidden": (replace(SEEN, device="GPUs all", device_open=None), None, "pass", ""),
    "memory on the device": (
        replace(SEEN, device="GPUs all", device_open=True, device_bytes=1 << 30),
        None,
        "pass",
        "",
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_who_answers_is_judged(name: str) -> None:
    process, ledger, status, code = PROCESSES[name]
    found = judge_identity(process, ledger)
    assert (found.status, found.code) == (status, code), found.message
    again, runs = process_from(process_json(process))
    assert replayed(again, ledger, runs) == (status, code)
    assert found.required == (code == "started-before-deploy")


def replayed(process: Process, ledger: BootLedger | None, runs: bool | None) -> tuple[str, str]:
    found: Leg = judge_identity(process, ledger, runs)
    return found.status, found.code


def test_arguments_are_compared_and_not_kept() -> None:
    secret = replace(SEEN, argv=("x", "--api-key", "s3cret"), cmdline=("x", "--api-key", "s3cret"))
    assert argv_runs(secret) is True
    assert "s3cret" not in repr(process_json(secret))


def llama(**knobs: Any) -> Endpoint:
    declared = endpoint("127.0.0.1:1", 1, 16)
    return declared.model_copy(update={"engine": declared.engine.model_copy(update={"knobs": knobs})})


def test_a_device_is_only_expected_where_one_was_asked_for() -> None:
    assert device_of(llama()) == ("", None)
    assert device_of(llama(**{"gpu-layers": 0})) == ("", None)
    assert device_of(llama(**{"gpu-layers": 33}))[1] == 33
    assert device_of(llama(**{"n-gpu-layers": "all"}))[1] == 1 << 30
    declared = llama()
    vllm = declared.model_copy(update={"engine": declared.engine.model_copy(update={"kind": "vllm"})})
    assert device_of(vllm) == ("", None)
    assert device_of(vllm.model_copy(update={"container": Container(gpus="all")}))[0] == "GPUs all"


def test_a_listener_that_is_nobody_of_ours_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import subprocess
    import sys

    with lying_server() as server, subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        mine = look(endpoint(server.listen, 1, 16), (), server.port, os.getpid())
        foreign = look(endpoint(server.listen, 1, 16), (), server.port, other.pid)
        assert other.stdin is not None
        other.stdin.close()
    assert (mine.ours, mine.pid) == (True, os.getpid())
    assert mine.started_at is not None
    assert foreign.ours is False
    assert judge_identity(foreign, None).code == "listener-foreign"


def test_nobody_listens_and_nothing_is_claimed() -> None:
    with lying_server() as server:
        pass
    seen = look(endpoint(server.listen, 1, 16), (), server.port, 1)
    assert judge_identity(seen, None).code == "identity-hidden"
