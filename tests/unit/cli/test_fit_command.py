"""``archonctl fit`` as a person and a tool meet it."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from archonctl.model.demo_gguf import write_tiny_gguf
from support.hub_server import Hub, serving
from support.raw_safetensors import llama_config

PROFILE = """
ram_mib = 64000
available_mib = 60000
[[cards]]
index = 0
name = "NVIDIA L4"
total_mib = {mib}
maker = "nvidia"
target = "8.9"
"""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "box.toml"
    path.write_text(PROFILE.format(mib=22_563))
    return path


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["qwen3-14b", "--card", "L4"], 0, "FITS  FP8 under vllm, on one card"),
        (["qwen3-14b", "--card", "T4"], 0, "FITS  Q4_K_M under llamacpp, on one card"),
        (["qwen3-14b", "--card", "T4", "--len", "40960"], 1, "REFUSED  fit-size"),
        (["qwen3-14b", "--card", "A100 80GB", "--quant", "FP8"], 1, "REFUSED  fit-capability"),
        (["qwen3-14b", "--card", "L4x2", "--tp", "3"], 1, "REFUSED  fit-unsatisfiable"),
        (["gpt-oss-120b", "--card", "RTX 4090", "--ram", "128"], 0, "experts of"),
        (["qwen3-14b", "--card", "T4", "--kv-quant", "int8", "--len", "40k"], 0, "llamacpp serves it as q8_0"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_the_answer_is_on_one_screen_of_80_columns(run_cli: Any, words: list[str], code: int, said: str) -> None:
    done = run_cli("fit", *words, env={"COLUMNS": "80"})
    assert (done.code, done.stderr) == (code, "")
    assert " ".join(said.split()) in " ".join(done.stdout.split())
    assert max(len(line) for line in done.stdout.splitlines() if "path = " not in line) <= 80


def test_colour_is_for_who_wants_it(run_cli: Any) -> None:
    words = ("fit", "qwen3-14b", "--card", "T4")
    assert "\x1b" not in run_cli(*words, env={"NO_COLOR": "1"}).stdout
    assert "\x1b[" in run_cli(*words, "--color", "always").stdout


def test_the_plan_of_what_was_chosen_holds_and_one_more_does_not(run_cli: Any, tmp_path: Path, profile: Path) -> None:
    model = write_tiny_gguf(tmp_path / "m.gguf", "qwen3")
    found = json.loads(run_cli("fit", model, "--profile", profile, "--len", "4096", "--json").stdout)
    assert found["chosen"]["engine"] == "llamacpp"
    declaration = {**found["chosen"]["declaration"], "host": {"profile": str(profile)}}
    path = tmp_path / "e.toml"
    path.write_text(tomli_w.dumps(declaration))
    assert run_cli("plan", path).code == 0
    need = -(-found["chosen"]["est_bytes"] >> 20) + 1
    profile.write_text(PROFILE.format(mib=need))
    assert run_cli("fit", model, "--profile", profile, "--len", "4096").code == 0
    assert run_cli("plan", path).code == 0
    profile.write_text(PROFILE.format(mib=need - 2))
    assert run_cli("fit", model, "--profile", profile, "--len", "4096").code == 1
    assert run_cli("plan", path).code in (1, 3)


def test_the_declaration_on_the_screen_is_one_that_a_plan_says_holds(
    run_cli: Any, tmp_path: Path, profile: Path
) -> None:
    model = write_tiny_gguf(tmp_path / "m.gguf", "qwen3")
    shown = run_cli("fit", model, "--profile", profile, "--len", "4096").stdout
    lines = [line.strip() for line in shown.splitlines() if line.startswith("    ")]
    declared = tomllib.loads("\n".join(lines))
    assert declared["host"] == {"detect": True}
    path = tmp_path / "e.toml"
    path.write_text(tomli_w.dumps(declared | {"host": {"profile": str(profile)}}))
    assert run_cli("plan", path).code == 0


def test_variants_of_a_folder_are_its_quants_and_several_models_are_refused(run_cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "variants"
    folder.mkdir()
    for name in ("tiny-a.gguf", "tiny-b.gguf"):
        write_tiny_gguf(folder / name, "llama")
    found = json.loads(run_cli("fit", folder, "--card", "T4", "--json").stdout)
    assert found["verdict"] == "fits"
    write_tiny_gguf(folder / "other.gguf", "gemma3")
    done = run_cli("fit", folder, "--card", "T4")
    assert (done.code, "model-is-directory" in done.stderr) == (2, True)


def test_a_repository_is_asked_for_its_variants(run_cli: Any, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    repo.mkdir()
    for name in ("tiny-Q8_0.gguf", "tiny-Q4_K_M.gguf"):
        write_tiny_gguf(repo / name, "qwen3")
    with serving(Hub(repos={"org/tiny": repo})) as hub:
        env = {"HF_ENDPOINT": hub.url, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        done = run_cli("fit", "hf:org/tiny", "--card", "L4", "--json", env=env)
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["chosen"]["declaration"]["model"]["path"].startswith("hf:org/tiny/tiny-Q")


def test_a_folder_without_weights_is_unknown_and_never_small(run_cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(llama_config()))
    done = run_cli("fit", folder, "--card", "L4", "--len", "64", "--json")
    assert (done.code, json.loads(done.stdout)["code"]) == (3, "fit-unknown")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["qwen3-14b", "--card", "T400"], "card-unknown"),
        (["qwen3-14b", "--card", "A100"], "card-ambiguous"),
        (["qwen3-14c", "--card", "T4"], "model-unknown"),
        (["nothing.gguf", "--card", "T4"], "model-missing"),
        (["/dev/null", "--card", "T4"], "model-"),
        (["qwen3-14b", "--card", "T4", "--engine", "ollama"], "engine-unknown"),
        (["qwen3-14b", "--card", "T4", "--kv-quant", "q3"], "kv-quant-unknown"),
        (["qwen3-14b", "--card", "T4", "--seqs", "0"], "command-line-invalid"),
        (["qwen3-14b", "--card", "T4", "--seqs", "many"], "command-line-invalid"),
        (["qwen3-14b", "--card", "T4", "--len", "8"], "command-line-invalid"),
        (["qwen3-14b", "--card", "T4", "--len", "9" * 4_000], "command-line-invalid"),
        (["qwen3-14b", "--ram", "64"], "command-line-invalid"),
        (["qwen3-14b", "--card", "T4", "--profile", "x.toml"], "command-line-invalid"),
        (["qwen3-14b", "--profile", "nowhere.toml"], "declaration-not-found"),
        (["qwen3-14b", "--card", "T4", "--catalogue", "nowhere.toml"], "declaration-not-found"),
        (["", "--card", "T4"], "model-"),
    ],
    ids=lambda part: " ".join(part)[:60] if isinstance(part, list) else part,
)
def test_what_cannot_be_understood_is_refused_by_its_code(run_cli: Any, words: list[str], code: str) -> None:
    done = run_cli("fit", *words)
    assert done.code == 2, done.stdout + done.stderr
    assert code in done.stderr
    assert "Traceback" not in done.stderr


def test_this_machine_is_looked_at_where_nothing_else_is_said(run_cli: Any) -> None:
    """With a card or without one: the answer says where it is of, and is one of the three."""
    done = run_cli("fit", "qwen3-0.6b", "--json")
    found = json.loads(done.stdout)
    assert done.code == {"fits": 0, "refused": 1, "unknown": 3}[found["verdict"]]
    if not any(os.access(node, os.F_OK) for node in ("/dev/nvidiactl", "/dev/kfd", "/dev/dri")):
        assert "no device" in found["where"]
        assert all(each["code"] in ("fit-no-device", "fit-unknown") for each in found["refusals"])
        assert found["chosen"] is None or found["chosen"]["split"] == "ram"
