"""vLLM's table against the real help text of 0.32.0, and against command lines of public reports, pages and guides.

Every line stands with the release that it was written for or ran into, and with its public source. The parser of that
release takes what is under GOOD and refuses what is under STALE (each was tried on it); it takes --device of 0.24.0 for
the beginning of another flag.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, KnobValue, ModelRef
from archonctl.engines.knobs import Edition, check_argv, check_env, edition, load_table
from archonctl.engines.knobs.harvest import compare, read_help
from archonctl.engines.knobs.snapshot import Snapshot
from archonctl.engines.vllm.adapter import ADAPTER
from archonctl.errors import DeclarationError
from archonctl.host.profile import Host

VLLM = "vllm-project/vllm"

GOOD = [
    (
        "0.6.0",
        "serve /models/Meta-Llama-3.1-405B-Instruct -tp 8 -pp 2 --speculative-model "
        "/models/Meta-Llama-3.1-8B-Instruct --use-v2-block-manager --num-speculative-tokens 5",
        f"{VLLM}#7456",
    ),
    (
        "0.6.0",
        "serve /hpcwork/llm/Meta-Llama-3.1-8B-Instruct --host=127.0.0.1 --port=6379 --uvicorn-log-level info",
        f"{VLLM}#8273",
    ),
    (
        "0.6.1",
        "serve m --enable-chunked-prefill false --max-num-batched-tokens 5120 --worker-use-ray --engine-use-ray",
        "issue 7045, help text of 0.6.1",
    ),
    (
        "0.6.4.post1",
        "serve NousResearch/Meta-Llama-3.1-8B-Instruct --max-model-len 12000 "
        '--gpu-memory-utilization 0.95 --rope-scaling \'{"factor": 8.0, "type": "dynamic"}\'',
        f"{VLLM}#10537",
    ),
    (
        "0.8.0",
        "serve Qwen/Qwen2.5-3B-Instruct --guided-decoding-backend xgrammar:no-fallback",
        f"{VLLM}#13505",
    ),
    (
        "0.7.3",
        "serve DeepSeek-R1-Distill-Qwen-14B-Int8-W8A16 --max-model-len 8192 --host 0.0.0.0 --port"
        " 8015 --disable-log-requests --max_num_seqs=12 --max_num_batched_tokens=256 -tp=2",
        f"{VLLM}#14736",
    ),
    (
        "0.7.3",
        "serve /app/DeepSeek-R1 --served-model-name deepseek-reasoner-1212 --trust-remote-code "
        "--host 0.0.0.0 --port 7860 --max-model-len 65536 --gpu-memory-utilization 0.9 "
        "--tensor-parallel-size 32 --enable-reasoning --reasoning-parser deepseek_r1 "
        "--max_num_batched_tokens 32768 --enforce-eager --quantization fp8 --max-num-seqs 128 "
        "--pipeline-parallel-size 1 --enable-prefix-caching --enable-chunked-prefill "
        "--num-speculative-tokens 1",
        f"{VLLM}#12256",
    ),
    (
        "0.8.5",
        "serve /xxx/hf_models/Qwen3-32B --port 8000 --enable-reasoning --reasoning-parser deepseek_r1",
        f"{VLLM}#18538",
    ),
    (
        "0.9.0",
        "serve Qwen/Qwen3-8B --enable-reasoning --reasoning-parser qwen3 --guided-decoding-backend xgrammar",
        f"{VLLM}#17369",
    ),
    (
        "0.8.4",
        "serve meta-llama/Llama-3.2-1B --compilation_config \"{'cudagraph_capture_sizes': [1, 2, 4, 8]}\"",
        f"{VLLM}#16729",
    ),
    (
        "0.8.1",
        "serve meta-llama/Llama-3.3-70B-Instruct --enable-auto-tool-choice --tool-call-parser=llama3_json",
        f"{VLLM}#15236",
    ),
    (
        "0.9.1",
        "serve GLM-4.1V-9B-Thinking --limit-mm-per-prompt '{\"image\":32}' --allowed-local-media-path /",
        "zai-org/GLM-V#15",
    ),
    (
        "0.9.2",
        "serve m --compilation-config '{\"level\":3}' -O3 --max-model-len 32k",
        "VectorInstitute/vector-inference#157",
    ),
    (
        "0.10.0",
        "serve openai/gpt-oss-20b --async-scheduling --max-num-batched-tokens 8192",
        "OpenAI cookbook, run-vllm",
    ),
    (
        "0.10.1.1",
        "serve /root/models/Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 --max-model-len 131072 "
        "--enable-expert-parallel --data-parallel-size 8 --served-model-name "
        "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 --enable-auto-tool-choice --tool-call-parser "
        "qwen3_coder --disable-hybrid-kv-cache-manager --gpu-memory-utilization 0.75 "
        '--kv-transfer-config \'{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}\'',
        "LMCache/LMCache#1435",
    ),
    (
        "0.10.1",
        "serve deepseek-ai/DeepSeek-V3 -tp 8 --max-model-len 131072 --max_seq_len_to_capture "
        "131072 --max-num-batched-tokens 10240 --max-num-seqs 8 --block-size 16 "
        "--enable-prefix-caching --compilation-config '{\"cudagraph_mode\": 1}'",
        f"{VLLM}#20059",
    ),
    (
        "0.10.2",
        "serve openai/gpt-oss-120b --async-scheduling -tp 2",
        "GPUStack docs, gpt-oss-120b on H100",
    ),
    (
        "0.10.2",
        "serve m --disable-log-requests --uvicorn-log-level info",
        "scaleapi/llm-engine#704",
    ),
    (
        "0.11.0",
        "serve cpatonn/Qwen3-Next-80B-A3B-Instruct-AWQ-4bit --dtype=half --port 8081 "
        "--tensor-parallel-size 2 --gpu-memory-utilization 0.8 --max-model-len 8192 "
        "--tokenizer-mode auto --no-enable-chunked-prefill --swap-space 0.1",
        "nlzy/vllm-gfx906#48",
    ),
    (
        "0.11.0",
        "serve /root/.cache/weights/dpsk-bf16 --host 0.0.0.0 --port 8000 --data-parallel-size 2 "
        "--data-parallel-size-local 1 --data-parallel-address 10.0.0.1 --data-parallel-rpc-port "
        "13389 --tensor-parallel-size 16 --seed 1024 --served-model-name deepseek_v3.2 "
        "--enable-expert-parallel --max-num-seqs 16 --max-model-len 4096 --max-num-batched-tokens"
        " 4096 --trust-remote-code --no-enable-prefix-caching --gpu-memory-utilization 0.9 "
        "--additional-config "
        '\'{"torchair_graph_config":{"enabled":true,"graph_batch_sizes":[16]}}\'',
        "vllm-project/vllm-ascend#3278",
    ),
    (
        "0.11.0",
        "serve openai/gpt-oss-120b --max-model-len 32768 --async-scheduling --max-num-batched-tokens 4096",
        "GPUStack docs, gpt-oss-120b on A100",
    ),
    (
        "0.11.2",
        'serve google/gemma-3n-E2B-it --compilation-config \'{"mode": 3, "cudagraph_mode": '
        '"PIECEWISE", "backend": "inductor"}\' --enable-lora --max-loras 1 --max-lora-rank 64',
        f"{VLLM}#28140",
    ),
    (
        "0.12.0",
        "serve m --disable-log-requests",
        "llm-d/llm-d-benchmark#781",
    ),
    (
        "0.13.0",
        "serve /data/Qwen3-Embedding-0.6B --max-model-len 8192 --runner pooling --convert embed "
        "--host 192.168.50.12 --port 42041 --served-model-name qwen3-embedding",
        "gpustack/gpustack#3991",
    ),
    (
        "0.13.0",
        'serve m --hf-overrides \'{"rope_scaling": '
        '{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}}\'',
        "gpustack/gpustack#4236",
    ),
    (
        "0.14.1",
        "serve LGAI-EXAONE/EXAONE-4.0-32B --reasoning-parser deepseek_v3",
        "LG-AI-EXAONE/EXAONE-4.0#6",
    ),
    (
        "0.17.0",
        "serve m --no-enable-log-requests",
        "llm-d/llm-d-benchmark#781",
    ),
    (
        "0.18.1",
        "serve --model google/translategemma-27b-it --port 8080",
        "containers/ramalama#758",
    ),
    (
        "0.19.1",
        "serve /data/pretrained/DeepSeek-V4-Flash --served-model-name DeepSeek-V4-Flash "
        "--trust-remote-code --kv-cache-dtype fp8 --block-size 256 --enable-expert-parallel "
        "--data-parallel-size 8 --gpu-memory-utilization 0.85 --compilation-config "
        '\'{"cudagraph_mode":"FULL_AND_PIECEWISE", "custom_ops":["all"]}\'',
        f"{VLLM}#40778",
    ),
    (
        "0.22.1",
        'serve MiniMax-M2 --additional-config \'{"enable_cpu_binding":true,"weight_nz_mode":true}\''
        " --enable-expert-parallel --tensor-parallel-size 4 --data-parallel-size 4 --max-num-seqs"
        " 48 --max-model-len 40690 --max-num-batched-tokens 16384 --gpu-memory-utilization 0.85 "
        '--speculative_config \'{"enforce_eager": true, "method": "eagle3", "model": '
        '"/path/Eagle3/", "num_speculative_tokens": 3}\'',
        "vllm-project/vllm-ascend#11299",
    ),
    (
        "0.24.0",
        "serve openai/gpt-oss-120b --gpu-memory-utilization 0.92 --max-num-batched-tokens 32768 "
        "--max-num-seqs 128 --watermark 0.01 --block-size 16 --attention-backend FLASH_ATTN "
        "--enable-prefix-caching --enable-chunked-prefill --async-scheduling",
        "neural-nova/gpt-oss-120b-Instruct-Optimized, model card",
    ),
    (
        "0.28.0",
        "serve Qwen/Qwen3-8B --dtype=bfloat16 --block-size=64 --tensor-parallel-size=1 "
        "--max-num-seq=128 --max_model_len=20480",
        "llm-d/llm-d#2239",
    ),
    (
        "0.30.0",
        'serve Qwen/Qwen3.8-27B --hf-overrides \'{"text_config": {"rope_parameters": {"rope_type":'
        ' "yarn", "factor": 4.0, "original_max_position_embeddings": 262144}}}\' --max-model-len '
        "1000000",
        "ls1intum/edutelligence#744",
    ),
    (
        "0.32.0",
        "serve Qwen/Qwen3.8-27B --max-model-len auto --kv-cache-memory-bytes 40G -O3 "
        "-cc.cudagraph_mode=PIECEWISE --default-chat-template-kwargs '{\"enable_thinking\": false}'",
        "vLLM docs, serve arguments",
    ),
    (
        "0.33.0",
        "serve m --disable-log-requests --no-enable-prefix-caching "
        "--logging-config.pylogging_config_file /etc/vllm/log.json",
        "vllm/utils/argparse_utils.py@0.33.0",
    ),
    (
        "0.26.0",
        "serve m --attention-backend TRITON_ATTN",
        f"{VLLM}#50292",
    ),
]

STALE = [
    (
        "0.6.0",
        "serve m --config.yaml x",
        "knob-unknown",
        f"{VLLM}#8273",
    ),
    (
        "0.6.0",
        "serve m '--host 127.0.0.1' '--port 6379'",
        "knob-glued",
        f"{VLLM}#8273",
    ),
    (
        "0.6.0",
        "serve m --enable-auto-tool-choice --tool-call-parser llama3_json",
        "knob-bad-value",
        f"{VLLM}#9312",
    ),
    (
        "0.6.0",
        "serve m --guided-decoding-backend xgrammar",
        "knob-bad-value",
        f"{VLLM}#13505",
    ),
    (
        "0.6.6",
        "serve m --enable-reasoning --reasoning-parser deepseek_r1",
        "knob-unknown",
        f"{VLLM}#18538",
    ),
    (
        "0.7.0",
        "serve m --worker-use-ray",
        "knob-retired",
        "help text of 0.6.6",
    ),
    (
        "0.7.3",
        "serve m --lora-path /adapters/a",
        "knob-unknown",
        f"{VLLM}#13669",
    ),
    (
        "0.7.3",
        "serve m --max-model-len 32k",
        "knob-bad-value",
        "vllm/engine/arg_utils.py@0.8.4",
    ),
    (
        "0.8.3",
        "serve /models/Meta-Llama-3.1-405B-Instruct -tp 8 -pp 2 --speculative-model "
        "/models/Meta-Llama-3.1-8B-Instruct --num-speculative-tokens 5",
        "knob-retired",
        f"{VLLM}#7456",
    ),
    (
        "0.8.4",
        'serve m --speculative-config \'{"model": "ngram"\' --port 1',
        "knob-bad-value",
        "vllm/config.py@0.8.3",
    ),
    (
        "0.9.2",
        "serve m --compilation-config 3",
        "knob-bad-value",
        "VectorInstitute/vector-inference#157",
    ),
    (
        "0.9.2",
        "serve --model deepseek-ai/DeepSeek-R1-Distill-Llama-70B --enforce-eager",
        "knob-form",
        f"{VLLM}#16182",
    ),
    (
        "0.10.0",
        "serve Qwen/Qwen3-8B --enable-reasoning --reasoning-parser deepseek_r1",
        "knob-retired",
        f"{VLLM}#18538",
    ),
    (
        "0.10.1",
        "serve /root/autodl-tmp/Qwen/Qwen3-8B --served-model-name Qwen3-8B --max_model_len 8192 "
        "--enable-reasoning --reasoning-parser deepseek_r1",
        "knob-retired",
        "datawhalechina/self-llm#459",
    ),
    (
        "0.10.0",
        "serve m --enable-auto-tool-choice --tool-call-parser glm45",
        "knob-bad-value",
        "zai-org/GLM-4.5#58",
    ),
    (
        "0.10.0",
        "serve m --limit-mm-per-prompt image=4,audio=1",
        "knob-bad-value",
        f"{VLLM}#21615",
    ),
    (
        "0.10.0",
        "serve HuggingFaceTB/SmolLM3-3B '--dtype auto' '--max-model-len 8192'",
        "knob-glued",
        f"{VLLM}#22072",
    ),
    (
        "0.10.0",
        "serve m --device cuda",
        "knob-retired",
        "help text of 0.9.2",
    ),
    (
        "0.10.0",
        "serve m --use-v2-block-manager",
        "knob-retired",
        "help text of 0.9.2",
    ),
    (
        "0.10.0",
        "serve m --expand-tools-even-if-tool-choice-none",
        "knob-retired",
        "help text of 0.9.2",
    ),
    (
        "0.10.1",
        "serve m --num-scheduler-steps 8 --multi-step-stream-outputs",
        "knob-retired",
        "vllm/engine/arg_utils.py@0.10.1",
    ),
    (
        "0.10.2",
        "serve m --all2all-backend deepep_low_latency",
        "knob-unknown",
        f"{VLLM}#27347",
    ),
    (
        "0.11.0",
        "serve m --max-seq-len-to-capture 8192",
        "knob-retired",
        f"{VLLM}#20059",
    ),
    (
        "0.11.0",
        "serve m --compilation-config 3",
        "knob-bad-value",
        "kubernetes-sigs/gateway-api-inference-extension#2243",
    ),
    (
        "0.12.0",
        "serve m --guided-decoding-backend xgrammar",
        "knob-retired",
        "help text of 0.11.2",
    ),
    (
        "0.12.0",
        "serve m --num-lookahead-slots 4",
        "knob-retired",
        "vllm/engine/arg_utils.py@0.12.0",
    ),
    (
        "0.13.0",
        'serve m \'--rope-scaling={"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}\'',
        "knob-retired",
        "gpustack/gpustack#4236",
    ),
    (
        "0.13.0",
        "serve /data/Qwen3-Embedding-0.6B --max-model-len 8192 --task=embed --host 192.168.50.12 --port 42041",
        "knob-retired",
        "gpustack/gpustack#3991",
    ),
    (
        "0.13.0",
        "serve m --enable-logging-iteration-details",
        "knob-unknown",
        f"{VLLM}#32521",
    ),
    (
        "0.13.0",
        "serve m --cuda-graph-sizes 1 2 4",
        "knob-retired",
        "help text of 0.12.0",
    ),
    (
        "0.15.0",
        "serve /root/Qwen-Image-Edit-2509 --omni --port 8092 --max-num-seqs 10",
        "knob-unknown",
        f"{VLLM}#34545",
    ),
    (
        "0.14.0",
        "serve Qwen/Qwen3-Omni-30B-A3B-Instruct --port 8091 --stage-configs-path /s.yaml",
        "knob-unknown",
        "vllm-project/vllm-omni#1081",
    ),
    (
        "0.17.0",
        "serve m --disable-log-requests",
        "knob-retired",
        "llm-d/llm-d-benchmark#781",
    ),
    (
        "0.18.0",
        "serve cpatonn/Qwen3-Next-80B-A3B-Instruct-AWQ-4bit --dtype=half --swap-space 0.1",
        "knob-retired",
        "nlzy/vllm-gfx906#48",
    ),
    (
        "0.18.1",
        "serve --model google/translategemma-27b-it --temperature 0.8",
        "knob-unknown",
        "containers/ramalama#758",
    ),
    (
        "0.19.0",
        "serve gemma --limit-mm-per-prompt image=4,audio=1",
        "knob-bad-value",
        f"{VLLM}#39687",
    ),
    (
        "0.20.2",
        "serve m --disable-log-requests",
        "knob-retired",
        "SemiAnalysisAI/InferenceX#1371",
    ),
    (
        "0.23.0",
        "serve m -language-model-only",
        "knob-unknown",
        f"{VLLM}#46325",
    ),
    (
        "0.22.1",
        "serve m --kv-cache-dtype q8_0",
        "knob-bad-value",
        "MakazhanAlpamys/Soup#140",
    ),
    (
        "0.24.0",
        "serve m --device cuda",
        "knob-retired",
        "vllm/engine/arg_utils.py@0.24.0",
    ),
    (
        "0.27.0",
        "serve m --max-num-partial-prefills 4",
        "knob-retired",
        "vllm/engine/arg_utils.py@0.27.0",
    ),
    (
        "0.28.0",
        "serve m --calculate-kv-scales",
        "knob-retired",
        "vllm/engine/arg_utils.py@0.28.0",
    ),
    (
        "0.32.0",
        "serve m -O '{\"mode\":3}'",
        "knob-retired",
        "vllm/utils/argparse_utils.py@0.12.0",
    ),
    (
        "0.32.0",
        "serve m --gpu-memory-utilization 90%",
        "knob-bad-value",
        "vLLM docs, serve arguments",
    ),
    (
        "0.32.0",
        "serve m --max-model-len 32.5K",
        "knob-bad-value",
        "vllm/utils/argparse_utils.py@0.32.0",
    ),
    (
        "0.32.0",
        "serve m n --port 1",
        "argument-stray",
        "vllm/entrypoints/cli/serve.py@0.32.0",
    ),
    (
        "0.32.0",
        "serve m --enable-prefix-caching=False",
        "knob-takes-no-value",
        "vLLM docs, serve arguments",
    ),
    (
        "0.32.0",
        "serve m --dtype fp16",
        "knob-bad-value",
        "vLLM docs, serve arguments",
    ),
    (
        "0.32.0",
        "serve m --api-key",
        "knob-lacks-value",
        "vLLM docs, serve arguments",
    ),
]


@pytest.fixture(scope="module")
def shown(repository: Path) -> Snapshot:
    text = (repository / "tests" / "golden" / "vllm" / "serve-help-all-0.32.0.txt").read_text(encoding="utf-8")
    return read_help(text, version="0.32.0")


@pytest.fixture(scope="module")
def table() -> Edition:
    return edition(load_table("vllm"), "0.32.0")


def test_the_real_help_and_the_table_agree_in_both_directions(shown: Snapshot, table: Edition) -> None:
    difference = compare(load_table("vllm"), shown)
    assert (shown.engine, difference.added, difference.removed, difference.altered) == ("vllm", (), (), ())
    spelled = {name for seen in shown.knobs for name in (*seen.names, *seen.negatives)}
    assert spelled == table.options.keys()


def test_values_and_choices_are_those_of_the_real_help(shown: Snapshot, table: Edition) -> None:
    for seen in shown.knobs:
        knob = table.options[seen.names[0]].knob
        # A help text shows words that it suggests (['auto', 'hf']) where others show a placeholder.
        hinted = (seen.hint or "").startswith("['")
        takes = seen.nargs or (0 if seen.type in ("bool", "switch") else 1)
        assert hinted or knob.takes == takes, knob.flag
        assert set(knob.choices) == {*(seen.choices or ())} - {"None"}, knob.flag


@pytest.mark.parametrize(("version", "line", "source"), GOOD, ids=lambda part: part[:50])
def test_a_line_that_its_release_takes_is_good(version: str, line: str, source: str) -> None:
    found = check_argv("vllm", version, shlex.split(line))
    assert [one for one in found if one.severity == "error"] == [], source


@pytest.mark.parametrize(("version", "line", "code", "source"), STALE, ids=lambda part: part[:50])
def test_a_line_that_its_release_refuses_is_refused(version: str, line: str, code: str, source: str) -> None:
    found = [one for one in check_argv("vllm", version, shlex.split(line)) if one.severity == "error"]
    assert code in {one.code for one in found}, (source, found)
    assert all(one.fix for one in found)


@pytest.mark.parametrize(
    ("version", "variable", "code"),
    [
        ("0.10.2", "VLLM_USE_V1", ""),
        ("0.11.1", "VLLM_USE_V1", "knob-retired"),
        ("0.14.1", "VLLM_ATTENTION_BACKEND", ""),
        ("0.26.0", "VLLM_ATTENTION_BACKEND", "knob-retired"),
        ("0.16.0", "VLLM_TORCH_PROFILER_DIR", "knob-retired"),
        ("0.32.0", "VLLM_CPU_KVCACHE_SPACE", ""),
        ("0.32.0", "VLLM_NO_SUCH_THING", "knob-unknown"),
    ],
)
def test_variables_live_as_long_as_their_release_reads_them(version: str, variable: str, code: str) -> None:
    assert [one.code for one in check_env("vllm", version, {variable: "1"})] == ([code] if code else [])


def test_every_flag_that_went_away_says_what_became_of_it() -> None:
    known = load_table("vllm")
    last = {knob.flag: knob for knob in known.knobs if knob.names}
    gone = [knob for knob in last.values() if knob.removed]
    assert len(gone) > 60
    assert [knob.flag for knob in gone if known.retirement(knob.option) is None] == []


def declared(version: str, knobs: dict[str, KnobValue], env: dict[str, str] | None = None) -> Endpoint:
    return Endpoint(
        engine=Engine(kind="vllm", version=version, binary="/v/vllm", knobs=knobs, env=env or {}),
        model=ModelRef(path="/models/m"),
        contract=Contract(seqs=4, len=8192),
    )


@pytest.mark.parametrize(
    ("version", "knobs", "env", "code", "where"),
    [
        ("0.32.0", {"swap-space": 4}, {}, "knob-retired", "engine.knobs.swap-space"),
        ("0.10.0", {"enable_reasoning": True}, {}, "knob-retired", "engine.knobs.enable_reasoning"),
        ("0.9.2", {"kv-cache-memory-bytes": 1 << 30}, {}, "knob-unknown", "engine.knobs.kv-cache-memory-bytes"),
        ("0.10.2", {"block-size": 256}, {}, "knob-bad-value", "engine.knobs.block-size"),
        ("0.32.0", {"speculative-config": "{method: ngram}"}, {}, "knob-bad-value", "engine.knobs.speculative-config"),
        ("0.32.0", {"no-such": 1}, {}, "knob-unknown", "engine.knobs.no-such"),
        ("0.11.1", {}, {"VLLM_USE_V1": "0"}, "knob-retired", "engine.env.VLLM_USE_V1"),
        ("0.11.1+cu128", {"task": "embed", "enforce-eager": True}, {}, "", ""),
        ("0.14.0-cu128", {"task": "embed"}, {}, "knob-retired", "engine.knobs.task"),
        ("0.8.4", {"enable-chunked-prefill": False}, {}, "", ""),
        ("0.32.0", {"cudagraph-capture-sizes": "1 2 4", "compilation-config.mode": 3}, {}, "", ""),
    ],
)
def test_what_a_declared_version_does_not_take_is_refused_at_plan_and_render(
    version: str, knobs: dict[str, KnobValue], env: dict[str, str], code: str, where: str
) -> None:
    said = []
    for judge in (lambda one: ADAPTER.forecast(one, Host(), None), ADAPTER.command):
        try:
            judge(declared(version, knobs, env))
            said.append(("", ""))
        except DeclarationError as refused:
            said.append((refused.code, refused.where))
    assert said == [(code, where)] * 2


def test_knobs_are_rendered_as_their_version_takes_them() -> None:
    old = ADAPTER.command(declared("0.8.4", {"enable-chunked-prefill": False})).argv
    new = ADAPTER.command(declared("0.32.0", {"enable-chunked-prefill": False, "cudagraph-capture-sizes": "1 2"})).argv
    assert old[-2:] == ("--enable-chunked-prefill", "false")
    assert new[new.index("--no-enable-chunked-prefill") :] == (
        "--no-enable-chunked-prefill", "--cudagraph-capture-sizes", "1", "2",
    )  # fmt: skip
