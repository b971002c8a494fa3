"""Every answer of a solver holds by the forward law, and the next better value does not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.deployment.schema import Contract, Endpoint, Engine, KnobValue, ModelRef
from archonctl.engines import KINDS
from archonctl.errors import UsageError
from archonctl.host.profile import Card, Host
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes
from archonctl.model.gguf import read_gguf
from archonctl.plan.build import build_plan
from archonctl.plan.solve import Solution, assigned, declared, solve
from archonctl.plan.trial import Trial

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
import radiance_cases as radiance

LLAMA = ModelFacts(
    "/m",
    "safetensors",
    Geometry(
        "llama", "l", tuple(Layer(i, "full", 8, 128, 128, 1024, 1024) for i in range(32)), 4096, 32, 32_000, 131_072
    ),
    16 << 30,
    (TensorBytes("dense_ffn", "BF16", 16 << 30, 1),),
    1,
    {"llama.feed_forward_length": 14_336},
)
VERSIONS = {"vllm": "0.32.0", "sglang": "0.5.3", "llamacpp": "b11434"}


def trial(kind: str, knobs: Mapping[str, KnobValue] | None = None, total_mib: int = 81_920, cards: int = 2) -> Trial:
    """A model of 16 GiB on cards, or for llama.cpp in as much RAM."""
    endpoint = Endpoint(
        contract=Contract(seqs=4, len=8192, kv_dtype="f16"),
        engine=Engine.model_validate(
            {"kind": kind, "version": VERSIONS[kind], "binary": "/x", "knobs": dict(knobs or {})}
        ),
        model=ModelRef(path="/m"),
    )
    if kind == "llamacpp":
        return Trial("e", endpoint, Host(ram_mib=total_mib, available_mib=total_mib), LLAMA)
    row = tuple(Card(index=i, name=f"c{i}", total_mib=total_mib) for i in range(cards))
    return Trial("e", endpoint, Host(ram_mib=500_000, cards=row), LLAMA)


def archon(name: str = "archon", **changes: Any) -> Trial:
    return Trial(name, radiance.declared(name, **changes), radiance.host(), radiance.model())


def check(case: Trial, solution: Solution) -> None:
    """The whole promise of a solver."""
    assert build_plan("again", case.endpoint_with(solution.change), case.host, case.model).verdict == "holds"
    for answer in solution.answers:
        if answer.beyond is not None:
            beyond = {**solution.change, **assigned(answer.variable, answer.beyond)}
            assert not case.holds(beyond), answer
            assert answer.why_not


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["vllm", "sglang", "llamacpp"]),
    st.sampled_from(["seqs", "len", "kv-dtype", "utilization", "tp", "context", "prompt-cache", "len,kv-dtype"]),
    st.integers(20_000, 200_000),
    st.sampled_from([0.7, 0.85, 0.9]),
)
def test_an_answer_holds_and_one_step_more_does_not(kind: str, asked: str, total_mib: int, share: float) -> None:
    knob = {"vllm": "gpu-memory-utilization", "sglang": "mem-fraction-static"}.get(kind)
    case = trial(kind, {knob: share} if knob else None, total_mib)
    names = asked.split(",")
    if not set(names) <= case.variables().keys():
        return
    solution = solve(case, names)
    if solution.answers:
        check(case, solution)
        assert solution.plan.verdict == "holds"
    else:
        assert solution.plan.verdict != "holds"
        assert not case.holds({})


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(["archon", "archon-pair"]),
    st.sampled_from(["seqs", "len", "kv-dtype", "host-pool", "kv-pool", "slab"]),
    st.integers(1, 8),
    st.integers(1000, 400_000),
)
def test_an_answer_for_radiance_holds_and_one_step_more_does_not(name: str, asked: str, seqs: int, length: int) -> None:
    case = archon(name, contract={"seqs": seqs, "len": length})
    if asked in case.variables():
        solution = solve(case, [asked])
        if solution.answers:
            check(case, solution)


def test_a_price_and_a_promise_are_solved_together() -> None:
    case = archon()
    alone = solve(case, ["len"]).answers[0].value
    both = solve(case, ["len", "host-pool"])
    check(case, both)
    assert [answer.name for answer in both.answers] == ["len", "host-pool"]
    assert both.answers[0].value > alone  # type: ignore[operator]


def test_the_promise_is_solved_first_whatever_the_order_asked() -> None:
    both = solve(archon(), ["kv-dtype", "len"])
    assert both.asked == ("kv-dtype", "len")
    assert [answer.name for answer in both.answers] == ["len", "kv-dtype"]


def test_a_knob_that_limits_the_promise_follows_it() -> None:
    solution = solve(archon(knobs={"max-num-seqs": 3, "max-model-len": 200_000}), ["len"])
    assert solution.change.keys() == {"contract.len", "engine.knobs.max-model-len"}
    assert len(set(solution.change.values())) == 1


@pytest.mark.parametrize(
    ("names", "code", "said"),
    [
        (["room"], "solve-unknown-name", "host-pool"),
        (["seqs", "len"], "solve-too-free", "--sweep"),
    ],
)
def test_a_question_without_one_answer_is_refused(names: list[str], code: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        solve(archon(), names)
    assert caught.value.code == code
    assert said in caught.value.hint


def test_two_ranges_that_are_paid_with_are_too_free() -> None:
    with pytest.raises(UsageError, match="free ranges"):
        solve(archon("archon-pair"), ["kv-pool", "slab"])


def test_nothing_holds_is_no_answer_and_says_why() -> None:
    solution = solve(archon("archon-pair", knobs={"vram-kv-mib": 100}), ["seqs"])
    assert (solution.answers, solution.change) == ((), {})
    assert solution.plan.contract.seqs == 1
    assert solution.plan.reasons


def test_ranks_that_do_not_divide_the_heads_are_passed_over() -> None:
    case = trial("vllm", {"kv-cache-memory-bytes": 12 << 30}, cards=8)
    plan = case.plan({"contract.len": 65_536, "engine.knobs.tensor-parallel-size": 3})
    assert [problem.code for problem in plan.forecast.problems] == ["tp-unservable"]
    ranks = solve(Trial("e", case.endpoint_with({"contract.len": 65_536}), case.host, case.model), ["tp"])
    assert ranks.answers[0].value == 4


@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_can_be_solved_for_its_promise(kind: str) -> None:
    case = archon() if kind == "radiance" else trial(kind)
    names = case.variables()
    assert {"seqs", "len", "kv-dtype"} <= names.keys()
    for variable in names.values():
        assert variable.choices or variable.low < variable.high
        declared(case.endpoint, variable)


def test_an_engine_without_levers_of_its_own_gets_solved_ones() -> None:
    plan = build_plan("e", trial("sglang", {"mem-fraction-static": 0.22}).endpoint, trial("sglang").host, LLAMA)
    assert plan.verdict == "short"
    keys = [next(iter(lever.set)) for lever in plan.forecast.levers]
    assert "engine.knobs.mem-fraction-static" in keys
    for lever in plan.forecast.levers:
        assert trial("sglang", {"mem-fraction-static": 0.22}).holds(lever.set), lever
        assert lever.costs or lever.quality


def test_levers_that_give_up_the_promise_come_last_and_precision_before_them() -> None:
    short = archon("archon-pair", contract={"kv_dtype": "bf16"})
    levers = short.plan({}, detail=True).forecast.levers
    ranks = [("contract.seqs" in lever.set or "contract.len" in lever.set, bool(lever.quality)) for lever in levers]
    assert ranks == sorted(ranks)
    assert any(lever.quality for lever in levers)


def test_a_lever_of_the_host_pool_has_its_price() -> None:
    lever = archon(knobs={"host-pool-mib": 44_928}).plan({}, detail=True).forecast.levers[0]
    assert (lever.slab_lost_mib, lever.wins_tokens) == (640, 44_000)
    assert "t/s" in lever.throughput


def everything(tiny_gguf: Callable[..., Path]) -> dict[str, Trial]:
    """Each engine in each of the ways in which its variables differ."""
    gguf = read_gguf(tiny_gguf("qwen3moe", ff=1024, hidden=256, layers=12))
    declared_on_cards = Endpoint(
        contract=Contract(seqs=2, len=20_000, kv_dtype="f16"),
        engine=Engine(kind="llamacpp", version="b11434", binary="/x", knobs={"gpu-layers": 3, "n-cpu-moe": 2}),
        model=ModelRef(path=gguf.path),
    )
    cards = (Card(index=0, name="c", total_mib=1200, free_mib=1200),)
    cpu = trial("vllm", total_mib=1)
    return {
        "vllm": trial("vllm", {"gpu-memory-utilization": 0.9}),
        "vllm, stated bytes": trial("vllm", {"kv-cache-memory-bytes": 16 << 30}, cards=8),
        "vllm on a CPU": Trial("e", cpu.endpoint, Host(ram_mib=200_000, available_mib=190_000), LLAMA),
        "sglang": trial("sglang", {"mem-fraction-static": 0.85}),
        "llamacpp": trial("llamacpp"),
        "llamacpp on cards": Trial(
            "e", declared_on_cards, Host(ram_mib=60_000, available_mib=50_000, cards=cards), gguf
        ),
        "radiance": archon(),
        "radiance, pair": archon("archon-pair"),
    }


def test_every_variable_of_every_engine_has_an_answer_that_is_the_best(tiny_gguf: Callable[..., Path]) -> None:
    """Each alone: the promise, dtype, host pool, utilisation, ranks, stages, layers and experts in RAM."""
    answered: set[str] = set()
    for name, case in everything(tiny_gguf).items():
        for variable in case.variables():
            solution = solve(case, [variable])
            assert solution.answers or solution.plan.verdict != "holds", (name, variable)
            if solution.answers:
                check(case, solution)
                answered.add(variable)
    wanted = {"seqs", "len", "kv-dtype", "host-pool", "kv-pool", "slab", "utilization", "kv-memory", "tp", "pp"}
    assert answered >= wanted | {"context", "prompt-cache", "gpu-layers", "cpu-moe"}, wanted - answered
