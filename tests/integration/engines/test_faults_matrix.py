"""Faults that others had with an engine or a probe of one, each made here: verdict, code, and back within its bound.

Made with a real llama-server where it can be made to fail so, and else with a server that lies. ``STORIES`` says what
happened in each case and which tests are about it. Of every probe here the time of each leg is held against the bound
that the probe states (``support.bounds``).
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.schema import Contract, Endpoint, ModelRef, Service
from archonctl.deployment.schema import Engine as ServedBy
from archonctl.engines.llamacpp.adapter import ADAPTER
from archonctl.ledger import BootLedger, read_ledger
from archonctl.ledger.refusal import refusal
from archonctl.probe.limits import Limits
from archonctl.probe.run import probe_endpoint
from archonctl.probe.values import Extras, Leg, Verdict
from archonctl.release.unit import is_final_refusal
from support import lying_server as lies
from support.bounds import BUSY_S, in_time
from support.engines import wait_for
from support.lying_server import MODEL, Engine, Handler, lying_server
from support.probing import API, ROOMY, SHORT, endpoint, leg, limits_for, probe, told

STORIES: Mapping[str, tuple[str, ...]] = {
    "the default log of llama-server names no cache any more": ("test_a_log_that_names_no_cache_is_no_evidence",),
    "the same words count something else since a release": ("test_tokens_of_a_hybrid_mean_what_their_version_means",),
    "reasoning models were called dead for empty answers": ("test_a_healthy_engine_is_never_called_broken",),
    "a live health path before a dead worker": ("test_a_server_that_lies_is_found_out_in_time",),
    "a model list that asks for a key was read as down": ("test_a_key_that_is_missing_is_not_a_dead_engine",),
    "a request larger than the pool waits for ever": ("test_a_server_that_lies_is_found_out_in_time",),
    "killed by the kernel at its first long request": ("test_an_engine_that_dies_of_the_request_is_broken",),
    "a wrapper answered from another model": ("test_a_server_that_lies_is_found_out_in_time",),
    "decode collapses while the pool is full, and only a counter moves": (
        "test_a_pool_that_preempts_is_broken_although_all_is_answered",
    ),
    "prefix caching was switched off by the engine": (
        "test_prefix_caching_that_the_engine_switched_off_is_told",
        "test_prefixes_that_are_not_cached_are_seen_by_their_hit_rate",
    ),
    "what one refusal advised led to the next": ("test_advice_is_checked_against_every_limit",),
}
"""Faults of a start are in ``test_faults_at_start.py``, a real vLLM's in ``test_up_vllm.py``."""

TinyGguf = Callable[..., Path]
PATIENT = Limits(generation_s=240, calibrate_s=240, floor_s=240, read_s=60, tokenize_s=120, idle_s=120)


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
    engine, where, code, longest_s = LIES[name]
    with lying_server(engine) as server:
        verdict = probe(server, limits=limits_for(code))
    found = leg(verdict, where)
    assert (verdict.word, found.status, found.code) == ("broken", "fail", code), told(verdict)
    assert found.seconds <= longest_s + BUSY_S
    in_time(verdict, limits_for(code))


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
        verdict = probe(server, limits=ROOMY)
    assert verdict.word == "holds", told(verdict)
    in_time(verdict, ROOMY)


def test_a_key_that_is_missing_is_not_a_dead_engine() -> None:
    with lying_server(Engine(api_key="s3cret-key")) as server:
        verdict = probe(server, limits=ROOMY)
    assert verdict.word == "no evidence", told(verdict)
    assert leg(verdict, "health").status == "pass"
    assert leg(verdict, "auth").code == "auth-required"
    in_time(verdict, ROOMY)


def test_a_pool_that_preempts_is_broken_although_all_is_answered() -> None:
    """The radiance of the pair era does so too (``test_archon_endpoint.py``)."""
    preempted = iter(range(1, 1_000_000))

    def metrics(handler: Handler) -> None:
        handler.whole(200, f'vllm:num_preemptions_total{{engine="0"}} {next(preempted)}.0\n'.encode(), "text/plain")

    with lying_server(Engine(override={"/metrics": metrics})) as server:
        verdict = probe(server, limits=ROOMY, api=replace(API, metrics="/metrics"))
    found = leg(verdict, "capacity")
    assert (verdict.word, found.code) == ("broken", "preempted"), told(verdict)
    in_time(verdict, ROOMY)


