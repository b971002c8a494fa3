"""Capacity as logs and engines state it: hybrids, replicas, limits of one request, and reports against logs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from archonctl.deployment.schema import Contract
from archonctl.deployment.schema import Engine as DeclaredEngine
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.values import BootLedger, Reading
from archonctl.memory.interval import Interval
from archonctl.probe.ledger_leg import ledger_leg, replicas_of
from archonctl.probe.metrics import load_of_json, load_of_metrics, samples
from archonctl.probe.replay import replay
from archonctl.probe.report import (
    EngineReport,
    judge_report,
    read_cache_config,
    read_props,
    read_sglang_info,
    served_tokens,
    with_slots,
)
from archonctl.probe.run import probe_endpoint
from archonctl.probe.stored import evidence, read_stored
from archonctl.probe.verdict import verdict_json
from support import lying_server as lies
from support.lying_server import MODEL, Engine, lying_server
from support.probing import API, ROOMY, boot_ledger, endpoint, leg, probe, told

CONTRACT = Contract(seqs=3, len=200_000)


def read(engine: str, *lines: str, version: str = "") -> BootLedger:
    reader = LedgerReader(engine, version)
    for line in lines:
        reader.feed(line)
    return reader.result()


VLLM = "INFO 11-30 12:38:37 [kv_cache_utils.py:1] "
TOKENS = "GPU KV cache size: {tokens} tokens"
CONCURRENCY = "Maximum concurrency for {length} tokens per request: {many}x"


def vllm(tokens: str, length: str, many: str, *more: str, version: str = "0.32.0") -> BootLedger:
    both = f"{TOKENS.format(tokens=tokens)}, {CONCURRENCY.format(length=length, many=many)}"
    return read("vllm", *(VLLM + each for each in more), VLLM + both, version=version)


def asked(text: str) -> str:
    return f"(APIServer pid=1) INFO 11-30 12:07:10 [api_utils.py:286] non-default args: {{{text}}}"


@pytest.mark.parametrize(
    ("ledger", "status", "code"),
    [
        # vLLM holds no more sequences at once than it was told, and none longer, whatever its pool
        (vllm("700,000", "200,000", "3.50", asked("'max_num_seqs': 2")), "fail", "slots-short"),
        (vllm("700,000", "200,000", "3.50", asked("'max_num_seqs': 3")), "pass", ""),
        (vllm("700,000", "100,000", "7.00"), "fail", "window-short"),
        (
            read("sglang", "max_total_num_tokens=700000, max_running_requests=2, context_len=200000"),
            "fail", "slots-short",
        ),
        (
            read("sglang", "max_total_num_tokens=700000, max_running_requests=3, context_len=199999"),
            "fail", "window-short",
        ),
        (
            read("llamacpp", "initializing, n_slots = 2, n_ctx_slot = 200192, kv_unified = 'false'"),
            "fail", "slots-short",
        ),
        (
            read("radiance", "I kv: the pool backs 100.0% of the worst case (2 sequences all at 400000 tokens), "
                             "2.0 full-length sessions"),
            "fail", "slots-short",
        ),
        (
            read("radiance", "I kv: the pool backs 100.0% of the worst case (8 sequences all at 100000 tokens), "
                             "8.0 full-length sessions"),
            "fail", "window-short",
        ),
    ],
)  # fmt: skip
def test_a_limit_of_the_engine_below_the_contract_breaks_it(ledger: BootLedger, status: str, code: str) -> None:
    leg = ledger_leg(ledger, CONTRACT, ledger.engine)
    assert (leg.status, leg.code) == (status, code), leg.message


HYBRID = "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size."

SAYS = "Initializing a V1 LLM engine (v{}) with config: model='/models/m'"
GROUPS = "kv cache group sizes (16, 16, 16)"


@pytest.mark.parametrize(
    ("ledger", "status", "code"),
    [
        # a hybrid up to 0.20.0 prints a ninth of what it serves: the concurrency decides
        (vllm("70,000", "200,000", "3.15", HYBRID, version="0.19.0"), "pass", ""),
        (vllm("60,000", "200,000", "2.70", HYBRID, version="0.19.0"), "fail", "kv-tokens-short"),
        # from 0.20.1 on the tokens are the product, and exact
        (vllm("630,012", "200,000", "3.15", HYBRID), "pass", ""),
        (vllm("540,012", "200,000", "2.70", HYBRID), "fail", "kv-tokens-short"),
        (vllm("600,000", "200,000", "3.00"), "pass", ""),
        # the concurrency is for longer requests than the contract's
        (vllm("700,000", "400,000", "1.75", HYBRID), "no evidence", "ledger-other-length"),
        (vllm("1,240,000", "400,000", "3.10", HYBRID), "pass", ""),
        (vllm("700,000", "400,000", "1.75"), "no evidence", "ledger-other-length"),
        # layers that differ: said so, or seen from tokens that are no number of blocks
        (vllm("700,000", "400,000", "1.75", GROUPS), "no evidence", "ledger-other-length"),
        (vllm("700,006", "400,000", "1.75", version="0.25.0"), "no evidence", "ledger-other-length"),
        # ... or perhaps: those of such layers are one by chance, and only from 0.30 on would the groups be printed
        (vllm("700,000", "400,000", "1.75", SAYS.format("0.25.0")), "no evidence", "ledger-other-length"),
        (vllm("699,999", "400,000", "1.75", SAYS.format("0.25.0")), "no evidence", "ledger-other-length"),
        (vllm("700,000", "400,000", "1.75", SAYS.format("0.30.0")), "pass", ""),
        # one kind of layers, of a version in which two kinds would print much less than is served
        (vllm("700,000", "400,000", "1.75", SAYS.format("0.19.0")), "pass", ""),
        (vllm("200,000", "200,000", "1.00", GROUPS), "fail", "kv-tokens-short"),
        (vllm("500,000", "400,000", "1.25", HYBRID), "fail", "kv-tokens-short"),
    ],
)
def test_a_hybrid_is_judged_by_what_it_serves(ledger: BootLedger, status: str, code: str) -> None:
    leg = ledger_leg(ledger, CONTRACT, "vllm")
    assert (leg.status, leg.code) == (status, code), leg.message


@pytest.mark.parametrize(
    ("blocks", "status"),
    [
        ((43_750, 16), "pass"),  # 700,000 tokens: what one group of layers holds
        ((43_864, 16), "no evidence"),  # a window of 1,024 beside it takes 65 blocks more of each request
        ((7_000, 128), "no evidence"),  # layers with windows only: fewer blocks a request than its length
        ((0, 16), "no evidence"),
        (None, "no evidence"),
    ],
)
def test_the_blocks_of_an_engine_tell_whether_its_layers_are_alike(blocks: tuple[int, int] | None, status: str) -> None:
    leg = ledger_leg(vllm("700,000", "400,000", "1.75", SAYS.format("0.25.0")), CONTRACT, "vllm", blocks=blocks)
    assert leg.status == status, leg.message
    alike = ledger_leg(vllm("700,000", "400,000", "1.75", GROUPS), CONTRACT, "vllm", blocks=blocks)
    assert alike.status == "no evidence"  # the log's own word stands


@pytest.mark.parametrize(("blocks", "word"), [(7_000, "holds"), (7_064, "no evidence"), (0, "no evidence")])
def test_what_the_log_leaves_open_is_settled_by_what_the_engine_says_of_its_blocks(blocks: int, word: str) -> None:
    from archonctl.engines.vllm.adapter import ADAPTER

    log = vllm("112,000", "100,000", "1.12", SAYS.format("0.25.0"))
    info = f'vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{blocks}"}} 1.0\n'
    overrides = {
        "/metrics": lies.answers(200, info.encode(), "text/plain"),
        "/v1/models": lies.answers_json({"data": [{"id": MODEL, "max_model_len": 100_000}]}),
    }
    with lying_server(Engine(override=overrides)) as server:
        declared = endpoint(server.listen, 2, 50_000).model_copy(update={"engine": DeclaredEngine(kind="vllm")})
        verdict = probe_endpoint(declared, ADAPTER.api, log, legs="ledger", limits=ROOMY)
    assert verdict.word == word, told(verdict)
    kept = evidence(declared, "e", verdict_json(verdict, "e"), log, verdict=verdict.word)
    again = replay(read_stored(json.loads(json.dumps(kept))))
    assert again.same, again


def test_a_request_that_can_never_fit_breaks_radiance_although_it_boots() -> None:
    figures = {
        name: Reading(Interval.exact(value, "log"), 5, name)
        for name, value in {"kv_tokens": 700_000, "request_limit_tokens": 180_000}.items()
    }
    leg = ledger_leg(BootLedger("radiance", figures=figures, lines_read=9), CONTRACT, "radiance")
    assert (leg.status, leg.code) == ("fail", "window-short")
    assert "180,000 tokens of one request, the contract needs 200,000: 20,000 short" in leg.message


def test_sglang_states_its_requests_and_its_window_too() -> None:
    def boot(context: int, slots: int) -> BootLedger:
        line = "max_total_num_tokens=700000, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        return read(
            "sglang",
            "[2026-09-01 10:00:00] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 700000, K size: 1.00 GB, "
            "V size: 1.00 GB",
            f"[2026-09-01 10:00:01] {line}max_running_requests={slots}, context_len={context}",
        )

    assert ledger_leg(boot(200_000, 3), CONTRACT, "sglang").status == "pass"
    assert ledger_leg(boot(131_072, 3), CONTRACT, "sglang").code == "window-short"
    assert ledger_leg(boot(200_000, 2), CONTRACT, "sglang").code == "slots-short"


@pytest.mark.parametrize(
    ("tokens", "replicas", "status"),
    [(400_000, 2, "pass"), (399_999, 2, "fail"), (400_000, 1, "fail"), (200_000, 3, "pass"), (200_000, 4, "pass")],
)
def test_each_replica_holds_its_share(tokens: int, replicas: int, status: str) -> None:
    figures = {"kv_tokens": Reading(Interval.exact(tokens, "log"), 1, "x")}
    ledger = BootLedger("sglang", figures=figures)
    assert ledger_leg(ledger, CONTRACT, "sglang", replicas=replicas).status == status


def test_replicas_are_those_of_the_knobs() -> None:
    declared = endpoint("127.0.0.1:1", 1, 16)

    def of(**knobs: Any) -> int:
        return replicas_of(declared.model_copy(update={"engine": declared.engine.model_copy(update={"knobs": knobs})}))

    assert (of(), of(**{"dp-size": 2}), of(**{"data-parallel-size": 4}), of(**{"dp": True})) == (1, 2, 4, 1)


def judged(report: EngineReport, ledger: BootLedger | None = None, contract: Contract = CONTRACT) -> tuple[str, str]:
    leg = judge_report(report, contract, ledger, "/m/x")
    return leg.status, leg.code


INFO = (
    'vllm:cache_config_info{{engine="{engine}",kv_cache_max_concurrency="{many}",'
    'kv_cache_size_tokens="{tokens}"}} 1.0\n'
)


def test_vllm_states_what_it_serves() -> None:
    report = read_cache_config(INFO.format(engine=0, many="3.15", tokens="70000"), "/metrics")
    assert judged(served_tokens(report, 200_000)) == ("pass", "")
    assert served_tokens(report, None).kv_tokens is None  # of which length that concurrency is, nobody said
    log = vllm("630,000", "200,000", "3.15")
    assert judged(EngineReport("/metrics", kv_tokens=630_000, concurrency=3.1500001), log) == ("pass", "")
    assert judged(EngineReport("/metrics", kv_tokens=700_000), log) == ("no evidence", "report-disagrees")
    assert judged(EngineReport("/metrics", concurrency=4.2), log) == ("no evidence", "report-disagrees")


def test_two_engine_cores_of_vllm_are_replicas() -> None:
    both = INFO.format(engine=0, many="2.00", tokens="400000") + INFO.format(engine=1, many="2.00", tokens="400000")
    report = read_cache_config(both, "/metrics")
    assert (report.replicas, report.kv_tokens) == (2, 400_000)
    assert judged(report) == ("pass", "")
    assert read_cache_config(both.replace('engine="1"', 'engine="0"'), "/metrics").says_nothing


def test_sglang_states_what_its_scheduler_made_of_the_arguments() -> None:
    state = {"memory_usage": {"token_capacity": 650_000}, "effective_max_running_requests_per_dp": 2}
    value: dict[str, Any] = {"max_running_requests": None, "context_length": None, "max_total_num_tokens": 650_000}
    report = read_sglang_info({**value, "internal_states": [state]}, "/get_server_info")
    assert (report.slots, report.kv_tokens, report.window) == (2, 650_000, None)
    assert judged(report) == ("fail", "slots-short")
    twice = read_sglang_info({**value, "dp_size": 2, "internal_states": [state, state]}, "/get_server_info")
    assert judged(twice) == ("pass", "")


PROPS = read_props({"default_generation_settings": {"n_ctx": 200_000}, "total_slots": 3}, "/props")


@pytest.mark.parametrize(
    ("slots", "found"),
    [
        ([{"id": i, "n_ctx": 200_000} for i in range(3)], ("pass", "")),
        ([{"id": i, "n_ctx": 200_000} for i in range(2)], ("fail", "slots-short")),
        ([{"id": i, "n_ctx": 200_000 - 1000 * i} for i in range(3)], ("fail", "window-short")),
        ([{"id": i} for i in range(3)], ("pass", "")),
        (None, ("pass", "")),
        ({"error": "off"}, ("pass", "")),
    ],
)
def test_the_list_of_slots_is_read_beside_props(slots: object, found: tuple[str, str]) -> None:
    assert judged(with_slots(PROPS, slots)) == found


def test_gauges_that_every_rank_repeats_count_once() -> None:
    text = "".join(f'sglang:num_running_reqs{{dp_rank="0",tp_rank="{rank}"}} 2.0\n' for rank in range(4))
    assert samples(text, frozenset({"sglang:num_running_reqs"})) == 2
    found = load_of_metrics(text)
    assert found is not None
    assert (found.running, found.exact) == (2, False)


def test_a_gauge_of_preempted_requests_is_no_counter_of_preemptions() -> None:
    from archonctl.probe.metrics import PREEMPTION_SAMPLES

    assert samples("radiance:num_requests_preempted 3\nsglang:num_retracted_reqs 2\n", PREEMPTION_SAMPLES) is None


def test_what_runs_is_told_by_slots_and_by_load() -> None:
    slots = load_of_json([{"is_processing": True}, {"is_processing": False}])
    assert slots is not None
    assert (slots.running, slots.waiting, slots.slots) == (1, None, 2)
    load = load_of_json({"running": 1, "waiting": 2})
    assert load is not None
    assert (load.total, load.slots) == (3, None)


@pytest.mark.parametrize(("window", "word"), [(399, "broken"), (400, "holds")])
def test_a_window_in_the_list_of_models_is_judged_where_nothing_else_is_reported(window: int, word: str) -> None:
    listed = lies.answers_json({"data": [{"id": MODEL, "max_model_len": window}]})
    with lying_server(Engine(override={"/v1/models": listed})) as server:
        logged = boot_ledger(1_000_000, 4, 512)
        ledger = replace(logged, figures={k: v for k, v in logged.figures.items() if k != "n_ctx_slot"})
        verdict = probe(server, legs="ledger", ledger=ledger, api=replace(API, report=""))
    assert verdict.word == word, told(verdict)
    assert leg(verdict, "engine-report").code == ("window-short" if word == "broken" else "")
