"""116 real boots, read back from their log lines alone; what cannot be read is listed with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from archonctl.ledger.as_json import check_json
from archonctl.ledger.check import CheckReport, check_cases

GOLDEN = Path(__file__).parents[2] / "golden" / "ledgers" / "real.jsonl"
TOLERANCE = 0.001
"""Reporters round by hand: 618.04 s became 618."""

ELSEWHERE = "the figure stands in the report, not in the lines quoted from the log"
PROSE = "no log at all was quoted"
UNREADABLE: Mapping[str, Mapping[str, str]] = {
    "vllm-13061-r1distill-qwen14b-2x4090-tp2": {"kv_gib_reported_rank": ELSEWHERE, "non_torch_gib": ELSEWHERE},
    "club3090-1170-qwen38-27b-mamba-align": {
        "kv_tokens_nominal": "the line was quoted with N in place of the number",
        "live_tokens_at_98pct": ELSEWHERE,
        "attention_block_size": ELSEWHERE,
        "reported_tokens_and_concurrency": ELSEWHERE,
    },
    "vllm-54458-qwen38flashnext-gb10": {"table": ELSEWHERE},
    "vllm-51041-dsv4-8xv100-fit": {"ratio_kib_per_token_range": "lines of source code, not of a log"},
    "spark396-minimax-m27-awq-2xgb10": {"at_util_0.85": ELSEWHERE},
    "file35217-mistral7b-v011": {"gpu_blocks": ELSEWHERE, "block_size": ELSEWHERE},
    "sglang-file70350-gemma4-swa-retract": {
        "max_total_num_tokens": ELSEWHERE,
        "swa_tokens": ELSEWHERE,
        "available_gpu_mem": ELSEWHERE,
        "sliding_bytes_per_token": ELSEWHERE,
        "full_bytes_per_token": ELSEWHERE,
    },
    "lcpp-lamasharp1099-qwen25-3b": {"kv_layers": ELSEWHERE},
    "lcpp-file54039-rdna4-oom-chain": dict.fromkeys(
        ("kv_mib_16k_f16", "kv_mib_32k_q8", "rs_mib_1slot", "rs_mib_4slots", "compute_mib"),
        "pieces of three boots: the name says which, the lines do not",
    ),
    "lcpp-27496-fit-nslots": {"before": PROSE, "after": PROSE},
    "lcpp-file71311-vulkan-q4": {"model_mib": ELSEWHERE, "compute_mib": ELSEWHERE, "rs_mib": ELSEWHERE},
    "ollama-12752-gptoss120b-strixhalo": {"per_layer_cache_bytes": ELSEWHERE},
    "ollama-11982-gptoss120b-3gpu": {"offload": "words: '17 then 37'"},
    "ollama-10114-24l-32k": {"n_embd_k_gqa": ELSEWHERE},
    "ollama-file69421-q4-8gb": {"table": ELSEWHERE},
    "exl2-383-yi34b-200k": {"bytes_per_token": ELSEWHERE, "kv_gb_at_200k": ELSEWHERE},
    "exl3-50-gemma3-27b-4090": {"nemotron_fp16": ELSEWHERE, "gemma_q6": ELSEWHERE},
    "lmdeploy-4366-glm47flash-v100": {"weights_gb": ELSEWHERE},
    "vss1649-nemotron-nano9b-sizing": dict.fromkeys(
        ("h100_kv_gib", "l40s_kv_gib", "per_seq_128k_gib", "floor_128k"), PROSE
    ),
    "vllm-55196-fp8-hybrid-rfc": dict.fromkeys(
        ("fp8_gain_attention_only", "fp8_gain_hybrid_32k", "fp8_gain_hybrid_short"), PROSE
    ),
    "minefield123-orphan-freemem": {"orphan_mib": ELSEWHERE},
    "mia94-glm53flash-643blocks": dict.fromkeys(
        ("pool_blocks", "usable_blocks", "blocks_per_3584_token_segment", "real_cached_tokens"), ELSEWHERE
    ),
    "llamacpp-19818-rocm-vs-vulkan": {"free_mib_rocm": ELSEWHERE, "free_mib_vulkan": ELSEWHERE},
    "lcpp-toolchest162-verbosity4": {"lines_at_verbosity": ELSEWHERE},
    "file39402-qwen3-235b-awq-tp8-ranks": {"available_gib_ranks": "two of eight ranks were quoted"},
}

NOT_TOLD = {
    "vllm-51041-dsv4-8xv100-fit",
    "lcpp-27496-fit-nslots",
    "ollama-10114-24l-32k",  # llama.cpp's own lines: nothing in them is ollama's
    "ollama-file69421-q4-8gb",
    "vss1649-nemotron-nano9b-sizing",
    "vllm-55196-fp8-hybrid-rfc",
    "spark-vllm-28228-kimi-linear",
    "minefield71-nemotron3super-mtp-off",
    "minefield71-nemotron3super-mtp-on",
}


def golden() -> dict[str, dict[str, object]]:
    return {case["id"]: case for case in map(json.loads, GOLDEN.read_text(encoding="utf-8").splitlines())}


@pytest.fixture(scope="module")
def report() -> CheckReport:
    return check_cases(GOLDEN)


def same(read: object, observed: object) -> bool:
    if isinstance(read, int | float) and isinstance(observed, int | float):
        return abs(read - observed) <= TOLERANCE * abs(observed)
    return read == observed


def test_every_case_is_checked(report: CheckReport) -> None:
    assert [case.id for case in report.cases] == list(golden())
    assert not report.problems


def test_every_figure_that_the_lines_hold_is_read_back(report: CheckReport) -> None:
    cases, wrong, matched = golden(), [], 0
    for case in report.cases:
        observed = cases[case.id]["observed"]
        assert isinstance(observed, dict)
        for name, value in observed.items():
            if same(case.read.get(name), value):
                matched += 1
                assert name not in UNREADABLE.get(case.id, {}), f"{case.id} {name} can be read after all"
            elif name not in UNREADABLE.get(case.id, {}):
                wrong.append((case.id, name, value, case.read.get(name)))
    assert not wrong
    assert matched >= 320


def test_engines_are_told_from_the_lines_alone(report: CheckReport) -> None:
    cases = golden()
    wrong = {case.id for case in report.cases if case.engine_detected != cases[case.id]["engine"]}
    assert wrong == NOT_TOLD
    named = {case.engine_detected for case in report.cases if case.id in NOT_TOLD}
    assert named <= {"unknown", "llama.cpp"}, "an engine that cannot be told is unknown, never guessed"


def test_a_boot_that_refused_has_a_reason_and_a_sound_one_has_none(report: CheckReport) -> None:
    cases = golden()
    for case in report.cases:
        outcome = str(cases[case.id]["outcome"])
        if outcome in ("ok", "ok after retry"):
            assert not case.refusal, (case.id, case.refusal)
    refused = [case for case in report.cases if cases[case.id]["outcome"] == "refused at boot"]
    assert all(case.refusal for case in refused)


def test_the_report_becomes_json_without_loss(report: CheckReport) -> None:
    value = json.loads(json.dumps(check_json(report), allow_nan=False))
    assert value["schema"] == "archonctl.ledger-check/1"
    assert len(value["cases"]) == len(report.cases)
    for case in value["cases"]:
        assert case["predicted_kv_tokens"] != "unknown" or case["reason"]
        assert case["observed_kv_tokens"] == "unknown" or isinstance(case["observed_kv_tokens"], int)


def test_no_engine_hint_is_needed_to_read_the_figures(tmp_path: Path, report: CheckReport) -> None:
    bare = tmp_path / "bare.jsonl"
    lines = [json.dumps({"id": c["id"], "log_lines": c["log_lines"]}) for c in golden().values()]
    bare.write_text("\n".join(lines), encoding="utf-8")
    for with_hint, without in zip(report.cases, check_cases(bare).cases, strict=True):
        if not with_hint.quoted and with_hint.id != "ollama-10114-24l-32k":
            assert without.read == with_hint.read, with_hint.id
