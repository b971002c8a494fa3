"""A llama.cpp plan on cards: each card's part, what --fit moves, what is refused, and what is not modelled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import MIB
from archonctl.model.geometry import ModelFacts
from archonctl.model.gguf import read_gguf
from archonctl.plan.build import build_plan
from archonctl.plan.load import load_model
from archonctl.plan.solve import solve
from archonctl.plan.trial import Trial
from archonctl.plan.values import Plan

BIG = {"hidden": 128, "ff": 4096, "layers": 12}


@pytest.fixture
def dense(tiny_gguf: Callable[..., Path]) -> ModelFacts:
    return read_gguf(tiny_gguf("llama", **BIG))


def case(model: ModelFacts, cards: list[int], knobs: dict[str, Any] | None = None, length: int = 50_000) -> Trial:
    endpoint = Endpoint(
        contract=Contract(seqs=2, len=length, kv_dtype="f16"),
        engine=Engine.model_validate({"kind": "llamacpp", "version": "b11434", "binary": "/x", "knobs": knobs or {}}),
        model=ModelRef(path=model.path),
    )
    row = tuple(Card(index=i, name=f"card {i}", total_mib=mib, free_mib=mib) for i, mib in enumerate(cards))
    return Trial("e", endpoint, Host(ram_mib=64_000, available_mib=60_000, cards=row), model)


def placed(plan: Plan, cls: str) -> dict[int | None, int]:
    return {d.card: d.bytes for d in plan.forecast.demands if d.cls == cls and d.detail.find("cache") < 0}


def test_each_card_gets_its_part_and_ram_what_is_never_offloaded(dense: ModelFacts) -> None:
    plan = case(dense, [8000, 8000]).plan({})
    weights = placed(plan, "weights")
    assert set(weights) == {None, 0, 1}
    assert sum(weights.values()) == dense.weight_bytes + weights[None]  # a tied output is loaded twice
    shares = [(card.slab_mib, card.pool_mib) for card in plan.cards]
    assert shares[0][0] == weights[0] / MIB
    assert plan.verdict == "holds"
    assert any("not on a card" in item for item in plan.forecast.not_modelled)


def test_a_card_that_is_never_used_claims_nothing(dense: ModelFacts) -> None:
    plan = case(dense, [8000, 8000], {"split-mode": "none", "main-gpu": 1}).plan({})
    assert [card.slab_mib is None for card in plan.cards] == [True, False]


def test_without_room_fit_moves_layers_to_ram_and_the_plan_says_about_how_many(dense: ModelFacts) -> None:
    plan = case(dense, [1300]).plan({})
    assert plan.verdict == "holds"
    assert any("--fit moves all but about" in note for note in plan.notes)
    assert placed(plan, "weights")[None] > 0
    assert all(share.slab_mib is not None and share.slab_mib < 1300 for share in plan.cards)


def test_experts_go_to_ram_before_whole_layers(tiny_gguf: Callable[..., Path]) -> None:
    model = read_gguf(tiny_gguf("qwen3moe", ff=1024, hidden=256, layers=12))
    card = case(model, [90_000], length=4000).plan({}).cards[0]
    whole = (card.slab_mib or 0) + (card.pool_mib or 0) + (card.outside_mib or 0)
    trial = case(model, [int(1024 + whole) - 8], length=4000)
    note = next(note for note in trial.plan({}).notes if "--fit moves" in note)
    assert "the experts of about" in note
    assert "--fit moves all but" in next(n for n in case(model, [1030], length=4000).plan({}).notes if "--fit" in n)


def test_a_split_by_hand_that_cannot_fit_is_refused_with_both_numbers(dense: ModelFacts) -> None:
    trial = case(dense, [100], {"gpu-layers": 99})
    plan = build_plan(trial.name, trial.endpoint, trial.host, trial.model)
    assert plan.verdict == "short"
    assert [problem.code for problem in plan.forecast.problems] == ["llamacpp-card-short"]
    assert "has free 100 MiB" in plan.reasons[0]
    levers = {next(iter(lever.set)) for lever in plan.forecast.levers}
    assert "engine.knobs.gpu-layers" in levers
    found = solve(trial, ["gpu-layers"])
    assert found.plan.verdict == "holds"
    assert found.answers[0].why_not


def test_with_fit_off_nothing_is_moved(dense: ModelFacts) -> None:
    assert case(dense, [100], {"fit": "off"}).plan({}).verdict == "short"


def test_layers_in_ram_are_ram_that_is_judged(dense: ModelFacts) -> None:
    trial = case(dense, [8000], {"gpu-layers": 0})
    plan = trial.plan({})
    assert {demand.scope for demand in plan.forecast.demands} == {"host"}
    assert plan.cards[0].name == "RAM"


@pytest.mark.parametrize("knobs", [{"split-mode": "row"}, {"device": "CUDA9"}])
def test_a_split_that_only_the_engine_knows_is_not_guessed(dense: ModelFacts, knobs: dict[str, Any]) -> None:
    plan = case(dense, [8000, 8000], knobs).plan({})
    assert all(card.slab_mib is None for card in plan.cards)
    assert any("which card holds which" in item for item in plan.forecast.not_modelled)


def test_a_projector_is_weights_of_the_first_card_or_of_ram(tiny_gguf: Callable[..., Path]) -> None:
    path, projector = tiny_gguf("llama", **BIG), tiny_gguf("qwen3")
    for knobs, where in (({}, 0), ({"no-mmproj-offload": True}, None)):
        endpoint = Endpoint(
            contract=Contract(seqs=1, len=4096, kv_dtype="f16"),
            engine=Engine.model_validate(
                {"kind": "llamacpp", "version": "b11434", "binary": "/x", "knobs": {"mmproj": str(projector), **knobs}}
            ),
            model=ModelRef(path=str(path)),
        )
        model = load_model(endpoint)
        assert model is not None
        assert model.projector_bytes == read_gguf(projector).weight_bytes
        host = Host(ram_mib=64_000, cards=(Card(index=0, name="c", total_mib=8000),))
        plan = build_plan("e", endpoint, host, model)
        found = [d for d in plan.forecast.demands if "projector" in d.detail]
        assert [(d.card, d.bytes) for d in found] == [(where, model.projector_bytes)]
        assert any("projector's compute" in item for item in plan.forecast.not_modelled)
