"""``archonctl models`` as a person and a tool see it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from archonctl.catalogue import load_catalogue
from archonctl.fit.cards import card_host
from archonctl.fit.values import Ask
from archonctl.fit.ways import fit
from archonctl.model.demo_gguf import write_tiny_gguf
from support.hub_server import COMMIT, Hub, serving

CARDS = ("L4", "MI300X", "RTX 4090x8")


@pytest.fixture
def home(tmp_path: Path) -> Mapping[str, str]:
    """A person without a catalogue of their own."""
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub()
    folder = made.repos["org/Tiny-GGUF"] = tmp_path / "repos" / "Tiny-GGUF"
    folder.mkdir(parents=True)
    write_tiny_gguf(folder / "tiny-Q8_0.gguf", "qwen3moe")
    with serving(made):
        yield made


def test_the_table_fits_eighty_columns_and_names_every_model_once_a_card(run_cli: Any, home: Mapping[str, str]) -> None:
    cards = [word for card in CARDS for word in ("--card", card)]
    done = run_cli("models", *cards, env=home)
    assert done.code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    for model in load_catalogue(environ={"HOME": "/nonexistent"}).models:
        assert sum(line.startswith(f"  {model.name[:29]} ") for line in lines) == len(CARDS), model.name


def test_it_says_which_quant_fits_and_what_is_too_large(run_cli: Any, home: Mapping[str, str]) -> None:
    done = run_cli("models", "--card", "L4", env=home)
    rows = {words[0]: words[1:] for line in done.stdout.splitlines() if (words := line.split())}
    assert rows["qwen3-14b"][:3] == ["FP8", "vllm", "1"]
    assert rows["llama-3.1-405b"][1] == "wants"


def test_models_and_fit_say_the_same(run_cli: Any, home: Mapping[str, str]) -> None:
    listed = json.loads(run_cli("models", "--card", "T4", "--len", "4096", "--json", env=home).stdout)
    results = {each["model"]: each for each in listed["hosts"][0]["results"]}
    host, catalogue = card_host("T4"), load_catalogue(environ={"HOME": "/nonexistent"})
    for model in catalogue.models[::12]:
        one, mine = fit(model, host, Ask(len=4096)), results[model.name]
        assert (mine["verdict"], mine["code"] or "") == (one.verdict, one.code or "")
        assert (mine["quant"], mine["engine"]) == (one.chosen and one.chosen.quant, one.chosen and one.chosen.engine)


def test_one_engine_alone(run_cli: Any, home: Mapping[str, str]) -> None:
    value = json.loads(run_cli("models", "--card", "L4", "--engine", "llama.cpp", "--json", env=home).stdout)
    assert value["engine"] == "llamacpp"
    assert {each["engine"] for each in value["hosts"][0]["results"] if each["quant"]} == {"llamacpp"}


def test_all_cards_at_once(run_cli: Any, home: Mapping[str, str]) -> None:
    value = json.loads(run_cli("models", "--card", "all", "--json", env=home).stdout)
    assert len(value["hosts"]) > 100
    assert {len(host["results"]) for host in value["hosts"]} == {len(value["models"])}


def test_a_profile_and_this_machine_are_places_too(run_cli: Any, home: Mapping[str, str], repository: Path) -> None:
    assert run_cli("models", "--profile", repository / "env" / "hosts" / "archon.toml", env=home).code == 0
    done = run_cli("models", env=home)
    assert done.code == 0, done.stderr


def test_ones_own_catalogue_is_in_the_table_and_a_broken_one_is_told(
    run_cli: Any, home: Mapping[str, str], tmp_path: Path
) -> None:
    own = tmp_path / "own.toml"
    own.write_text('[[model]]\nname = "qwen3-14b"\n[[model.quant]]\nname = "FP8"\nbytes = 30_000_000_000\n')
    done = run_cli("models", "--card", "L4", "--catalogue", own, env=home)
    assert "qwen3-14b                     Q8_0" in done.stdout
    own.write_text('[[model]]\nname = "qwen3-14b"\nbytes = 1\n')
    done = run_cli("models", "--card", "L4", "--catalogue", own, env=home)
    assert done.code == 2
    assert f"{own}:3: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_is_shown_with_its_sources(run_cli: Any, home: Mapping[str, str]) -> None:
    done = run_cli("models", "show", "openai/gpt-oss-20b", env=home)
    assert done.code == 0
    for part in ("gpt-oss-20b", "20.91 B", "12,109,566,560 bytes", "huggingface.co/openai/gpt-oss-20b", "shipped"):
        assert part in done.stdout
    missing = run_cli("models", "show", "qwen3-14", env=home)
    assert (missing.code, "qwen3-14b" in missing.stderr) == (2, True)


def test_a_repository_is_added_and_is_then_a_model_like_any_other(
    run_cli: Any, home: Mapping[str, str], hub: Hub, tmp_path: Path
) -> None:
    env = {**home, "HF_ENDPOINT": hub.url}
    shown = run_cli("models", "add", "hf:org/Tiny-GGUF", "--print", env=env)
    assert shown.code == 0, shown.stderr
    assert tomllib.loads(shown.stdout)["model"][0]["quant"][0]["revision"] == COMMIT
    own = tmp_path / ".config" / "archonctl" / "models.toml"
    assert not own.exists()
    added = run_cli("models", "add", "hf:org/Tiny-GGUF", "--json", env=env)
    assert json.loads(added.stdout)["file"] == str(own)
    again = run_cli("models", "add", "hf:org/Tiny-GGUF", env=env)
    assert again.code == 2
    assert run_cli("fit", "tiny", "--card", "T4", env=home).code == 0
