"""Figures that public calculators get wrong by up to 900 %, through the whole plan and its solver."""

from __future__ import annotations

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, ModelRef
from archonctl.engines.llamacpp.kv import KvSettings, allocate
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import Geometry, ModelFacts
from archonctl.model.inline import describe
from archonctl.plan.solve import solve
from archonctl.plan.trial import Trial

GIB = 1024**3


def geometry(name: str) -> Geometry:
    found = describe(None, name).geometry
    assert found is not None
    return found


def trial(model: str, knobs: dict[str, int | bool], length: int, cards: int = 1, seqs: int = 1) -> Trial:
    endpoint = Endpoint(
        contract=Contract(seqs=seqs, len=length, kv_dtype="f16"),
        engine=Engine.model_validate({"kind": "vllm", "version": "0.32.0", "binary": "/x", "knobs": knobs}),
        model=ModelRef(path="/m"),
    )
    host = Host(cards=tuple(Card(index=i, name="H100", total_mib=81_559) for i in range(cards)))
    return Trial("e", endpoint, host, ModelFacts("/m", "safetensors", geometry(model), 1))


def test_deepseek_v3_on_sixteen_h100_holds_59_sequences_of_8k_since_every_rank_keeps_all_latents() -> None:
    """(80 x 0.9 - 40.1 of weights) GiB a rank over 576 elements x 61 layers x 2 bytes a token, on every rank."""
    left = int((72 - 40.1) * GIB)
    sixteen = trial("deepseek-v3", {"tensor-parallel-size": 16, "kv-cache-memory-bytes": left}, 8192, 16)
    found = solve(sixteen, ["seqs"])
    assert found.answers[0].value == 59
    assert found.plan.forecast.seqs_limit == 59
    one = trial("deepseek-v3", {"kv-cache-memory-bytes": left}, 8192)
    assert solve(one, ["seqs"]).answers[0].value == 59


@pytest.mark.parametrize(
    ("length", "vllm", "llamacpp", "naive"), [(8192, 2.04, 1.23, 3.875), (131_072, 11.41, 10.61, 62.0)]
)
def test_a_sequence_of_gemma_3_27b(length: int, vllm: float, llamacpp: float, naive: float) -> None:
    model = geometry("gemma-3-27b")
    assert sum(layer.k_width + layer.v_width for layer in model.layers) * 2 * length / GIB == naive
    assert round(allocate(model, KvSettings(length, 1)).bytes / GIB, 2) == llamacpp
    one_batch = trial("gemma-3-27b", {"no-async-scheduling": True}, length)
    terms = {term.name: term.value for term in one_batch.plan({}, detail=True).forecast.terms}
    assert round(terms["request_blocks"] * terms["block_bytes"] / GIB, 2) == vllm
