"""``plan --oracle``: llama-fit-params agrees with the plan over architectures and flags, and is believed where not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.change import changed
from archonctl.engines.llamacpp.assess import assess
from archonctl.engines.llamacpp.refusals import refusals
from archonctl.engines.llamacpp.settings import settings_of
from archonctl.host.profile import Host
from archonctl.model.gguf import read_gguf
from archonctl.service.oracle import consult

pytestmark = pytest.mark.engine

ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "gpt-oss", "qwen3next")
FLAGS: tuple[dict[str, Any], ...] = (
    {},
    {"ctx-size": 1_000_001},
    {"ctx-size": 1_000_000, "np": 7},
    {"kv_dtype": "q8_0"},
    {"kv_dtype": "q4_0", "ub": 2048},
    {"kv_dtype": "q8_0/f16"},
    {"kv_dtype": "bf16/f32"},
    {"kv_dtype": "q5_1/iq4_nl"},
    {"kv_dtype": "q4_1/q5_0"},
    {"swa-full": True},
    {"fa": "off"},
    {"fa": "off", "kv_dtype": "q8_0/f16"},
    {"ubatch-size": 64, "batch-size": 128},
    {"ngl": 0},
)
"""Large contexts: nothing is allocated, and the planner's MiB then tell a cell more or less."""
DECLARED = """
[contract]
seqs = 3
len = 300_000
kv_dtype = "{kv_dtype}"
[engine]
kind = "llamacpp"
version = "b11434"
binary = {binary}
[engine.knobs]
{knobs}
[model]
path = {model}
[host]
profile = {host}
"""


@pytest.fixture
def declare(tmp_path: Path, llama_server: Path) -> Callable[..., Path]:
    def write(model: Path, flags: dict[str, Any]) -> Path:
        knobs = "\n".join(f"{key} = {json.dumps(value)}" for key, value in flags.items() if key != "kv_dtype")
        host = tmp_path / "host.toml"
        host.write_text("ram_mib = 8000000\n")
        path = tmp_path / "endpoint.toml"
        path.write_text(
            DECLARED.format(
                kv_dtype=flags.get("kv_dtype", "f16"),
                binary=json.dumps(str(llama_server)),
                model=json.dumps(str(model)),
                host=json.dumps(str(host)),
                knobs=knobs,
            )
        )
        return path

    return write


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_planner_of_llama_cpp_agrees(
    declare: Callable[..., Path], tiny_gguf: Callable[..., Path], architecture: str, flags: dict[str, Any]
) -> None:
    model = tiny_gguf(architecture, hidden=128) if architecture == "qwen2" else tiny_gguf(architecture)
    loaded = load_endpoint(declare(model, flags), {}, {})
    if refusals(read_gguf(model).geometry, settings_of(loaded.endpoint).kv):
        return  # the engine would not start, and neither does its planner
    said = consult(loaded, {"LLAMA_ARG_CTX_SIZE": "512"})
    assert [figure.what for figure in said.figures] == ["context", "model", "compute"]
    assert said.findings == ()
    context = said.figures[0]
    assert context.oracle > 10 or architecture in ("deepseek2", "gpt-oss", "qwen3next", "gemma3")


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fit_takes_the_context_that_the_plan_says(
    tiny_gguf: Callable[..., Path], llama_fit_params: Path, architecture: str, slots: int
) -> None:
    """Without a stated context, and a margin that leaves room for a part of it only."""
    model = tiny_gguf(architecture, hidden=128) if architecture == "qwen2" else tiny_gguf(architecture)
    facts = read_gguf(model)
    total_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    endpoint = Endpoint(
        contract=Contract(seqs=slots, len=4096, kv_dtype="f16"),
        engine=Engine(kind="llamacpp", version="b11434", binary="/x", knobs={"ctx-size": 0, "fit-ctx": 4096}),
        model=ModelRef(path=str(model)),
    )
    whole = assess(endpoint, Host(ram_mib=total_mib), facts)
    assert whole.kv is not None
    margin = total_mib - int(whole.kv.bytes // 2**20 * 0.6) - 20
    tight = changed(endpoint, {"engine.knobs.fit-target": margin})
    planned = assess(tight, Host(ram_mib=total_mib), facts).context
    words = ["-m", str(model), "-np", str(slots), "-fitt", str(margin)]
    done = subprocess.run([str(llama_fit_params), *words], capture_output=True, text=True, check=False, timeout=60)
    assert planned is not None
    if not done.stdout:  # not even the smallest context fits
        assert planned.low == 4096 * slots
        return
    context = int(done.stdout.split()[1])
    assert planned.low <= context <= planned.high, (planned, context)


def test_the_command_shows_both_and_exits_as_the_plan(
    declare: Callable[..., Path], tiny_gguf: Callable[..., Path], run_cli: Any
) -> None:
    path = declare(tiny_gguf("gemma3"), {"ctx-size": 900_096})
    done = run_cli("plan", path, "--oracle", "--len", "4000")
    assert done.code == 0, done.stdout + done.stderr
    assert "they agree" in done.stdout
    value = json.loads(run_cli("plan", path, "--oracle", "--len", "4000", "--json").stdout)
    assert value["oracle"]["agrees"] is True
    assert value["oracle"]["command"][0].endswith("llama-fit-params")


def test_a_planner_that_says_something_else_is_a_finding_and_ends_the_holding(
    declare: Callable[..., Path], tiny_gguf: Callable[..., Path], run_cli: Any, tmp_path: Path
) -> None:
    liar = tmp_path / "liar"
    liar.write_text("#!/bin/sh\necho 'Host 0 12345 3'\n")
    liar.chmod(0o755)
    path = declare(tiny_gguf("llama"), {})
    done = run_cli("plan", path, "--oracle", "--set", f"engine.oracle={liar}")
    assert done.code == 1
    assert "oracle-differs" in done.stdout
    assert "12,345" in done.stdout
