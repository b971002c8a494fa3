"""SGLang's table against command lines that people really ran: each verdict is what that release's own parser said.

The lines are from public issues, documentation and model cards; the parsers of the releases named were run on them.
"""

from __future__ import annotations

import shlex

import pytest

from archonctl.engines.knobs import check_argv, check_env, edition, load_table

GOOD = [
    (
        "0.4.1",
        "--model deepseek-ai/DeepSeek-V3-Base --enable-dp-attention --tp 8 --trust-remote-code",
        "sgl-project/sglang#2585",
    ),
    (
        "0.5.23",
        "--model deepseek-ai/DeepSeek-V3-Base --enable-dp-attention --tp 8 --trust-remote-code",
        "sgl-project/sglang#2585",
    ),
    (
        "0.5.5",
        "--model-path /moonshotai/Kimi-K2-Thinking --tp 8 --disable-radix-cache --trust-remote-code "
        "--tool-call-parser kimi_k2 --reasoning-parser kimi_k2 --context-length 262144",
        "sgl-project/sglang#12818, answer",
    ),
    (
        "0.5.2",
        "--model-path m --max-loaded-loras 1",
        "areal-project/AReaL#428",
    ),
    (
        "0.4.5",
        "--served-model-name ReSearch --model-path Qwen2.5-1.5B-Instruct --tp 4 --context-length 6000 "
        "--enable-metrics --dtype bfloat16 --host 127.0.0.1 --port 80 --trust-remote-code "
        "--disable-overlap --disable-radix-cache --disable-cuda-graph --mem-fraction-static 0.7",
        "Agent-RL/ReCall#43",
    ),
    (
        "0.5.2",
        "--model deepseek-ai/DeepSeek-V3.2-Exp --tp 8 --speculative-algorithm EAGLE "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
        "--disable-cuda-graph",
        "sgl-project/sglang#11109",
    ),
    (
        "0.5.16",
        "--model-path dsv4 --tp 8 --dp 8 --enable-dp-attention --speculative-algo EAGLE "
        "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2 "
        "--moe-a2a-backend deepep --cuda-graph-max-bs 64 --max-running-requests 128 --port 30000",
        "SemiAnalysisAI/InferenceX#1138",
    ),
    (
        "0.4.8",
        "--model-path nvidia/DeepSeek-R1-FP4 --trust-remote-code --quantization modelopt_fp4 --tp 8 "
        "--enable-flashinfer-moe --speculative-algorithm=EAGLE --speculative-num-steps=3 "
        "--speculative-eagle-topk=1 --speculative-num-draft-tokens=4",
        "sgl-project/sglang#7376",
    ),
    (
        "0.4.10",
        "--model-path /models/Kimi-K2-Instruct --host 0.0.0.0 --port 30012 --trust-remote-code "
        "--attention-backend flashinfer --mem-fraction-static 0.9 --tp-size 8 --speculative-algorithm "
        "EAGLE3 --speculative-draft-model-path AQ-MedAI/Kimi-K2-Instruct-eagle3 --speculative-num-steps "
        "3",
        "AQ-MedAI/Kimi-K2-Instruct-eagle3 README",
    ),
    (
        "0.5.3",
        "--model deepseek-ai/DeepSeek-V3.2-Exp --tp 8 --dp 8 --page-size 64",
        "deepseek-ai/DeepSeek-V3.2-Exp README",
    ),
    (
        "0.5.9",
        "--model-path meta-llama/Llama-3.1-8B-Instruct --grpc-mode",
        "SGLang documentation, launch server",
    ),
    (
        "0.5.9",
        "--model-path meta-llama/Llama-3.1-8B-Instruct --disaggregation-mode prefill "
        "--disaggregation-transfer-backend mooncake",
        "SGLang documentation, launch server",
    ),
    (
        "0.4.6.post5",
        "--model-path meta-llama/Meta-Llama-3-8B-Instruct --tp 2 --enable-p2p-check",
        "SGLang documentation, server arguments",
    ),
    (
        "0.4.6.post5",
        "--model-path meta-llama/Meta-Llama-3-8B-Instruct --chunked-prefill-size 4096 --kv-cache-dtype "
        "fp8_e5m2 --enable-torch-compile --torchao-config int4wo-128",
        "SGLang documentation, server arguments",
    ),
    (
        "0.4.2",
        "--model-path Qwen/Qwen2.5-7B-Instruct --tool-call-parser qwen25 --port 30000 --host 0.0.0.0",
        "SGLang documentation, function calling",
    ),
    (
        "0.5.7",
        "--model-path openai/gpt-oss-120b --tp 4 --reasoning-parser gpt-oss --tool-call-parser gpt-oss",
        "SGLang documentation, gpt-oss",
    ),
    (
        "0.4.3",
        "--model deepseek-ai/DeepSeek-V3 --tp 8 --trust-remote-code --enable-flashinfer-mla",
        "SGLang documentation, DeepSeek usage",
    ),
    (
        "0.5.2",
        "--model-path deepseek-ai/DeepSeek-V3 --tp 8 --ep-size 8 --enable-ep-moe",
        "SGLang documentation, expert parallelism",
    ),
    (
        "0.5.14",
        "--model-path m --disable-piecewise-cuda-graph --cuda-graph-bs 1 2 4 8",
        "SGLang documentation, CUDA graphs",
    ),
    (
        "0.5.12",
        "--model-path m --context-length 128k --max-total-tokens 1.5M",
        "SGLang 0.5.10 server arguments",
    ),
    (
        "0.5.4",
        "--model-path m --nsa-prefill flashmla_sparse --nsa-decode fa3",
        "SGLang documentation, DeepSeek V3.2",
    ),
    (
        "0.5.4",
        "--model-path m --tensor-parallel-size 8 --mem-fraction 0.85 --chunked-prefill-size -1",
        "SGLang documentation, abbreviations",
    ),
    (
        "0.5.4",
        "--model-path m --lora-paths a=/x b=/y --max-loras-per-batch 2 --enable-lora",
        "SGLang documentation, LoRA",
    ),
    (
        "0.4.9.post2",
        "--model-path m --impl transformers",
        "SGLang documentation, transformers fallback",
    ),
    (
        "0.5.10",
        "--model-path m --stream-output",
        "SGLang 0.5.10",
    ),
]
STALE = [
    (
        "0.4.3.post2",
        "--model-path deepseek-ai/DeepSeek-R1 --enable-reasoning",
        [("knob-unknown", "--enable-reasoning")],
        "sgl-project/sglang#4116",
    ),
    (
        "0.4.4.post3",
        "--model-path m --enable_metrics",
        [("knob-unknown", "--enable_metrics")],
        "sgl-project/sglang#5032",
    ),
    (
        "0.5.5",
        "--model-path /moonshotai/Kimi-K2-Thinking --tp 8 --disable-radix-cache --trust-remote-code "
        "--tool-call-parser kimi_k2 --reasoning_parser kimi_k2 --context-length 262144",
        [("knob-unknown", "--reasoning_parser")],
        "sgl-project/sglang#12818",
    ),
    (
        "0.5.4",
        "--model-path /moonshotai/Kimi-K2-Thinking --reasoning-parser kimi_k2 --tool-call-parser kimi_k2",
        [("knob-bad-value", "kimi_k2")],
        "sgl-project/sglang#12818",
    ),
    (
        "0.4.9",
        "--model-path m --max-loaded-loras 1",
        [("knob-unknown", "--max-loaded-loras")],
        "areal-project/AReaL#428",
    ),
    (
        "0.4.9",
        "--served-model-name ReSearch --model-path Qwen2.5-1.5B-Instruct --tp 4 --context-length 6000 "
        "--enable-metrics --dtype bfloat16 --host 127.0.0.1 --port 80 --trust-remote-code "
        "--disable-overlap --disable-radix-cache --disable-cuda-graph --mem-fraction-static 0.7",
        [("knob-abbreviated", "--disable-overlap")],
        "Agent-RL/ReCall#43",
    ),
    (
        "0.5.20",
        "--model-path dsv4 --tp 8 --dp 8 --enable-dp-attention --speculative-algo EAGLE "
        "--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2 "
        "--moe-a2a-backend deepep --cuda-graph-max-bs 64 --max-running-requests 128 --port 30000",
        [("knob-abbreviated", "--cuda-graph-max-bs")],
        "SemiAnalysisAI/InferenceX#1138",
    ),
    (
        "0.5.1",
        "--model-path nvidia/DeepSeek-R1-FP4 --trust-remote-code --quantization modelopt_fp4 --tp 8 "
        "--enable-flashinfer-moe --speculative-algorithm=EAGLE --speculative-num-steps=3 "
        "--speculative-eagle-topk=1 --speculative-num-draft-tokens=4",
        [("knob-retired", "--enable-flashinfer-moe")],
        "sgl-project/sglang#7376",
    ),
    (
        "0.5.18",
        "--model-path meta-llama/Meta-Llama-3-8B-Instruct --enable-torch-compile --torchao-config int4wo-128",
        [("knob-retired", "--torchao-config")],
        "SGLang documentation, server arguments",
    ),
    (
        "0.4.1",
        "--model-path Qwen/Qwen2.5-7B-Instruct --tool-call-parser qwen25 --port 30000 --host 0.0.0.0",
        [("knob-unknown", "--tool-call-parser")],
        "SGLang documentation, function calling",
    ),
    (
        "0.4.10",
        "--model-path openai/gpt-oss-120b --tp 4 --reasoning-parser gpt-oss",
        [("knob-bad-value", "gpt-oss")],
        "SGLang documentation, gpt-oss",
    ),
    (
        "0.4.6",
        "--model-path deepseek-ai/DeepSeek-V3 --tp 8 --trust-remote-code --enable-flashinfer-mla",
        [("knob-retired", "--enable-flashinfer-mla")],
        "SGLang documentation, DeepSeek usage",
    ),
    (
        "0.4.7.post1",
        "--model-path deepseek-ai/DeepSeek-V3 --tp 8 --trust-remote-code --enable-flashinfer-mla",
        [("knob-retired", "--enable-flashinfer-mla")],
        "SGLang documentation, DeepSeek usage",
    ),
    (
        "0.5.3",
        "--model-path deepseek-ai/DeepSeek-V3 --tp 8 --ep-size 8 --enable-ep-moe",
        [("knob-retired", "--enable-ep-moe")],
        "SGLang documentation, expert parallelism",
    ),
    (
        "0.5.6",
        "--model-path deepseek-ai/DeepSeek-V3 --tp 8 --ep-size 8 --enable-ep-moe",
        [("knob-retired", "--enable-ep-moe")],
        "SGLang documentation, expert parallelism",
    ),
    (
        "0.5.21",
        "--model-path m --disable-piecewise-cuda-graph --cuda-graph-bs 1 2 4 8",
        [
            ("knob-retired", "--disable-piecewise-cuda-graph"),
            ("knob-abbreviated", "--cuda-graph-bs"),
            ("argument-stray", "2"),
            ("argument-stray", "4"),
            ("argument-stray", "8"),
        ],
        "SGLang documentation, CUDA graphs",
    ),
    (
        "0.5.9",
        "--model-path m --context-length 128k",
        [("knob-bad-value", "128k")],
        "SGLang 0.5.10 server arguments",
    ),
    (
        "0.5.12",
        "--model-path m --context-length 128K",
        [("knob-bad-value", "128K")],
        "SGLang 0.5.10 server arguments",
    ),
    (
        "0.5.9",
        "--model-path m --nsa-prefill flashmla_sparse",
        [("knob-abbreviated", "--nsa-prefill")],
        "SGLang documentation, DeepSeek V3.2",
    ),
    (
        "0.5.20",
        "--model-path m --nsa-prefill-backend flashmla_sparse",
        [("knob-retired", "--nsa-prefill-backend")],
        "SGLang documentation, DeepSeek V3.2",
    ),
    (
        "0.5.20",
        "--model-path m --attention-backend cutlass_mla",
        [("knob-bad-value", "cutlass_mla")],
        "SGLang attention backends",
    ),
    (
        "0.5.21",
        "--model-path m --kv-cache-dtype fp4_e2m1",
        [("knob-bad-value", "fp4_e2m1")],
        "SGLang quantized KV cache",
    ),
    (
        "0.5.4",
        "--model-path m --kv-cache-dtype fp8",
        [("knob-bad-value", "fp8")],
        "a vLLM habit",
    ),
    (
        "0.5.4",
        "--model-path m --max-model-len 8192 --gpu-memory-utilization 0.9",
        [("knob-unknown", "--max-model-len"), ("knob-unknown", "--gpu-memory-utilization")],
        "a vLLM habit",
    ),
    (
        "0.5.4",
        "--model-path m --trust-remote-code true",
        [("knob-takes-no-value", "--trust-remote-code")],
        "docker compose examples",
    ),
    (
        "0.5.4",
        "--model-path m --mem-fraction-static",
        [("knob-lacks-value", "--mem-fraction-static")],
        "cut line",
    ),
    (
        "0.4.9.post3",
        "--model-path m --impl transformers",
        [("knob-retired", "--impl")],
        "SGLang documentation, transformers fallback",
    ),
    (
        "0.5.20",
        "--model-path m --stream-output",
        [("knob-retired", "--stream-output")],
        "SGLang 0.5.20",
    ),
    (
        "0.5.13",
        "--model-path m --speculative-ngram-branch-length 18",
        [("knob-retired", "--speculative-ngram-branch-length")],
        "SGLang documentation, speculative decoding",
    ),
    (
        "0.5.11",
        "--model-path m --enable-double-sparsity --ds-channel-config-path x.json",
        [("knob-retired", "--enable-double-sparsity"), ("knob-retired", "--ds-channel-config-path")],
        "SGLang double sparsity",
    ),
    (
        "0.4.0",
        "--model-path m --disable-flashinfer",
        [("knob-retired", "--disable-flashinfer")],
        "SGLang 0.4 migration",
    ),
    (
        "0.4.2",
        "--model-path m --disable-flashinfer",
        [("knob-retired", "--disable-flashinfer")],
        "SGLang 0.4 migration",
    ),
    (
        "0.5.4",
        "m --port 30000",
        [("argument-stray", "m"), ("model-argument-missing", "")],
        "sglang serve MODEL habit",
    ),
]


