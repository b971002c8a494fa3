"""What the plan says that ``--fit`` does, against what it did on devices that count as GPUs (recorded)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.llamacpp.assess import Assessment, assess
from archonctl.engines.llamacpp.fill import fill, placed
from archonctl.engines.llamacpp.offload import Offload
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import ModelFacts
from archonctl.model.gguf import read_gguf

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "llamacpp_fit.json").read_text())
TOTAL = GOLDEN["total_mib"]


def planned(model: ModelFacts, case: dict[str, Any], **more: Any) -> Assessment:
    knobs = {"fit-target": TOTAL - case["room"], "ctx-size": case["ctx"], **more}
    if not case["ctx"]:
        knobs.setdefault("fit-ctx", 4096)
    endpoint = Endpoint(
        contract=Contract(seqs=2, len=1000, kv_dtype="f16"),
        engine=Engine.model_validate({"kind": "llamacpp", "version": "b11434", "binary": "/x", "knobs": knobs}),
        model=ModelRef(path="/m"),
    )
    cards = tuple(Card(index=i, name="c", total_mib=TOTAL, free_mib=TOTAL) for i in range(case["devices"]))
    return assess(endpoint, Host(ram_mib=TOTAL, cards=cards), model)


@pytest.fixture(scope="module")
def model(tiny_gguf: Callable[..., Path]) -> Callable[[str], ModelFacts]:
    return cache(lambda arch: read_gguf(tiny_gguf(arch, **GOLDEN["models"][arch])))


@pytest.mark.parametrize("arch", GOLDEN["models"])
def test_the_context_that_fit_took_lies_between_the_ends(model: Callable[[str], ModelFacts], arch: str) -> None:
    for case in GOLDEN["cases"]:
        if case["arch"] == arch and not case["ctx"]:
            context = planned(model(arch), case).context
            assert context is not None
            assert context.low <= case["said_ctx"] <= context.high, (case, context)


@pytest.mark.parametrize("arch", ["llama", "gemma3", "qwen3moe", "deepseek2"])
def test_about_as_many_layers_are_moved_as_fit_moved(model: Callable[[str], ModelFacts], arch: str) -> None:
    """Where weights and cells outweigh the compute buffer, whose size is an estimate."""
    off: Counter[int] = Counter()
    for case in GOLDEN["cases"]:
        if case["arch"] == arch and case["ctx"]:
            spread = planned(model(arch), case).spread
            assert spread is not None
            held = spread.offload.gpu_layers
            off[abs((case["ngl"] if case["ngl"] >= 0 else 1 << 20) - (1 << 20 if held is None else held))] += 1
    assert sum(off.values()) == 9
    assert off[0] + off[1] >= 7, off


def test_a_stated_ctx_size_of_0_is_not_shortened(model: Callable[[str], ModelFacts]) -> None:
    """``--ctx-size 0`` means all of it; only a --fit-ctx after it lets --fit go down (common/arg.cpp)."""
    case = {"room": 91, "ctx": 0, "devices": 1}
    whole = planned(model("llama"), {**case, "ctx": 0}, **{"fit-ctx": 4096})
    assert whole.shape is not None
    assert whole.shape.n_ctx == 8192
    said = Endpoint(
        contract=Contract(seqs=2, len=1000, kv_dtype="f16"),
        engine=Engine(kind="llamacpp", version="b11434", binary="/x", knobs={"ctx-size": 0}),
        model=ModelRef(path="/m"),
    )
    shape = assess(said, Host(ram_mib=10), model("llama")).shape
    assert shape is not None
    assert shape.n_ctx == 2 * 262_144


OFFLOAD = Offload(None, False, "layer", (), (), True, (), (1024,), 4096)


@given(st.integers(1, 90), st.booleans(), st.lists(st.integers(0, 500), min_size=1, max_size=5), st.integers(0, 30))
def test_a_layout_uses_each_layer_once_and_keeps_every_room(
    layers: int, mixture: bool, rooms: list[int], expert: int
) -> None:
    """A layer takes 3, its experts more; the output is the last layer, and it is always whole."""

    def wanted(asked: Offload) -> list[int]:
        split = [int(share) for share in asked.tensor_split] or [asked.gpu_layers or 0]
        if asked.gpu_layers is None:
            split = [layers + 1] + [0] * (len(rooms) - 1)
        at, found = layers + 1 - sum(split), []
        for count in split:
            names = [f"blk.{i}.ffn_up_exps" for i in range(at, at + count)]
            bare = sum(bool(p.search(n)) for n in names for p, _ in asked.overrides)
            found.append(3 * count + expert * (count - bare) * mixture)
            at += count
        return found

    layout = fill(layers, mixture, OFFLOAD, rooms, wanted)
    assert sum(held.layers for held in layout) <= layers + 1
    assert all(0 <= held.bare <= held.layers for held in layout)
    for asked, room in zip(wanted(placed(layout, layers, OFFLOAD)), rooms, strict=True):
        assert asked <= room or asked == 0
