"""Command lines of public upgrade failures, and good ones of the same versions: misses and false alarms count alike.

Each stale line names the public report it was boiled down from, or the release that changed the flag.
"""

from __future__ import annotations

import pytest

from archonctl.engines.knobs import ArgvFinding, check_argv, check_env

STALE = [
    # llama.cpp: flags that moved into --load-mode (pull request 20834; hermes-agent 111323, home-ops 3804)
    ("llamacpp", "b11434", "-m x --mmap", "knob-retired", "load-mode"),
    ("llamacpp", "b11434", "-m x --no-mmap -c 4096", "knob-retired", "load-mode"),
    ("llamacpp", "b11434", "-m x --mlock", "knob-retired", "load-mode"),
    ("llamacpp", "b11434", "-m x -dio --no-webui", "knob-retired", "load-mode"),
    # removed handlers
    ("llamacpp", "b11434", "-m x --draft-max 16 --draft-min 1", "knob-retired", "spec-draft-n-max"),
    ("llamacpp", "b11434", "-m x --draft 16", "knob-retired", "spec-draft-n-max"),
    # llama-swap 283: a bare -fa swallows the next flag since flash-attn takes a value
    ("llamacpp", "b6341", "--model x --jinja --flash-attn --ctx-size 16000 --n-gpu-layers 99", "knob-lacks-value", ""),
    ("llamacpp", "b11434", "-m x -ngl 99 -fa", "knob-lacks-value", "on"),
    ("llamacpp", "b11434", "-m x -fa -ub 1024 -b 1024 --ctx-size 0 --cache-reuse 256", "knob-lacks-value", ""),
    ("llamacpp", "b6303", "-m x --flash-attn on", "knob-takes-no-value", ""),
    # LLama-GUI 140
    ("llamacpp", "b11434", "-m x -cpent 8", "knob-retired", ""),
    # forms and values
    ("llamacpp", "b11434", "-m x --ctx-size=4096", "knob-form", "--ctx-size"),
    ("llamacpp", "b11434", "-m x -ctk int3", "knob-bad-value", "q8_0"),
    ("llamacpp", "b11434", "-m x -c abc", "knob-bad-value", ""),
    ("llamacpp", "b11434", "-m x -c 128k", "knob-bad-value", ""),
    ("llamacpp", "b11434", "-m x --no-such-flag", "knob-unknown", ""),
    ("llamacpp", "b11434", "-m x --metrics true", "knob-takes-no-value", ""),
    ("llamacpp", "b11434", "-m x --ngl 99", "knob-unknown", "-ngl"),
    ("llamacpp", "b11434", "-m x -np", "knob-lacks-value", ""),
    ("llamacpp", "b4000", "-m x --kv-unified", "knob-unknown", ""),
    # radiance: the cutover of the archon host
    ("radiance", "1.8.1", "--model x --vram-weights-mib 25600 --vram-kv-mib 5120", "knob-retired", ""),
    ("radiance", "1.8.1", "--model x --prefix-cache-host-mib 8192", "knob-retired", "prefix-cache-mib"),
    ("radiance", "1.8.1", "--model x --prefix-cache-dir /tier", "knob-retired", ""),
    ("radiance", "1.8.1", "--model x --prefix-cache-disk-mib 1", "knob-retired", ""),
    ("radiance", "1.3.0", "--model x --vram-kv-mib 1", "knob-retired", ""),
    ("radiance", "1.2.0", "--model x --prefix-cache-mib 8192", "knob-unknown", "1.8.1"),
    ("radiance", "1.8.1", "--model x --host-pool-mib 45GiB", "knob-bad-value", "whole number"),
    ("radiance", "1.8.1", "--model x --tp=2", "knob-form", "--tp"),
    ("radiance", "1.8.1", "--tp 2", "model-argument-missing", "--model"),
    ("radiance", "1.8.1", "--model x --expert-vs-cache-ratio 0.75", "knob-retired", ""),
    # SGLang 4116, 5032, 12818, AReaL 428, SpecForge 246
    ("sglang", "0.4.3", "--model-path m --enable-reasoning --reasoning-parser deepseek-r1", "knob-unknown", ""),
    ("sglang", "0.4.4.post3", "--model-path m --enable_metrics", "knob-unknown", "--enable-metrics"),
    ("sglang", "0.5.5", "--model-path m --tp 8 --reasoning_parser kimi_k2", "knob-unknown", "--reasoning-parser"),
    ("sglang", "0.4.9", "--model-path m --enable-lora --max-loaded-loras 1", "knob-unknown", "0.4.10"),
    ("sglang", "0.5.4", "--model-path m --enable-ep-moe", "knob-retired", "ep-size"),
    ("sglang", "0.5.10", "--tp 2", "model-argument-missing", "--model-path"),
    ("sglang", "0.5.10", "--model-path m --context-length 128K", "knob-bad-value", ""),
    ("sglang", "0.5.9", "--model-path m --context-length 128k", "knob-bad-value", ""),
    ("sglang", "0.5.4", "--model-path m --disable-radix-cache true", "knob-takes-no-value", ""),
    # vLLM 18538, 22072, 8273, 46325, LLMKube 1030, ramalama 758, gpustack 3991, kserve 1005 and 6037
    ("vllm", "0.10.0", "serve m --port 8000 --enable-reasoning --reasoning-parser deepseek_r1", "knob-retired", ""),
    ("vllm", "0.23.0", "serve m -language-model-only", "knob-unknown", "--language-model-only"),
    ("vllm", "0.19.0", "serve m --enable-metrics", "knob-unknown", ""),
    ("vllm", "0.18.0", "serve m --temperature 0.8", "knob-unknown", ""),
    ("vllm", "0.13.0", "serve m --max-model-len 8192 --task=embed --host 10.0.0.1", "knob-retired", ""),
    ("vllm", "0.17.0", "serve m --disable-log-requests", "knob-retired", ""),
    ("vllm", "0.32.0", "serve m --disable-log-requests", "knob-retired", ""),
    ("vllm", "0.32.0", "serve m --swap-space 4", "knob-retired", ""),
    ("vllm", "0.32.0", "serve m --num-scheduler-steps 8", "knob-retired", ""),
    ("vllm", "0.9.2", "serve m --kv-cache-memory-bytes 1000000", "knob-unknown", ""),
    ("vllm", "0.32.0", "serve m --kv-cache-dtype int3", "knob-bad-value", "fp8"),
    ("vllm", "0.32.0", "serve m --max-num-seqs four", "knob-bad-value", ""),
    ("vllm", "0.32.0", "serve m --enforce-eager true", "knob-takes-no-value", ""),
    ("vllm", "0.32.0", "serve --port 8000", "model-argument-missing", ""),
    ("vllm", "0.6.3", "serve m --compilation-config 3", "knob-unknown", ""),
    ("vllm", "0.10.2", "serve --model m", "knob-form", ""),
    ("vllm", "0.32.0", "serve m --max-num 4", "knob-abbreviated", ""),
    ("vllm", "0.32.0", "serve m --speculative-config {method:ngram}", "knob-bad-value", "JSON"),
    ("vllm", "0.7.3", "serve m --max-num-batched-tokens 8k", "knob-bad-value", ""),
]  # fmt: skip

