"""A draft beside a model: its weights and cells, where they lie, what --fit makes of them, and what has no law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.llamacpp.assess import Assessment, assess
from archonctl.engines.llamacpp.kv import KvSettings, allocate
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import ModelFacts
from archonctl.model.gguf import read_gguf
from archonctl.plan.build import build_plan


@pytest.fixture
def beside(tiny_gguf: Callable[..., Path]) -> ModelFacts:
    model = read_gguf(tiny_gguf("llama", hidden=128, ff=4096, layers=12))
    return replace(model, draft=read_gguf(tiny_gguf("qwen3", hidden=128, ff=2048, layers=6)))


def endpoint(knobs: dict[str, Any]) -> Endpoint:
    return Endpoint(
        contract=Contract(seqs=2, len=20_000, kv_dtype="f16"),
        engine=Engine.model_validate(
            {"kind": "llamacpp", "version": "b11434", "binary": "/x", "knobs": {"md": "/d", **knobs}}
        ),
        model=ModelRef(path="/m"),
    )


def assessed(model: ModelFacts, knobs: dict[str, Any] | None = None, cards: tuple[int, ...] = ()) -> Assessment:
    row = tuple(Card(index=i, name="c", total_mib=mib, free_mib=mib) for i, mib in enumerate(cards))
    return assess(endpoint(knobs or {}), Host(ram_mib=64_000, available_mib=60_000, cards=row), model)


def test_a_draft_has_weights_and_cells_for_the_whole_context(beside: ModelFacts) -> None:
    now = assessed(beside, {"ctkd": "q8_0", "ctvd": "q8_0"})
    assert beside.draft is not None
    assert beside.draft.geometry is not None
    assert now.kv is not None
    assert now.draft is not None
    alone = allocate(beside.draft.geometry, KvSettings(now.kv.tokens, 2, type_k="q8_0", type_v="q8_0"))
    assert (now.draft.kv, now.draft.weights) == (alone, beside.draft.weight_bytes)
    found = [demand for demand in now.demands if demand.detail.startswith("draft")]
    assert {demand.cls for demand in found} == {"weights", "kv_cache", "activation"}
    assert sum(d.bytes for d in found if d.cls != "activation") == alone.bytes + beside.draft.weight_bytes


def test_on_cards_a_draft_is_split_like_the_model_and_counts_for_fit(beside: ModelFacts) -> None:
    now = assessed(beside, {}, (8000, 8000))
    assert now.spread is not None
    assert now.draft is not None
    assert beside.draft is not None
    drafts = [part.draft for part in now.spread.parts if part.draft]
    assert sum(share.kv for share in drafts) == now.draft.kv.bytes
    assert sum(share.weights for share in drafts) >= beside.draft.weight_bytes
    assert [bool(share.kv) for share in drafts] == [False, True, True]
    in_ram = assessed(beside, {"ngld": 0}, (8000, 8000)).spread
    assert in_ram is not None
    assert [bool(part.draft and part.draft.kv) for part in in_ram.parts] == [True, False, False]

    alone = assessed(replace(beside, draft=None), {}, (8000,)).spread
    assert alone is not None
    room = 1024 + int(sum(part.wanted.best for part in alone.cards)) // 2**20
    tight = assessed(beside, {}, (room + 2,)).spread
    assert tight is not None
    assert tight.moved


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"spec-type": "draft-eagle3"}, "draft-eagle3"),
        ({"spec-type": "draft-mtp"}, "of the draft"),
        ({"spec-type": "ngram-simple"}, "n-gram"),
        ({"devd": "CUDA1"}, "which card holds which"),
    ],
)
def test_a_draft_without_a_law_is_said_and_not_counted(beside: ModelFacts, knobs: dict[str, Any], said: str) -> None:
    cards = (Card(index=0, name="c", total_mib=9000), Card(index=1, name="c", total_mib=9000))
    plan = build_plan("e", endpoint(knobs), Host(ram_mib=64_000, cards=cards), beside)
    assert any(said in gap for gap in plan.forecast.not_modelled)


def test_some_hybrids_keep_a_state_for_each_drafted_token(tiny_gguf: Callable[..., Path]) -> None:
    hybrid = read_gguf(tiny_gguf("qwen3next"))
    assert hybrid.geometry is not None
    knobs = {"spec-type": "draft-mtp", "spec-draft-n-max": 5, "md": ""}
    plain, kept = assessed(hybrid, knobs).kv, None
    newer = replace(hybrid, geometry=replace(hybrid.geometry, architecture="qwen35moe"))
    kept = assessed(newer, knobs).kv
    assert plain is not None
    assert plain.recurrent is not None
    assert kept is not None
    assert kept.recurrent is not None
    assert kept.recurrent.bytes == 6 * plain.recurrent.bytes