@pytest.mark.parametrize(("version", "line", "source"), GOOD)
def test_a_line_that_its_release_took_is_good(version: str, line: str, source: str) -> None:
    errors = [finding for finding in check_argv("sglang", version, shlex.split(line)) if finding.severity == "error"]
    assert errors == [], source


@pytest.mark.parametrize(("version", "line", "refused", "source"), STALE)
def test_a_line_that_its_release_refused_is_refused_at_the_same_word(
    version: str, line: str, refused: list[tuple[str, str]], source: str
) -> None:
    findings = check_argv("sglang", version, shlex.split(line))
    assert [(f.code, f.argument) for f in findings if f.severity == "error"] == refused, source


def test_the_table_reaches_from_0_4_0_to_0_5_23() -> None:
    table = load_table("sglang")
    assert (table.versions[0], table.newest) == ("0.4.0", "0.5.23")
    assert len(table.versions) == 92
    assert len([row for row in edition(table, "0.5.23").knobs if row.names]) > 500


def test_every_flag_that_went_away_says_what_became_of_it() -> None:
    table = load_table("sglang")
    newest = edition(table, table.newest)
    gone = {name for knob in table.knobs for name in (*knob.names, *knob.negatives)} - set(newest.options)
    assert {name for name in gone if table.retirement(name) is None} == set()


