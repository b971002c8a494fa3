"""Forms that people write and that are right: none of them is an error or a warning."""

from __future__ import annotations

import pytest

from unit.gate.conftest import Judge, codes

DIGEST = "@sha256:" + "0" * 64
COMPOSE = f"""\
services:
  x:
    image: {{image}}{DIGEST}
    command: {{command}}
"""
LLAMA = "ghcr.io/ggml-org/llama.cpp:server-cuda-b10236"
VLLM = "vllm/vllm-openai:v0.10.2"


@pytest.mark.parametrize(
    ("image", "command"),
    [
        (LLAMA, "-m /m.gguf --temp ${TEMP:-${TEMPERATURE:-1.0}} --top-k ${TOP_K:-64}"),
        (LLAMA, "-m /models/${FILE:-a/b.gguf} --alias x ${MORE:-}"),
        (LLAMA, "-m /m.gguf ${MORE:---jinja --metrics}"),
        (LLAMA, "-m /m.gguf --port ${PORT} --ctx-size $CTX"),
        (LLAMA, '["-m", "/m.gguf", "--temp", "${TEMP:-0.6}"]'),
        (
            VLLM,
            """["--model", "m", "--override-generation-config", '{{"temperature":${{T:-${{U:-1.0}}}},"top_p":0.9}}']""",
        ),
        (VLLM, '--model m --hf-overrides \'{"rope":{"a":1}}\''),
        (VLLM.replace("0.10.2", "0.11.1"), "m --max-model-len 32k --max-num-seqs ${SEQS:?how many}"),
        (f"{VLLM}{DIGEST}\n    entrypoint: []\n    hostname: x", "vllm serve m --max-num-seqs 4"),
        (f"{VLLM}{DIGEST}\n    entrypoint: vllm\n    hostname: x", "serve m --max-num-seqs 4"),
        (VLLM, '["--model=m", "--gpu_memory_utilization=0.9", "--no-enable-prefix-caching"]'),
    ],
)
def test_compose_commands(judge: Judge, image: str, command: str) -> None:
    text = COMPOSE.replace("{image}", image).replace("{command}", command.replace("{{", "{").replace("}}", "}"))
    assert codes(judge(text, "compose.yml"), "error", "warning") == []


def test_a_default_that_is_given_later_is_open(judge: Judge) -> None:
    script = """\
#!/bin/bash
# archonctl: engine=vllm version=0.10.2
temp="${TEMP:-}"
if [ "${THINK:-false}" = true ]; then : "${temp:=1.0}"; else : "${temp:=0.7}"; fi
ARGS=(--override-generation-config "{\\"temperature\\":$temp,\\"top_k\\":${TOP_K:-20}}")
exec vllm serve m "$@" "${SPEC[@]}" "${ARGS[@]}"
"""
    assert codes(judge(script, "a.sh"), "error", "warning") == []


@pytest.mark.parametrize(
    "line",
    [
        'exec llama-server -m "$MODEL" ${EXTRA} "$@"',
        'llama-server -m m --port "$PORT" --ctx-size $((4096 * 4)) --threads $(nproc) &',
        "sudo -u llama env LLAMA_ARG_THREADS=4 nice -n 5 llama-server -m m",
        "echo 'run: llama-server --not-a-flag'",
        "pkill -f 'llama-server --old' || true",
        "which llama-server || exit 1",
        "until curl -sf localhost:8080/health; do sleep 1; done",
        "[ -x ./llama-server ] && ./llama-server -m m -c 0",
        "if ! llama-server --version >/dev/null 2>&1; then exit 1; fi",
        "llama-server --help | grep flash",
        "cat <<EOF\nllama-server --nothing\nEOF",
        "docker logs llama-server --tail 5",
        "systemctl restart llama-server --no-block",
    ],
)
def test_lines_of_scripts(judge: Judge, line: str) -> None:
    text = f"#!/bin/bash\n# archonctl: engine=llamacpp version=b11434\n{line}\n"
    assert codes(judge(text, "a.sh"), "error", "warning") == []


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m vllm.entrypoints.openai.api_server --model m --tensor-parallel-size 2",
        "vllm bench serve --model m --num-prompts 10",
        "vllm serve m --config c.yaml",
        "CUDA_VISIBLE_DEVICES=0,1 VLLM_USE_V1=1 vllm serve m -tp 2 --dtype auto",
        "uv run vllm serve m --port 8001",
        "nohup vllm serve m > log 2>&1 & echo $!",
        "docker exec vllm vllm serve m",
    ],
)
def test_vllm_lines(judge: Judge, line: str) -> None:
    text = f"#!/bin/bash\n# archonctl: engine=vllm version=0.10.2\n{line}\n"
    assert codes(judge(text, "a.sh"), "error", "warning") == []


def test_an_image_of_somebodys_own_may_hold_options_of_its_own(judge: Judge) -> None:
    text = COMPOSE.replace("{image}", "somebody/vllm-omni:v0.20.0").replace("{command}", "vllm serve m --omni")
    assert codes(judge(text, "compose.yml"), "error") == []


def test_json_in_an_env_file_that_compose_reads_is_its_own_affair(tmp_path: object, judge: Judge) -> None:
    text = COMPOSE.replace("{image}", VLLM).replace("{command}", "--model m") + "    env_file: vllm.env\n"
    judge(text, "compose.yml")
    from pathlib import Path

    from archonctl.gate.paths import Options, check_paths

    folder = Path(str(tmp_path))
    (folder / "vllm.env").write_text('HF_HUB_OFFLINE=1\nEXTRA={"a": "b c"}\n')
    (folder / "other.env").write_text('SOMETHING={"a": "b c"}\n')
    report = check_paths([folder], Options(verify_units=False))
    assert codes(report.findings, "error", "warning") == []
    assert {Path(name).name for name in report.skipped} == {"other.env"}


def test_a_script_with_cr_lf_is_one_finding(judge: Judge) -> None:
    text = "#!/bin/bash\r\n# archonctl: engine=llamacpp version=b11434\r\nllama-server \\\r\n -m m\r\n"
    assert codes(judge(text, "a.sh"), "error", "warning") == ["script-line-ends"]