class Forgetful(set[str]):
    """Prompts that an engine has seen and does not keep."""

    def __contains__(self, prompt: object) -> bool:
        return False


@pytest.mark.parametrize(("cached", "warm"), [(True, 0.9), (False, 0.0)])
def test_prefixes_that_are_not_cached_are_seen_by_their_hit_rate(cached: bool, warm: float) -> None:
    """The engine's one line of it may be missed: the same prompt twice is not."""
    with lying_server(Engine(cache=True, step_s=0.005)) as server:
        server.known = set() if cached else Forgetful()
        verdict = probe(server, limits=ROOMY, extras=Extras(interference=True))
    numbers = leg(verdict, "interference").numbers
    assert float(numbers["prefix_hit_rate_cold"]) < 0.1, told(verdict)
    rate = float(numbers["prefix_hit_rate_warm"])
    assert rate >= warm
    assert cached or rate < 0.1
    in_time(verdict, ROOMY)


# ------------------------------------------------------------------------------------------------- what logs say
def ledger_of(*lines: str, engine: str = "vllm") -> BootLedger:
    return read_ledger(lines, engine)


def by_its_log(ledger: BootLedger, seqs: int, length: int) -> tuple[str, Leg]:
    """Verdict and ledger leg of a probe that asks the engine for no more than a word."""
    with lying_server(Engine(window=length + 1)) as server:
        declared = endpoint(server.listen, seqs, length)
        declared = declared.model_copy(update={"engine": ServedBy(kind="vllm")})
        verdict = probe_endpoint(declared, API, ledger, limits=ROOMY, legs="ledger")
    in_time(verdict, ROOMY)
    return verdict.word, leg(verdict, "ledger")


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
    assert ledger.facts["kv_tokens_meaning"] == meaning
    # 3.00 may be 2.995: that is too rounded to promise, and surely no failure
    enough, found = by_its_log(ledger, 3, 200_000)
    assert (enough, found.code) in (("holds", ""), ("no evidence", "ledger-rounded"))
    over, found = by_its_log(ledger, 4, 200_000)
    assert (over, found.code) == ("broken", "kv-tokens-short")


def test_prefix_caching_that_the_engine_switched_off_is_told() -> None:
    off = "Hybrid or mamba-based model detected without support for prefix caching: disabling."
    kv = "GPU KV cache size: 66,561 tokens, Maximum concurrency for 8,192 tokens per request: 8.12x"
    ledger = ledger_of(off, kv)
    assert ledger.has("prefix-caching-disabled")
    word, _ = by_its_log(ledger, 2, 8_192)
    assert word == "holds"  # it says nothing against the contract


def test_advice_is_checked_against_every_limit() -> None:
    """First too little cache, then too few states: both are in the first log, and the first is the cause."""
    ledger = ledger_of(
        "ValueError: To serve at least one request with the model's max seq len (262144), 6.10 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (5.20 GiB). Based on the available memory, the estimated "
        "maximum model length is 201600.",
        "ValueError: max_num_seqs (256) exceeds available Mamba cache blocks (161).",
    )
    assert [r.code for r in ledger.remarks] == ["kv-too-small", "mamba-blocks-too-few"]
    cause = refusal(ledger)
    assert cause is not None
    assert (cause.code, is_final_refusal(cause.code)) == ("kv-too-small", True)
    assert ledger.figures["estimated_max_model_len"].value.best == 201_600
    assert ledger.figures["mamba_blocks"].value.best == 161


# ------------------------------------------------------------------------------------------------- a real llama-server
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
                verdict = probe_endpoint(declared, ADAPTER.api, ledger, on_progress=on_progress, limits=PATIENT)
            finally:
                process.kill()
        in_time(verdict, PATIENT)
        return verdict

    return run


@pytest.mark.engine
def test_a_log_that_names_no_cache_is_no_evidence(probed: Probe) -> None:
    verdict = probed(2, 1024, "-c", "2048", "-np", "2")
    assert verdict.word == "no evidence", told(verdict)
    assert leg(verdict, "ledger").code == "ledger-missing"
    assert leg(verdict, "capacity").status == "pass"


@pytest.mark.engine
def test_an_engine_that_dies_of_the_request_is_broken(probed: Probe) -> None:
    verdict = probed(2, 8192, "-c", "16384", "-np", "2", "-lv", "4", kill=True)
    assert verdict.word == "broken", told(verdict)
    assert leg(verdict, "capacity").code in ("connection-dropped", "stream-cut")
    assert leg(verdict, "alive").code == "engine-died"