def test_what_replaces_a_flag_was_a_flag_once() -> None:
    table = load_table("sglang")
    names = {name for knob in table.knobs for name in (*knob.names, knob.env_key)}
    for row in table.retired:
        first = row.replaced_by.partition(" ")[0].rstrip(",")
        assert not first or names & {first, f"--{first}"}, row.replaced_by


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--enable-ep-moe", "ep-size"),
        ("--enable-deepep-moe", "moe-a2a-backend deepep"),
        ("--enable-flashinfer-mla", "attention-backend flashinfer"),
        ("--stream-output", "incremental-streaming-output"),
        ("--oltp-traces-endpoint", "otlp-traces-endpoint"),
        ("--impl", "model-impl"),
    ],
)
def test_the_new_name_is_told(old: str, new: str) -> None:
    findings = check_argv("sglang", "0.5.23", ["--model-path", "m", old])
    assert [finding.code for finding in findings if finding.argument == old] == ["knob-retired"]
    assert new in next(finding.fix for finding in findings if finding.argument == old)


def test_serve_takes_the_model_as_its_first_word_from_0_5_16_on() -> None:
    line = ["serve", "Qwen/Qwen3-8B", "--tp", "2"]
    assert [f.code for f in check_argv("sglang", "0.5.16", line) if f.severity == "error"] == []
    assert "argument-stray" in [f.code for f in check_argv("sglang", "0.5.15", line)]


def test_variables_that_only_warn_are_named_with_the_flag_that_replaces_them() -> None:
    found = check_env("sglang", "0.5.23", {"SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE": "1", "PATH": "/usr/bin"})
    assert [(f.code, f.argument) for f in found] == [("knob-retired", "SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE")]
    assert "enable-prefill-delayer" in found[0].fix


def test_a_renamed_variable_warns_while_it_is_read_and_is_an_error_once_it_is_ignored() -> None:
    old = {"SGLANG_QUEUED_TIMEOUT_MS": "5000"}
    assert {f.severity for f in check_env("sglang", "0.5.20", old)} <= {"warning"}
    found = check_env("sglang", "0.5.23", old)
    assert [(f.code, f.severity) for f in found] == [("knob-retired", "error")]
    assert "SGLANG_REQ_WAITING_TIMEOUT" in found[0].fix
    assert "seconds" in found[0].message