GLUED = [
    ("vllm", "0.6.0", ["serve", "m", "--host 127.0.0.1", "--port 6379"]),  # vllm 8273
    ("vllm", "0.10.0", ["serve", "HuggingFaceTB/SmolLM3-3B", "--dtype auto"]),  # vllm 22072
    ("llamacpp", "b11434", ["-m", "x", "-c 4096"]),
    ("llamacpp", "b11434", ["-m", "x", '"--port"', "8080"]),
    ("sglang", "0.5.4", ["--model-path m", "--tp", "2"]),
    ("radiance", "1.8.1", ["--model", "x", "--tp 2"]),
]

GOOD = [
    ("llamacpp", "b11434", "-m x -c 4096"),
    ("llamacpp", "b11434", "--model x --ctx_size 4096 -ngl all -fa on -ctk q8_0 -ctv q8_0 -np 4 --load-mode mlock"),
    ("llamacpp", "b11434", "-m x --temp 0.8 --seed 4294967295 --no-ui -ts 3,1 -c -1 -lv 4 -a name --n-predict -2"),
    ("llamacpp", "b11434", "-hf a/b:Q4_K_M --port 8012 -ngl 99 -fa auto -ub 1024 -b 1024 --cache-reuse 256"),
    ("llamacpp", "b6303", "--model x --port 1 --jinja --flash-attn --ctx-size 16000 --n-gpu-layers 99 --min-p 0.0"),
    ("llamacpp", "b4159", "-m x -c 4096 --mlock --no-mmap -fa -np 4 -cb --draft 16"),
    ("radiance", "1.8.1", "--model x --tp 2 --host-pool-mib 45568 --prefix-cache-mib 8192 --busy-prefill-chunk auto"),
    ("radiance", "1.2.0", "--model x --vram-weights-mib 25600 --vram-kv-mib 5120 --prefix-cache-dir /tier --p2p auto"),
    ("sglang", "0.4.6", "--model-path m --tp 8 --mem-fraction-static 0.9 --chunked-prefill-size -1 --enable-metrics"),
    ("sglang", "0.5.23", "serve m --tp-size=2 --context-length 128k --trust-remote-code"),
    ("sglang", "0.5.10", "--model m --tp 2 --dp-size 2 --host 0.0.0.0 --port 30000 --disable-radix-cache"),
    ("vllm", "0.6.3", "serve m --max-model-len 8192 --tensor-parallel-size 2 --swap-space 4 --disable-log-requests"),
    ("vllm", "0.8.5", "serve m --enable-reasoning --reasoning-parser deepseek_r1 --port 8000"),
    ("vllm", "0.9.2", "serve m --max_num_seqs 4 --gpu-memory-utilization=0.9 -tp 2 -O3 --enable-prefix-caching"),
    ("vllm", "0.10.2", "serve m --compilation-config.level 3 --served-model-name a b --no-enable-prefix-caching"),
    ("vllm", "0.32.0", "serve m --max-model-len 128k --kv-cache-dtype fp8 --max-num-seqs 3 --no-enable-log-requests"),
    ("vllm", "0.32.0", "serve m --max-model-len auto --enforce-eager --host 0.0.0.0 --port 8000 --api-key a b"),
    ("vllm", "0.32.0", 'serve m --speculative-config {"method":"ngram","num_speculative_tokens":3} -cc.mode 3'),
    ("vllm", "0.32.0", "serve --config x.yaml"),
    ("vllm", "0.32.0", "--model m --port 8000"),
]  # fmt: skip


