"""The program in front of a pasted command line."""

from __future__ import annotations

import shlex

import pytest

from archonctl.engines.names import engine_name
from archonctl.foreign.program import Program, check_line, program_before


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("llama-server -m x", Program("llamacpp", 1)),
        ("./build/bin/llama-server -m x", Program("llamacpp", 1)),
        (r"'C:\llama cpp\llama-server.exe' -m x", Program("llamacpp", 1)),
        ("vllm serve m", Program("vllm", 1)),
        ("CUDA_VISIBLE_DEVICES=0 nohup /venv/bin/vllm serve m", Program("vllm", 3)),
        ("env A=b numactl -N 0 vllm serve m", Program("vllm", 6)),
        ("python3 -u -m vllm.entrypoints.openai.api_server --model m", Program("vllm", 4, module=True)),
        ("python -m vllm.entrypoints.cli.main serve m", Program("vllm", 3)),
        ("python3 /opt/venv/bin/vllm serve m", Program("vllm", 2)),
        ("python vllm/entrypoints/openai/api_server.py --model m", Program("vllm", 2, module=True)),
        ("python3.12 -m sglang.launch_server --model-path m", Program("sglang", 3, module=True)),
        ("sglang serve m", Program("sglang", 1)),
        ("llama.exe serve -m x", Program("llamacpp", 2)),
        ("llama-cli -m x", None),
        ("uv run vllm serve m", Program("vllm", 3)),
        ("-m x", None),
        ("serve m", None),
        ("python -c print", None),
        ("python", None),
        ("python -m", None),
        ("nohup", None),
        ("A=b", None),
        ("", None),
        ("curl http://x", None),
    ],
)
def test_where_the_arguments_of_an_engine_begin(line: str, found: Program | None) -> None:
    assert program_before(shlex.split(line)) == found


def test_a_finding_keeps_its_place_in_the_whole_line() -> None:
    line = check_line("vllm", "0.10.0", shlex.split("nohup vllm serve m --swap-space-gib 4"))
    assert line.program == 2
    assert [(one.code, one.index, one.argument) for one in line.findings] == [("knob-unknown", 4, "--swap-space-gib")]


def test_the_server_module_serves_no_model_by_its_place() -> None:
    argv = ["python", "-m", "vllm.entrypoints.openai.api_server", "m"]
    assert "argument-stray" in {one.code for one in check_line("vllm", "0.9.1", argv).findings}
    assert [one.code for one in check_line("vllm", "0.10.1", argv).findings] == ["model-argument-missing"]
    assert check_line("vllm", "0.10.1", [*argv[:3], "--model", "m"]).findings == ()


def test_another_engines_program_is_a_stray_word() -> None:
    line = check_line("llamacpp", "b6000", ["vllm", "serve", "m"])
    assert line.program == 0
    assert line.findings[0].code == "argument-stray"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("llama.cpp", "llamacpp"),
        ("llama-server", "llamacpp"),
        ("LLAMA_CPP", "llamacpp"),
        ("vLLM", "vllm"),
        ("SGLang", "sglang"),
        ("radiance", "radiance"),
        ("ollama", "ollama"),
        ("", ""),
    ],
)
def test_names_of_engines_as_people_write_them(written: str, meant: str) -> None:
    assert engine_name(written) == meant
