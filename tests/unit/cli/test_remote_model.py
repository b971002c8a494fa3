"""A model on the network, as the installed command sees it: inspected and planned, and started never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from archonctl.model.demo_gguf import write_tiny_gguf
from support.hub_server import Hub, serving
from support.raw_safetensors import llama_config, write_safetensors

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"
DECLARATION = """
[contract]
seqs = 2
len = 4096
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/bin/true"
[model]
path = "hf:org/tiny"
[host]
detect = true
"""


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A gated hub with a GGUF and a quantised checkpoint; the token is in the environment."""
    tiny, quantised = tmp_path / "tiny", tmp_path / "awq"
    tiny.mkdir()
    quantised.mkdir()
    write_tiny_gguf(tiny / "tiny.gguf", "llama")
    config = llama_config(quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128})
    (quantised / "config.json").write_text(json.dumps(config))
    write_safetensors(quantised / "model.safetensors", {"model.layers.0.mlp.up_proj.qweight": ("I32", (64, 64))})
    with serving(Hub(repos={"org/tiny": tiny, "org/awq": quantised}, needs_token=TOKEN)) as made:
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield made


@pytest.fixture
def declaration(tmp_path: Path) -> Path:
    """An endpoint whose model is on the network."""
    path = tmp_path / "env" / "far.toml"
    path.parent.mkdir()
    path.write_text(DECLARATION)
    return path


def test_inspect_keeps_its_schema_and_the_token_to_itself(run_cli: Any, hub: Hub, repository: Path) -> None:
    done = run_cli("inspect", "hf:org/awq", "--json")
    facts = json.loads(done.stdout)
    jsonschema.validate(facts, json.loads((repository / "docs/schemas/inspect-1.json").read_text()))
    assert facts["path"] == "hf:org/awq"
    assert facts["quantization"] == {"method": "awq", "bits": 4, "group_size": 128, "kv_cache": None}
    assert [row["dtype"] for row in facts["tensor_bytes"]] == ["INT4"]
    shown = run_cli("inspect", "hf:org/tiny")
    assert "4 full (2 KV heads of 32)" in shown.stdout
    assert TOKEN not in done.stdout + done.stderr + shown.stdout + shown.stderr


def test_a_refusal_is_told_by_its_code(run_cli: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}x")
    done = run_cli("inspect", "hf:org/tiny")
    assert (done.code, "model-remote-denied" in done.stderr, TOKEN in done.stderr) == (2, True, False)
    assert run_cli("inspect", "hf:nonsense").code == 2


def test_a_plan_reads_it_and_a_second_one_only_asks_for_its_commit(run_cli: Any, hub: Hub, declaration: Path) -> None:
    assert run_cli("plan", declaration).code == 0
    hub.requests.clear()
    assert run_cli("plan", declaration).code == 0
    assert [each.path for each in hub.requests] == ["/api/models/org/tiny/revision/main"]


def test_the_gate_asks_nothing_of_the_network(run_cli: Any, hub: Hub, declaration: Path) -> None:
    done = run_cli("gate", declaration)
    assert done.code == 4
    assert "model-remote-only" in done.stdout
    assert "contract-not-judged" in done.stdout
    assert hub.requests == []


def test_nothing_is_rendered_or_started_with_it(run_cli: Any, hub: Hub, declaration: Path) -> None:
    for verb in ("render", "up"):
        done = run_cli(verb, declaration)
        assert (done.code, "model-remote-only" in done.stderr) == (2, True), verb