def _shown(found: tuple[ArgvFinding, ...]) -> str:
    return "\n".join(f"{one.severity} {one.code} {one.index}: {one.message} | {one.fix}" for one in found)


def _errors(found: tuple[ArgvFinding, ...]) -> set[str]:
    return {one.code for one in found if one.severity == "error"}


@pytest.mark.parametrize(("engine", "version", "line", "code", "told"), STALE, ids=lambda part: str(part)[:60])
def test_a_stale_line_is_refused_with_what_to_do(engine: str, version: str, line: str, code: str, told: str) -> None:
    found = check_argv(engine, version, line.split(" "))
    assert code in _errors(found), _shown(found)
    assert told in _shown(tuple(one for one in found if one.code == code))


@pytest.mark.parametrize(("engine", "version", "argv"), GLUED, ids=str)
def test_arguments_in_one_word_are_taken_apart(engine: str, version: str, argv: list[str]) -> None:
    found = check_argv(engine, version, argv)
    assert _errors(found) & {"knob-glued"}, _shown(found)
    mended = list[str]()
    for index, word in enumerate(argv):
        edits = [one.replacement for one in found if one.index == index and one.code == "knob-glued"]
        mended += edits[0] if edits and edits[0] is not None else [word]
    assert not _errors(check_argv(engine, version, mended)), mended


@pytest.mark.parametrize(("engine", "version", "line"), GOOD, ids=lambda part: str(part)[:60])
def test_a_good_line_is_good(engine: str, version: str, line: str) -> None:
    found = check_argv(engine, version, line.split(" "))
    assert not _errors(found), _shown(found)


@pytest.mark.parametrize(
    ("engine", "version", "env", "code"),
    [
        ("llamacpp", "b11434", {"LLAMA_ARG_MLOCK": "1"}, "knob-retired"),
        ("llamacpp", "b11434", {"LLAMA_ARG_NO_MMAP": "1"}, "knob-retired"),
        ("llamacpp", "b11434", {"LLAMA_ARG_DRAFT_MAX": "16"}, "knob-retired"),
        ("llamacpp", "b11434", {"LLAMA_ARG_CTX": "1"}, "knob-unknown"),
        ("llamacpp", "b11434", {"LLAMA_ARG_CTX_SIZE": "many"}, "knob-bad-value"),
        ("radiance", "1.8.1", {"VRAM_KV_MIB": "5120"}, "knob-retired"),
        ("radiance", "1.8.1", {"PREFIX_CACHE_HOST_MIB": "8192"}, "knob-retired"),
        ("vllm", "0.32.0", {"VLLM_USE_V1": "1"}, "knob-retired"),
    ],
    ids=str,
)  # fmt: skip
def test_a_stale_variable_is_found(engine: str, version: str, env: dict[str, str], code: str) -> None:
    found = check_env(engine, version, env)
    assert code in _errors(found), _shown(found)
    assert all(one.argument in env for one in found)


@pytest.mark.parametrize(
    ("engine", "version", "env"),
    [
        ("llamacpp", "b11434", {"LLAMA_ARG_CTX_SIZE": "4096", "LLAMA_ARG_NO_KV_UNIFIED": "1", "GGML_LOG": "x"}),
        ("radiance", "1.8.1", {"HOST_POOL_MIB": "45568", "PATH": "/bin", "MODEL_FILE": "/m/x.rad"}),
        ("vllm", "0.32.0", {"VLLM_LOGGING_LEVEL": "DEBUG", "HF_HOME": "/m", "CUDA_VISIBLE_DEVICES": "0"}),
        ("sglang", "0.5.23", {"NCCL_DEBUG": "INFO"}),
    ],
    ids=str,
)
def test_a_good_environment_is_good(engine: str, version: str, env: dict[str, str]) -> None:
    assert check_env(engine, version, env) == ()
