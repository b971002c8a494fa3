"""Which device holds what, against llama.cpp's own planner over devices that count as GPUs (recorded)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.llamacpp.devices import layer_devices, place
from archonctl.engines.llamacpp.kv import KvSettings, allocate, layer_bytes
from archonctl.engines.llamacpp.memory import Widths, device_compute
from archonctl.engines.llamacpp.offload import Offload, offload_of
from archonctl.engines.llamacpp.refusals import split_refusals
from archonctl.errors import DeclarationError
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import MIB
from archonctl.model.gguf import read_gguf
from archonctl.model.inline import describe

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "llamacpp_devices.json").read_text())
TAKES_NOTHING = {"-cmoe", "-nkvo"}


def offload(knobs: dict[str, Any], cards: int, **more: Any) -> Offload:
    endpoint = Endpoint(
        contract=Contract(seqs=2, len=100_000, kv_dtype="f16"),
        engine=Engine.model_validate({"kind": "llamacpp", "version": "b11434", "binary": "/x", "knobs": knobs}),
        model=ModelRef(path="/m"),
    )
    row = tuple(Card(index=i, name=f"c{i}", total_mib=24_000, **more) for i in range(cards))
    return offload_of(endpoint, Host(cards=row))


def knobs_of(flags: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rest = iter(flags)
    for flag in rest:
        name = flag.lstrip("-")
        found[name] = True if flag in TAKES_NOTHING else next(rest)
    return found


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda c: f"{c['arch']}-{'_'.join(c['flags'])}-{c['devices']}")
def test_every_device_holds_what_the_engines_planner_says(tiny_gguf: Callable[..., Path], case: dict[str, Any]) -> None:
    knobs = knobs_of(case["flags"])
    types = {f"type_{side}": str(knobs.pop(f"ct{side}", "f16")) for side in "kv"}
    spread = offload(knobs, case["devices"])
    assert spread.unclear == ""
    model = read_gguf(tiny_gguf(case["arch"], **GOLDEN["models"][case["arch"]]))
    assert model.geometry is not None
    kv_settings = KvSettings(200_000, 2, **types)
    kv = allocate(model.geometry, kv_settings)
    free = [1.0] * len(spread.devices)
    shares = place(model, model.geometry, kv_settings, kv, spread, free)
    rows = {name: figures for name, *figures in case["rows"]}
    names = ["Host", *(f"RPC{card.index}" for card in spread.devices)]
    assert [(n, s.weights // MIB, s.kv // MIB) for n, s in zip(names, shares, strict=True)] == [
        (name, rows[name][0], rows[name][1]) for name in names
    ]

    widths = Widths.of(model, model.geometry)
    assert widths is not None
    where = layer_devices(len(model.geometry.layers), spread, free)
    for name, share in zip(names, shares, strict=True):
        compute = device_compute(model.geometry, widths, kv_settings, kv, spread, where, share.device)
        assert compute.low // MIB <= rows[name][2] <= compute.high / MIB, (name, rows[name], compute)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["llama-3.1-8b", "deepseek-v3", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b"]),
    st.integers(1, 200_000),
    st.integers(1, 9),
    st.sampled_from(["f16", "q8_0", "f32"]),
    st.booleans(),
    st.booleans(),
)
def test_the_layers_keep_all_of_an_allocation(
    name: str, context: int, slots: int, dtype: str, unified: bool, flash: bool
) -> None:
    geometry = describe(None, name).geometry
    assert geometry is not None
    asked = KvSettings(context, slots, unified, dtype, dtype, flash_attn=flash)
    kv = allocate(geometry, asked)
    assert sum(layer_bytes(geometry, asked, kv)) == kv.bytes


@given(st.integers(1, 100), st.integers(0, 120), st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_offloaded_layers_are_the_last_ones_and_devices_come_in_order(layers: int, ngl: int, split: list[int]) -> None:
    spread = offload({"ngl": ngl, "ts": ",".join(map(str, split))}, len(split))
    where = layer_devices(layers, spread, [1.0] * len(split))
    devices = [device for device in where if device is not None]
    assert len(devices) == min(ngl, layers + 1)
    assert where[: len(where) - len(devices)] == [None] * (len(where) - len(devices))
    assert devices == sorted(devices)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"split-mode": "row"}, "row"),
        ({"rpc": "a:1"}, "rpc"),
        ({"device": "CUDA7"}, "CUDA7"),
        ({"ot": "exps=CUDA9"}, "CUDA9"),
        ({"split-mode": "none", "main-gpu": 3}, "main-gpu"),
    ],
)
def test_what_only_the_engine_knows_is_said(knobs: dict[str, Any], said: str) -> None:
    assert said in offload(knobs, 2).unclear


def test_named_devices_are_used_in_their_order_and_none_means_none() -> None:
    assert [card.index for card in offload({"device": "CUDA1,CUDA0"}, 3).devices] == [1, 0]
    assert offload({"device": "none"}, 3).devices == ()
    assert [card.index for card in offload({"sm": "none", "mg": 2}, 3).devices] == [2]


@pytest.mark.parametrize("knobs", [{"ot": "bl(k=CPU"}, {"ts": "a,b"}, {"fitt": "much"}])
def test_what_cannot_be_understood_is_refused(knobs: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError) as caught:
        offload(knobs, 2)
    assert caught.value.code == "knob-bad-value"


@pytest.mark.parametrize(
    ("architecture", "mode", "more", "version", "refused"),
    [
        ("deepseek2", "tensor", {}, "b11434", "no tensor split"),
        ("llama", "tensor", {"flash_attn": False}, "b11434", "flash attention"),
        ("llama", "tensor", {}, "b11434", ""),
        ("llama", "row", {}, "b11434", "no split buffers"),
        ("llama", "row", {}, "", "no split buffers"),
        ("llama", "row", {}, "b6000", ""),
        ("deepseek2", "layer", {"flash_attn": False}, "b11434", ""),
    ],
)
def test_a_split_mode_that_ends_the_boot_is_refused(
    architecture: str, mode: str, more: dict[str, Any], version: str, refused: str
) -> None:
    """Seen over RPC devices, which have no split buffers either: each of the refused ones failed to load."""
    geometry = describe(None, "llama-3.1-8b").geometry
    found = split_refusals(
        replace(geometry, architecture=architecture),
        KvSettings(4096, 1, **more),
        offload({"sm": mode}, 2, maker="nvidia"),
        version,
    )
    assert [refused in problem.message for problem in found] == [True] * bool(refused)
    assert split_refusals(geometry, KvSettings(4096, 1), offload({"sm": mode}, 0), version) == []
