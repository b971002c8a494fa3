"""Every shipped model from the facts of its config.json again: layers, parameters, and what its makers say of both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archonctl.catalogue import Catalogue, CatalogueModel, load_catalogue
from archonctl.model.hf_config import hf_geometry
from archonctl.model.inline import describe, known_model
from support.hf_parameters import active, parameters

FOLDER = Path(__file__).parents[2] / "golden" / "configs"
GOLDEN: dict[str, Any] = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}


@pytest.fixture(scope="module")
def shipped() -> Catalogue:
    """Without any catalogue of the machine that tests."""
    return load_catalogue(environ={"HOME": "/nonexistent"})


def agrees(printed: str, derived: Iterable[float]) -> bool:
    """Within 1 %, or printed as "22B" with the digits cut off or rounded."""
    number, unit = re.fullmatch(r"([\d.]+)([BT])", printed).groups()  # type: ignore[union-attr]
    scale = {"B": 1e9, "T": 1e12}[unit]
    said, last = float(number) * scale, 10.0 ** -len(number.partition(".")[2]) * scale
    return any(abs(value - said) <= 0.01 * said or said - last / 2 <= value < said + last for value in derived)


def test_every_shipped_model_has_its_facts_and_there_are_many(shipped: Catalogue) -> None:
    assert {model.name for model in shipped.models} == set(GOLDEN)
    assert len(GOLDEN) >= 40


@pytest.mark.parametrize("name", GOLDEN)
def test_the_row_is_what_the_config_says(name: str, shipped: Catalogue) -> None:
    facts, model = GOLDEN[name], shipped.find(name)
    derived = hf_geometry(facts["config"])
    assert replace(model.geometry, name="") == replace(derived, name="")
    assert model.trained_context == derived.trained_context
    assert model.repo == facts["model"]
    assert model.parameters == parameters(facts["config"])
    assert model.params_total == sum(model.parameters.values()) + facts.get("towers", 0)
    assert model.params_active == active(model.parameters, derived) + facts.get("towers", 0)


@pytest.mark.parametrize("name", GOLDEN)
def test_its_parameters_are_as_many_as_its_makers_say(name: str, shipped: Catalogue) -> None:
    """The active ones with the embedding, without it, or without embedding and output: all three are usual."""
    model, said = shipped.find(name), GOLDEN[name]["published"]
    embedding, output = model.parameters["embedding"], model.parameters.get("output", 0)
    left_out = embedding if said.get("without") == "embedding" else 0
    assert agrees(said["total"], [model.params_total - left_out])
    if "active" in said:
        assert agrees(said["active"], [model.params_active - less for less in (0, embedding, embedding + output)])


@pytest.mark.parametrize("name", GOLDEN)
def test_its_facts_say_where_they_can_be_read(name: str, shipped: Catalogue) -> None:
    facts = GOLDEN[name]
    assert all(source.startswith("https://") for source in facts["sources"])
    assert facts["published"]["source"]
    assert facts["sources"][0].removeprefix("https://") in shipped.find(name).source


def test_a_count_that_nobody_would_print_so_does_not_agree() -> None:
    assert agrees("22B", [22.9e9])
    assert agrees("3.3B", [3.353e9])
    assert not agrees("3.3B", [3.41e9])
    assert not agrees("14.8B", [13.2e9])


def kept(model: CatalogueModel) -> list[tuple[str, int, int, int]]:
    return sorted((each.attention, each.k_width, each.v_width, each.window) for each in model.geometry.layers)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_short_table_of_public_models_says_the_same(name: str, shipped: Catalogue) -> None:
    """known_models.toml has models that are no longer shipped as well; of those that are it may say nothing else."""
    model = shipped.find(name)
    if known_model(model.repo) is None:
        return
    short = describe(None, model.repo).geometry
    theirs = sorted((each.attention, each.k_width, each.v_width, each.window) for each in short.layers)
    assert theirs == kept(model)
    if short.recurrent and model.geometry.recurrent:
        mine = model.geometry.recurrent
        assert (short.recurrent.conv_elements, short.recurrent.ssm_elements) == (mine.conv_elements, mine.ssm_elements)
