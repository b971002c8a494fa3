"""A vLLM endpoint through the command: exit codes of a plan, levers that are typed back, a folder that is inspected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from support.raw_safetensors import llama_config, llama_tensors, write_folder

DECLARATION = """
[contract]
seqs = 4
len = 8192

[engine]
kind = "vllm"
version = "0.32.0"
binary = "/opt/vllm/bin/vllm"

[model]
path = "{model}"
"""
BYTES = "engine.knobs.kv-cache-memory-bytes="


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    model = write_folder(tmp_path / "llama-3-8b", llama_config(), llama_tensors(), 4)
    path = tmp_path / "llama.toml"
    path.write_text(DECLARATION.format(model=model))
    return path


def valid(repository: Path, name: str, text: str) -> dict[str, Any]:
    value = json.loads(text)
    schema = json.loads((repository / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(value)
    assert isinstance(value, dict)
    return value


def test_an_unknown_card_is_no_evidence(run_cli: Any, declared: Path, repository: Path) -> None:
    done = run_cli("plan", str(declared), "--json")
    assert done.code == 3
    plan = valid(repository, "plan-1", done.stdout)
    assert (plan["verdict"], plan["capacity"]["kv_tokens"]) == ("unknown", None)


def test_a_short_plan_names_levers_that_hold_when_typed(run_cli: Any, declared: Path, repository: Path) -> None:
    done = run_cli("plan", str(declared), "--set", f"{BYTES}{3 * 1024**3}", "--json")
    assert done.code == 1
    levers = valid(repository, "plan-1", done.stdout)["levers"]
    assert len(levers) >= 4
    for lever in levers:
        words = [word for key, value in lever["set"].items() for word in ("--set", f"{key}={value}")]
        assert run_cli("plan", str(declared), "--set", f"{BYTES}{3 * 1024**3}", *words).code == 0, lever["text"]


def test_what_holds_can_be_rendered(run_cli: Any, declared: Path, tmp_path: Path) -> None:
    settings = ("--set", f"{BYTES}{5 * 1024**3}")
    assert run_cli("plan", str(declared), *settings).code == 0
    done = run_cli("render", str(declared), *settings, "--out", str(tmp_path / "out"))
    assert done.code == 0, done.stderr
    argv = json.loads(next((tmp_path / "out").rglob("argv.json")).read_text(encoding="utf-8"))
    assert argv[:2] == ["/opt/vllm/bin/vllm", "serve"]
    assert argv[argv.index("--kv-cache-memory-bytes") + 1] == str(5 * 1024**3)


def test_a_folder_is_inspected(run_cli: Any, declared: Path, repository: Path) -> None:
    folder = declared.parent / "llama-3-8b"
    facts = valid(repository, "inspect-1", run_cli("inspect", str(folder), "--json").stdout)
    assert (facts["format"], facts["parts"], facts["weight_bytes"]) == ("safetensors", 4, 2 * 8_030_261_248)
    (folder / "model-00003-of-00004.safetensors").unlink()
    done = run_cli("inspect", str(folder))
    assert done.code == 2
    assert "model-00003-of-00004.safetensors" in done.stderr
