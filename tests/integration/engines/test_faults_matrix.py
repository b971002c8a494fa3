"""Faults that others had with an engine or a probe of one, each made here: verdict, code, and back within its bound.

Made with a real llama-server where it can be made to fail so, with the radiance simulator where radiance is what
fails, and else with a server that lies. ``STORIES`` says what happened in each case and which tests are about it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from archonctl.deployment.schema import Contract, Endpoint, ModelRef, Service
from archonctl.deployment.schema import Engine as ServedBy
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.ledger import BootLedger, read_ledger
from archonctl.ledger.refusal import refusal
from archonctl.probe.ledger_leg import ledger_leg
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Verdict
from archonctl.release.unit import is_final_refusal
from archonctl.service import procfs
from support import lying_server as lies
from support.boots import FOLDER, read_records
from support.engines import wait_for
from support.lying_server import MODEL, Engine, Handler, lying_server
from support.probing import API, boot_ledger, endpoint, leg, probe, told
from support.simulated_radiance import write_model, write_radiance

STORIES: Mapping[str, tuple[str, ...]] = {
    "the default log of llama-server names no cache any more": ("test_a_log_that_names_no_cache_is_no_evidence",),
    "the same words count something else since a release": ("test_tokens_of_a_hybrid_mean_what_their_version_means",),
    "four slots share a context, or have one each, by a flag": ("test_a_slot_has_its_share_of_the_context",),
    "a long request is refused although the context as a whole is larger": (
        "test_a_slot_has_its_share_of_the_context",
    ),
    "reasoning models were called dead for empty answers": ("test_a_healthy_engine_is_never_called_broken",),
    "a live health path before a dead worker": ("test_a_server_that_lies_is_found_out_in_time",),
    "a model list that asks for a key was read as down": ("test_a_key_that_is_missing_is_not_a_dead_engine",),
    "the driver was not ready and the processor serves": ("test_an_engine_that_fell_back_to_the_cpu_is_broken",),
    "a request larger than the pool waits for ever": ("test_a_server_that_lies_is_found_out_in_time",),
    "some layers stayed on the processor and nothing said so": ("test_layers_left_on_the_processor_are_told",),
    "alarming lines of a start that succeeded": ("test_an_alarm_that_was_overcome_refuses_nothing",),
    "memory of the last container is not free yet": ("test_memory_that_may_be_free_later_is_tried_again",),
    "a stop while it loads leaves workers": ("test_an_interrupt_while_it_loads_leaves_nothing",),
    "replicas of one fraction got less and less": ("test_each_replica_is_judged_by_its_own_log",),
    "killed by the kernel at its first long request": ("test_an_engine_that_dies_of_the_request_is_broken",),
    "a wrapper answered from another model": ("test_a_server_that_lies_is_found_out_in_time",),
    "decode collapses while the pool is full, and only a counter moves": (
        "test_a_pool_that_preempts_is_broken_although_all_is_answered",
    ),
    "prefix caching was switched off by the engine": ("test_prefix_caching_that_the_engine_switched_off_is_told",),
    "what one refusal advised led to the next": ("test_advice_is_checked_against_every_limit",),
    "a boot was refused, and its last line says only that it failed": ("test_a_refused_boot_is_told_by_its_cause",),
    "a budget that is short": ("test_a_budget_that_is_short_ends_the_boot_by_name",),
}

TinyGguf = Callable[..., Path]
BACK_IN_S = 60.0
"""No request of these probes may take longer than 20 s; this leaves room for a machine that does much else."""
SHORT = Limits(
    connect_s=2, read_s=1, tokenize_s=3, generation_s=1.5, calibrate_s=5, floor_s=2, cap_s=20, hang_s=0.5, idle_s=1,
    body_bytes=256 * 1024, stream_bytes=1024 * 1024,
)  # fmt: skip
PATIENT = Limits(generation_s=240, calibrate_s=240, floor_s=240, read_s=60, tokenize_s=120, idle_s=120)


class Result(Protocol):
    """What the command answered."""

    code: int
    stdout: str
    stderr: str


def test_every_story_names_tests_that_exist() -> None:
    named = {name for names in STORIES.values() for name in names}
    here = {name for name in globals() if name.startswith("test_")}
    assert named == here - {"test_every_story_names_tests_that_exist"}


# ------------------------------------------------------------------------------------------------- servers that lie
CHAT, MODELS, HEALTH, TEXT = "/v1/chat/completions", "/v1/models", "/health", "/v1/completions"


def on(path: str, lie: Callable[[Handler], None], **engine: Any) -> Engine:
    return Engine(override={path: lie}, **engine)


def says(content: object, model: str = MODEL) -> Callable[[Handler], None]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return lies.answers_json({"model": model, "choices": [choice], "usage": {"completion_tokens": 3}})


Lie = tuple[Engine, str, str, float]
LIES: Mapping[str, Lie] = {
    # the engine; the leg that finds it; the code; the longest that leg may take (its deadline and what it repeats)
    "slow-loris body": (on(HEALTH, lies.trickle), "health", "request-timeout", 3 * SHORT.read_s),
    "slow-loris head": (on(MODELS, lies.trickle_head), "models", "request-timeout", 3 * SHORT.read_s),
    "slow-loris answer": (on(CHAT, lies.trickle), "generation", "request-timeout", 3 * SHORT.generation_s),
    "endless body": (on(MODELS, lies.endless), "models", "body-too-large", 3 * SHORT.read_s),
    "endless answer": (on(CHAT, lies.endless), "generation", "body-too-large", 3 * SHORT.generation_s),
    "wrong content type": (on(MODELS, lies.answers(200, b"<html>", "text/html")), "models", "answer-wrong-type", 3.0),
    "a stream of another type": (
        on(TEXT, lies.answers(200, b"<html>", "text/html")), "capacity", "answer-wrong-type", SHORT.cap_s,
    ),
    "invalid JSON": (on(MODELS, lies.answers(200, b'{"data": [')), "models", "answer-not-json", 3.0),
    "invalid UTF-8": (on(MODELS, lies.answers(200, b'{"data": "\xff"}')), "models", "answer-not-utf8", 3.0),
    "half a stream": (Engine(cut_after=20, lie_above=150), "capacity", "connection-dropped", SHORT.cap_s),
    "an error inside a stream": (Engine(error_after=20, lie_above=150), "capacity", "pool-exhausted", SHORT.cap_s),
    "an error inside 200": (
        on(CHAT, lies.answers_json({"error": {"message": "boom"}})), "generation", "error-in-200", 3.0,
    ),
    "another model in the list": (Engine(model="fallback"), "model-id", "model-id-mismatch", 3.0),
    "another model in the answer": (on(CHAT, says("Hi", "fallback")), "generation", "model-id-mismatch", 3.0),
    "another model for long prompts alone": (
        Engine(falls_back_to="small-model", lie_above=150),
        "capacity",
        "model-id-mismatch",
        SHORT.cap_s,
    ),
    "a redirect": (on(HEALTH, lies.answers(302, b"", Location="http://192.0.2.1/")), "health", "redirected", 3.0),
    "a redirected answer": (on(MODELS, lies.answers(307, b"", Location="/login")), "models", "redirected", 3.0),
    "a dead worker, 500": (
        on(CHAT, lies.answers_json({"error": {"message": "EngineCore died"}}, 500)),
        "generation", "generation-failed", 3.0,
    ),
    "a dead worker, silence": (on(CHAT, lies.silent), "generation", "request-timeout", 3 * SHORT.generation_s),
    "a dead worker, dropped": (on(CHAT, lies.closed), "generation", "connection-dropped", 3.0),
    "a scheduler that never admits": (Engine(never_above=150), "capacity", "never-admitted", SHORT.cap_s + 5),
    "a scheduler that stalls all but one": (
        Engine(stall_others=True, step_s=0.03, lie_above=150), "capacity", "sequence-stalled", SHORT.cap_s + 5,
    ),
    "a prompt that is cut in silence": (
        # below half of the contract, which is the shortest prompt that the probe sends, however slow the machine
        Engine(window=150, stated_window=512, truncate=True), "capacity", "prompt-truncated", SHORT.cap_s,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_is_found_out_in_time(name: str) -> None:
    engine, where, code, bound_s = LIES[name]
    with lying_server(engine) as server:
        began = time.monotonic()
        verdict = probe(server, limits=SHORT)
        took = time.monotonic() - began
    found = leg(verdict, where)
    assert (verdict.word, found.status, found.code) == ("broken", "fail", code), told(verdict)
    assert found.seconds <= bound_s
    assert took < BACK_IN_S


@pytest.mark.parametrize(
    "engine",
    [
        Engine(reasoning=True),
        Engine(reasoning=True, no_completions=True),
        on(CHAT, lies.answers_json({"model": MODEL, "usage": {"completion_tokens": 32}, "choices": [
            {"index": 0, "message": {"content": None, "reasoning": "hm"}, "finish_reason": "length"}]})),
        Engine(refuse_fields=("cache_prompt", "ignore_eos", "continuous_usage_stats")),
    ],
    ids=["reasoning", "reasoning, chat only", "vLLM's name for it", "fields refused by name"],
)  # fmt: skip
def test_a_healthy_engine_is_never_called_broken(engine: Engine) -> None:
    with lying_server(engine) as server:
        verdict = probe(server, limits=SHORT)
    assert verdict.word == "holds", told(verdict)


def test_a_key_that_is_missing_is_not_a_dead_engine() -> None:
    with lying_server(Engine(api_key="s3cret-key")) as server:
        verdict = probe(server, limits=SHORT)
    assert verdict.word == "no evidence", told(verdict)
    assert leg(verdict, "health").status == "pass"
    assert leg(verdict, "auth").code == "auth-required"


def test_a_pool_that_preempts_is_broken_although_all_is_answered() -> None:
    """The radiance of the pair era does so too (``test_archon_endpoint.py``)."""
    preempted = iter(range(1, 1_000_000))

    def metrics(handler: Handler) -> None:
        handler.whole(200, f'vllm:num_preemptions_total{{engine="0"}} {next(preempted)}.0\n'.encode(), "text/plain")

    with lying_server(Engine(override={"/metrics": metrics})) as server:
        verdict = probe(server, limits=SHORT, api=replace(API, metrics="/metrics"))
    found = leg(verdict, "capacity")
    assert (verdict.word, found.code) == ("broken", "preempted"), told(verdict)
    assert found.seconds <= SHORT.cap_s


@pytest.mark.parametrize(("tokens", "word"), [(97_503, "holds"), (53_149, "broken"), (20_961, "broken")])
def test_each_replica_is_judged_by_its_own_log(tokens: int, word: str) -> None:
    with lying_server(Engine(window=40_000)) as server:
        declared = endpoint(server.listen, 2, 30_000)
        ledger = boot_ledger(tokens, 4, 40_000)
        verdict = probe_endpoint(declared, ADAPTER.api, ledger, limits=SHORT, legs="ledger")
    found = leg(verdict, "ledger")
    assert verdict.word == word, told(verdict)
    if word == "broken":
        assert (found.code, found.expected, found.actual) == (
            "kv-tokens-short", "60,000 KV tokens", f"{tokens:,} KV tokens",
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------- what logs say
def ledger_of(*lines: str, engine: str = "vllm") -> BootLedger:
    return read_ledger(lines, engine)


@pytest.mark.parametrize(
    ("version", "tokens", "meaning"),
    [("0.20.0", "66,561", "blocks"), ("0.20.1", "600,000", "concurrency x length")],
)
def test_tokens_of_a_hybrid_mean_what_their_version_means(version: str, tokens: str, meaning: str) -> None:
    """The same memory, three requests of 200,000: one release prints nine times more than the one before it."""
    ledger = ledger_of(
        f"vLLM API server version {version}",
        "Setting attention block size to 1600 tokens to ensure that attention page size is >= mamba page size.",
        f"GPU KV cache size: {tokens} tokens",
        "Maximum concurrency for 200,000 tokens per request: 3.00x",
    )
    found = ledger_leg(ledger, endpoint("127.0.0.1:1", 3, 200_000).contract, "vllm")
    assert ledger.facts["kv_tokens_meaning"] == meaning
    # 3.00 may be 2.995: that is too rounded to promise, and surely no failure
    assert (found.status, found.code) in (("pass", ""), ("no evidence", "ledger-rounded"))
    over = ledger_leg(ledger, endpoint("127.0.0.1:1", 4, 200_000).contract, "vllm")
    assert (over.status, over.code) == ("fail", "kv-tokens-short")


def test_an_alarm_that_was_overcome_refuses_nothing() -> None:
    ledger = ledger_of(
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected",
        "loading model '/models/x.gguf'",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.0 MiB on device 0: cudaMalloc failed: out of memory",
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
        "llama_kv_cache: size =    8.00 MiB (  8192 cells,   4 layers,  4/1 seqs), K (f16): 4.0 MiB, V (f16): 4.0 MiB",
        "initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'",
        "model loaded",
        engine="llamacpp",
    )
    assert refusal(ledger) is None
    assert {r.code for r in ledger.remarks if r.severity == "warning"} >= {"out-of-memory"}
    assert ledger_leg(ledger, endpoint("127.0.0.1:1", 4, 2048).contract, "llamacpp").status == "pass"


def test_layers_left_on_the_processor_are_told() -> None:
    ledger = ledger_of("load_tensors: offloaded 18/33 layers to GPU", engine="llamacpp")
    assert ledger.has("partial-offload")
    assert [ledger.figures[name].value.best for name in ("offloaded_layers", "model_layers")] == [18, 33]


def test_memory_that_may_be_free_later_is_tried_again() -> None:
    words = (
        "ValueError: Free memory on device cuda:0 (8.88/121.69 GiB) on startup is less than desired GPU memory "
        "utilization (0.85, 103.44 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    cause = refusal(ledger_of(words))
    assert cause is not None
    assert cause.code == "free-memory-too-little"
    assert not is_final_refusal(cause.code)
    assert is_final_refusal("kv-too-small")


def test_prefix_caching_that_the_engine_switched_off_is_told() -> None:
    off = "Hybrid or mamba-based model detected without support for prefix caching: disabling."
    on_again = "Mamba cache mode is set to 'align' for Qwen3NextForCausalLM by default when prefix caching is enabled"
    kv = "GPU KV cache size: 66,561 tokens"
    assert ledger_of(off, kv).has("prefix-caching-disabled")
    assert ledger_of(on_again, kv).has("mamba-state-in-pool")


def test_a_refused_boot_is_told_by_its_cause() -> None:
    record = next(r for r in read_records(FOLDER / "vllm.jsonl.gz") if r.case.id == "vllm-too-small")
    cause = refusal(read_ledger(record.log.split("\n")))
    assert cause is not None
    assert cause.code == "kv-too-small"


def test_advice_is_checked_against_every_limit() -> None:
    """First too little cache, then too few states: both are in the first log, and the first is the cause."""
    ledger = ledger_of(
        "ValueError: To serve at least one request with the model's max seq len (262144), 6.10 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (5.20 GiB). Based on the available memory, the estimated "
        "maximum model length is 201600.",
        "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (161).",
    )
    assert [r.code for r in ledger.remarks] == ["kv-too-small", "mamba-blocks-too-few"]
    assert ledger.figures["estimated_max_model_len"].value.best == 201_600
    assert ledger.figures["mamba_blocks"].value.best == 161


# ------------------------------------------------------------------------------------------------- a real llama-server
DECLARATION = """
[contract]
seqs = {seqs}
len = {length}
kv_dtype = "f16"
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{binary}"
[engine.knobs]
{knobs}
[model]
path = "{model}"
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
load_timeout_s = 60
"""

Up = Callable[..., "tuple[Result, dict[str, Any]]"]


@pytest.fixture
def up(run_cli: Callable[..., Result], llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path, free_port: int) -> Up:
    """``up(seqs, len, knobs)``: ``archonctl up --once`` on a real llama-server; its result and its legs by name."""

    def run(seqs: int, length: int, knobs: str) -> tuple[Result, dict[str, Any]]:
        path = tmp_path / "small.toml"
        values = {"seqs": seqs, "length": length, "knobs": knobs, "port": free_port, "binary": llama_server}
        path.write_text(DECLARATION.format(**values, model=tiny_gguf("llama")))
        words = ("up", path, "--once", "--foreground", "--force", "--json")
        done = run_cli(*words, env={"ARCHON_STATE_DIR": str(tmp_path / "state")}, timeout=120)
        assert done.stdout, done.stderr
        return done, {leg["id"]: leg for leg in json.loads(done.stdout)["probe"]["legs"]}

    return run


Probe = Callable[..., Verdict]


@pytest.fixture
def probed(llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path, free_port: int) -> Probe:
    """``probed(seqs, len, *arguments)``: a real llama-server started by hand, and the verdict of a probe of it.

    ``kill``: end it with SIGKILL as soon as a full-height prompt is past its prefill.
    """

    def run(seqs: int, length: int, *arguments: str, kill: bool = False) -> Verdict:
        model, log = tiny_gguf("llama"), tmp_path / "engine.log"
        argv = [llama_server, "-m", model, "--host", "127.0.0.1", "--port", str(free_port), "-t", "1", *arguments]
        declared = Endpoint(
            contract=Contract(seqs=seqs, len=length),
            engine=ServedBy(kind="llamacpp"),
            model=ModelRef(path=str(model)),
            service=Service(listen=f"127.0.0.1:{free_port}"),
        )
        with log.open("wb") as file, subprocess.Popen(argv, stdout=file, stderr=file) as process:

            def on_progress(event: object) -> None:
                if kill and "past prefill" in getattr(event, "text", ""):
                    process.kill()

            try:
                wait_for(lambda: "model loaded" in log.read_text("utf-8", "replace"), 60)
                ledger = read_ledger(log, "llamacpp")
                return probe_endpoint(declared, ADAPTER.api, ledger, on_progress=on_progress, limits=PATIENT)
            finally:
                process.kill()

    return run


@pytest.mark.engine
def test_a_log_that_names_no_cache_is_no_evidence(probed: Probe) -> None:
    verdict = probed(2, 1024, "-c", "2048", "-np", "2")
    assert verdict.word == "no evidence", told(verdict)
    assert leg(verdict, "ledger").code == "ledger-missing"
    assert leg(verdict, "capacity").status == "pass"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("knobs", "code"), [("ctx-size = 5120\nparallel = 4", 1), ("ctx-size = 5120\nparallel = 4\nkv-unified = true", 0)]
)
def test_a_slot_has_its_share_of_the_context(up: Up, knobs: str, code: int) -> None:
    done, legs = up(2, 2048, knobs)
    assert done.code == code, done.stderr
    if code:
        assert legs["ledger"]["code"] == "window-short"
        assert (legs["ledger"]["expected"], legs["ledger"]["actual"]) == (
            "2,048 tokens a sequence", "1,280 tokens a sequence",
        )  # fmt: skip
        assert legs["capacity"]["status"] == "fail"


@pytest.mark.engine
def test_an_engine_that_fell_back_to_the_cpu_is_broken(up: Up) -> None:
    done, legs = up(2, 1024, "n-gpu-layers = 99")
    assert done.code == 1
    assert (legs["identity"]["status"], legs["identity"]["code"]) == ("fail", "cpu-fallback")
    assert legs["capacity"]["status"] == "pass"  # which is why nobody noticed


@pytest.mark.engine
def test_an_engine_that_dies_of_the_request_is_broken(probed: Probe) -> None:
    verdict = probed(2, 8192, "-c", "16384", "-np", "2", "-lv", "4", kill=True)
    assert verdict.word == "broken", told(verdict)
    assert leg(verdict, "capacity").code in ("connection-dropped", "stream-cut")
    assert leg(verdict, "alive").code == "engine-died"


# ------------------------------------------------------------------------------------------------- radiance, simulated
RAD = "qwen3.8-next-flash-fp8-iq4r-moe.rad"


def radiance(folder: Path, port: int, declaration: str, *words: str, **simulate: object) -> list[str | Path]:
    """``archonctl up`` of a shipped declaration on the simulator."""
    write_model(folder / "models" / RAD)
    here = {
        "engine.image": "",
        "engine.binary": write_radiance(folder, **simulate),
        "model.path": folder / "models" / RAD,
        "service.listen": f"127.0.0.1:{port}",
        "service.user": "",
    }
    sets = [word for key, value in here.items() for word in ("--set", f"{key}={value}")]
    return ["up", f"env/{declaration}.toml", "--foreground", "--once", *sets, *words]


def test_a_budget_that_is_short_ends_the_boot_by_name(
    run_cli: Callable[..., Result], tmp_path: Path, free_port: int
) -> None:
    words = radiance(tmp_path, free_port, "archon", "--force", version="1.8.1", card_mib=8192)
    done = run_cli(*words, env={"ARCHON_STATE_DIR": str(tmp_path / "state")}, timeout=120)
    assert done.code == 1
    assert "exit 70" in done.stderr
    assert "the log names" in done.stderr


def test_an_interrupt_while_it_loads_leaves_nothing(tmp_path: Path, free_port: int, repository: Path) -> None:
    words = radiance(tmp_path, free_port, "archon", version="1.8.1", load_s=60)
    command = [Path(sys.executable).with_name("archonctl"), *words]
    env = {**os.environ, "ARCHON_STATE_DIR": str(tmp_path / "state")}

    def engines() -> list[int]:
        return [s.pid for s in procfs.all_stats() if f"--port {free_port}" in procfs.command(s.pid, limit=4000)]

    with subprocess.Popen(
        command, cwd=repository, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(engines, 60)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) != 0
        finally:
            process.kill()
    assert not engines()
