"""The table of llama-server's flags against a real llama-server: its help, and its verdict on every flag.

``--version`` ends llama-server while it reads its arguments, so what stands before it was taken.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archonctl.engines.knobs import Knob, check_argv, edition, load_table
from archonctl.engines.knobs.harvest import compare, read_help
from archonctl.service.engine_help import of_binary

pytestmark = pytest.mark.engine

ENDING = {"help", "version", "cache-list", "completion-bash", "list-devices"}
"""Flags that end llama-server themselves."""
ELSEWHERE = {
    "rpc": "needs a build with RPC",
    "device": "names of devices",
    "spec-draft-device": "names of devices",
    "mmproj-device": "names of devices",
    "grammar-file": "reads the file",
    "json-schema-file": "reads the file",
    "file": "reads the file",
    "binary-file": "reads the file",
    "chat-template-file": "reads the file",
    "api-key-file": "reads the file",
    "control-vector-layer-range": "two numbers",
}
"""Flags whose values say more than a type can."""


@pytest.fixture(scope="module")
def build(llama_server: Path) -> str:
    return of_binary(str(llama_server))[1]


def _takes(llama_server: Path, argv: list[str], folder: Path) -> str:
    """What llama-server says against a command line; empty if it reads it to its end."""
    done = subprocess.run(
        [llama_server, *argv, "--version"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
    )
    return (done.stderr or str(done.returncode)) if done.returncode else ""


def test_help_and_table_agree_completely(llama_server: Path, build: str, run_cli: Any) -> None:
    text, _ = of_binary(str(llama_server))
    found = compare(load_table("llamacpp"), read_help(text, version=build))
    assert found.empty, found
    assert "they agree" in run_cli("knobs", "harvest", "--binary", llama_server).stdout


def _cases(knob: Knob) -> Iterator[list[str]]:
    if knob.takes == 0:
        yield []
    elif knob.choices or knob.words:
        yield from ([word] for word in (*knob.choices, *knob.words))
        yield ["no-such-word"]
    elif knob.type in ("int", "float"):
        bounds = [n for n in (knob.min, knob.max) if n is not None]
        yield from ([str(number)] for number in bounds or [1])
        yield from ([str(number - 1 if number == knob.min else number + 1)] for number in bounds)
        yield ["no-number"]


def test_every_flag_is_judged_as_llama_server_judges_it(llama_server: Path, build: str, tmp_path: Path) -> None:
    wrong = []
    for knob in edition(load_table("llamacpp"), build).knobs:
        if knob.flag in ENDING or knob.flag in ELSEWHERE:
            continue
        for values in _cases(knob):
            argv = [knob.option, *values]
            said = _takes(llama_server, argv, tmp_path)
            found = [one for one in check_argv("llamacpp", build, argv) if one.severity == "error"]
            if bool(said) != bool(found):
                wrong.append(f"{argv}: llama-server {said[:200] or 'takes it'}; here {found or 'good'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "argv",
    [
        ["-m", "x", "-c", "4096"],
        ["--mlock"],
        ["--no-mmap"],
        ["-dio"],
        ["--draft", "16"],
        ["-fa", "-c", "4096"],
        ["--ctx-size=4096"],
        ["--ctx_size", "4096"],
        ["-c 4096"],
        ["--metrics", "true"],
        ["stray"],
        ["-c", "abc"],
        ["-ctk", "int3"],
        ["--no-such-flag"],
        ["-c", "1", "-c", "2"],
        ["--seed", "4294967295"],
        ["-np", "-1"],
        ["--temp", "-1"],
    ],
    ids=" ".join,
)
def test_whole_command_lines_are_judged_as_llama_server_judges_them(
    llama_server: Path, build: str, argv: list[str], tmp_path: Path, run_cli: Any
) -> None:
    said = _takes(llama_server, argv, tmp_path)
    options = ("--engine", "llamacpp", "--engine-version", build, "--json")
    done = run_cli("knobs", "check", *options, "--", *argv)
    assert done.code == (4 if said else 0), f"{said}\n{done.stdout}"
    assert json.loads(done.stdout)["verdict"] == ("refused" if said else "good")
