"""What can go wrong with an engine's own planner: not there, no answer, nothing to ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.errors import ArchonError
from archonctl.service.oracle import consult

DECLARED = """
[contract]
seqs = 2
len = 2048
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{folder}/llama-server"
[model]
path = "{model}"
"""
Write = Callable[..., LoadedEndpoint]


@pytest.fixture
def declared(tmp_path: Path, tiny_gguf: Callable[..., Path]) -> Write:
    def write(script: str | None, architecture: str = "llama", **flags: Any) -> LoadedEndpoint:
        path = tmp_path / "env" / "e.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(DECLARED.format(folder=tmp_path, model=tiny_gguf(architecture)))
        if script is not None:
            program = tmp_path / "llama-fit-params"
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        return load_endpoint(path, flags, {})

    return write


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        (None, "oracle-missing", "llama-fit-params is not there"),
        ("echo nonsense", "oracle-failed", "no figures"),
        ("echo 'E it broke' >&2; exit 3", "oracle-failed", "ended with 3 and said: E it broke"),
        ("exit 1", "oracle-failed", "said: nothing"),
        ("kill -9 $$", "oracle-failed", "ended with -9"),
    ],
)
def test_a_planner_without_an_answer_is_an_error_with_a_name(
    declared: Write, script: str | None, code: str, said: str
) -> None:
    with pytest.raises(ArchonError) as caught:
        consult(declared(script), {})
    assert caught.value.code == code
    assert said in caught.value.message


def test_a_program_for_another_machine_is_an_error_with_a_name(declared: Write, tmp_path: Path) -> None:
    loaded = declared("exit 0")
    (tmp_path / "llama-fit-params").write_bytes(b"\x7fELF nonsense")
    with pytest.raises(ArchonError) as caught:
        consult(loaded, {})
    assert caught.value.code == "oracle-failed"


def test_an_engine_without_a_planner_says_so(repository: Path) -> None:
    with pytest.raises(ArchonError) as caught:
        consult(load_endpoint(repository / "env" / "archon.toml", {}, {}), {})
    assert caught.value.code == "oracle-unavailable"


def test_what_the_planner_cannot_know_is_not_asked(declared: Write) -> None:
    loaded = declared("echo 'Host 1 1 1'", "gemma3", **{"engine.knobs.kv-unified": "true"})
    with pytest.raises(ArchonError, match="kv-unified"):
        consult(loaded, {})


def test_its_figures_stand_beside_the_plan_and_a_difference_is_a_finding(declared: Write) -> None:
    said = consult(declared("echo 'Host 1 4 9000'"), {})
    assert [(figure.what, figure.oracle) for figure in said.figures] == [
        ("context", 4),
        ("model", 1),
        ("compute", 9000),
    ]
    assert [(finding.code, finding.severity) for finding in said.findings] == [
        ("oracle-differs", "error"),
        ("oracle-differs", "warning"),
    ]
    assert not said.as_json()["agrees"]


def test_the_shells_own_settings_do_not_reach_the_planner(declared: Write) -> None:
    script = 'test -z "$LLAMA_ARG_CTX_SIZE" && test "$KEPT" = yes && echo "Host 0 4 3"'
    assert consult(declared(script), {"LLAMA_ARG_CTX_SIZE": "1", "KEPT": "yes"}).findings == ()
