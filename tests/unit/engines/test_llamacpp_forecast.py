"""The forecast of one llama.cpp endpoint: tokens, limits, the RAM card, levers that were tried, honest gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.schema import Contract, Endpoint, Engine, KnobValue, ModelRef
from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.engines.change import changed
from archonctl.engines.llamacpp.assess import assess
from archonctl.host.capacity import host_capacity
from archonctl.host.profile import Card, Host
from archonctl.memory.demand import fit
from archonctl.memory.interval import MIB
from archonctl.model.geometry import Geometry, Layer, ModelFacts, TensorBytes
from archonctl.plan.judge import judge, judged_plan

ADAPTER = adapter("llamacpp")
LAYERS = tuple(Layer(i, "full", 8, 128, 128, 1024, 1024) for i in range(32))
LLAMA = ModelFacts(
    "llama.gguf",
    "gguf",
    Geometry("llama", "llama", LAYERS, 4096, 32, 128_256, 131_072),
    4_700_000_000,
    (TensorBytes("attention", "q4_K", 4_600_000_000, 290),),
    290,
    {"llama.feed_forward_length": 14_336},
)
ROOMY = Host(ram_mib=262_144, available_mib=250_000)


def endpoint(knobs: dict[str, KnobValue] | None = None, version: str = "b11434", **contract: object) -> Endpoint:
    return Endpoint(
        contract=Contract.model_validate({"seqs": 3, "len": 8192, **contract}),
        engine=Engine(kind="llamacpp", version=version, binary="llama-server", knobs=knobs or {}),
        model=ModelRef(path="llama.gguf"),
    )


def forecast(
    knobs: dict[str, KnobValue] | None = None, host: Host = ROOMY, model: ModelFacts | None = LLAMA, **contract: object
) -> Forecast:
    return ADAPTER.forecast(endpoint(knobs, **contract), host, model)


def verdict(declared: Endpoint, host: Host, model: ModelFacts | None) -> str:
    seen = ADAPTER.forecast(declared, host, model)
    return judge(declared.contract, seen, (fit(seen.demands, "host", host_capacity(host)),))[0]


def test_a_contract_without_knobs_holds_by_construction() -> None:
    seen = forecast()
    assert seen.kv_tokens is not None
    assert (seen.kv_tokens.best, seen.kv_tokens.is_exact) == (24_576, True)
    assert (seen.seqs_limit, seen.seq_len_limit) == (3, 8192)
    assert seen.method == "llama.cpp b11434 allocation law, exact"
    assert (seen.problems, seen.levers) == ((), ())


def test_the_ram_card_is_split_into_weights_cache_and_the_rest() -> None:
    card = forecast().cards[0]
    assert (card.name, card.total_mib, card.ceiling_mib) == ("RAM", 262_144, 250_000)
    assert card.slab_mib == pytest.approx(4_600_000_000 / MIB)
    assert card.pool_mib == card.pool_needed_mib == 3072
    assert card.margin_mib == 0
    assert card.outside_mib is not None
    assert card.outside_mib > 8192


def test_the_cgroup_lowers_the_ceiling() -> None:
    host = Host(ram_mib=262_144, available_mib=250_000, cgroup_limit_mib=16_384)
    assert forecast(host=host).cards[0].ceiling_mib == 16_384


def test_a_context_that_is_too_small_is_short_by_tokens_and_by_length() -> None:
    seen = forecast({"ctx-size": 8192})
    assert seen.kv_tokens is not None
    assert (seen.kv_tokens.best, seen.seq_len_limit) == (8448, 2816)
    assert seen.cards[0].margin_mib == pytest.approx((8448 - 24_576) * 131_072 / MIB)
    assert seen.levers[0].set == {"engine.knobs.ctx-size": 24_576}
    assert seen.levers[0].wins_tokens == 24_576 - 8448
    assert dict(seen.levers[1].set) == {"contract.seqs": 1}
    assert dict(seen.levers[2].set) == {"contract.len": 2816}


def test_a_lever_keeps_the_spelling_of_the_declaration() -> None:
    assert forecast({"-c": 8192, "np": 2}).levers[0].set == {"engine.knobs.np": 3, "engine.knobs.-c": 24_576}


def test_too_few_slots_get_more_slots_and_their_context() -> None:
    seen = forecast({"parallel": 2})
    assert seen.seqs_limit == 2
    assert seen.levers[0].set == {"engine.knobs.parallel": 3}


def test_a_slot_cap_under_the_contract_is_raised() -> None:
    seen = forecast({"kv-unified-per-slot": 4000, "kvu": True})
    assert seen.seq_len_limit == 4000
    assert seen.levers[0].set == {"engine.knobs.kv-unified-per-slot": 8192}


def test_a_length_over_the_trained_context_is_a_problem_with_both_numbers() -> None:
    seen = forecast(len=200_000)
    assert [problem.code for problem in seen.problems] == ["len-over-trained-context"]
    assert "200,000" in seen.problems[0].message
    assert "131,072" in seen.problems[0].message
    assert [dict(lever.set) for lever in seen.levers] == [{"contract.len": 131_072}]


def test_yarn_stretches_the_context_and_linear_scaling_does_not() -> None:
    yarn = forecast({"rope-scaling": "yarn", "rope-scale": 2}, len=200_000)
    assert yarn.problems == ()
    assert yarn.seq_len_limit == 200_192
    assert any("YaRN stretches the context to 262,144" in note for note in yarn.notes)
    assert forecast({"rope-scaling": "linear", "rope-scale": 2}, len=200_000).problems


def test_quantised_v_without_flash_attention_is_a_problem_with_a_lever() -> None:
    seen = forecast({"fa": "off"}, kv_dtype="q8_0")
    assert [problem.code for problem in seen.problems] == ["llamacpp-quantised-v"]
    assert seen.levers[0].set == {"engine.knobs.fa": "auto"}


def test_a_shared_cache_says_who_may_take_what() -> None:
    notes = forecast({"kv-unified": True}).notes
    assert any("3 slots share 24,576 cells and each may grow to 24,576" in note for note in notes)
    assert not any("share" in note for note in forecast({"kvu": True, "kv-unified-per-slot": 8192}).notes)


def test_short_ram_gives_back_caches_then_precision_then_the_promise() -> None:
    seen = forecast(host=Host(ram_mib=16_384, available_mib=14_000))
    first, second, *_ = seen.levers
    assert list(first.set) == ["engine.knobs.cache-ram"]
    assert 0 < int(first.set["engine.knobs.cache-ram"]) < 8192
    assert second.set == {"contract.kv_dtype": "q8_0", "engine.knobs.cache-ram": 0}
    assert second.costs == "some precision of the cache"


def test_caches_that_only_grow_while_serving_leave_a_small_machine_unknown_not_short() -> None:
    """A small machine boots with the default limit of 8 GiB, and may be killed later
    (https://github.com/ggml-org/llama.cpp/issues/27725)."""
    plan = judged_plan("e", endpoint(), Host(ram_mib=16_384, available_mib=14_000), LLAMA)
    assert plan.verdict == "unknown"
    assert "ddr_cache" in plan.reasons[0]
    assert plan.fits[0].want_low_bytes < plan.fits[0].budget_bytes


def test_very_short_ram_takes_a_smaller_dtype_or_a_smaller_promise() -> None:
    seen = forecast({"cache-ram": 0}, host=Host(ram_mib=9000, available_mib=8500))
    assert [dict(lever.set) for lever in seen.levers] == [
        {"contract.kv_dtype": "q8_0"},
        {"contract.seqs": 2},
        {"contract.len": 7168},
    ]
    assert "1,440 MiB less, the room of 21,684 tokens" in seen.levers[0].text


def test_weights_that_do_not_fit_have_no_lever() -> None:
    assert forecast(host=Host(ram_mib=4096, available_mib=4000)).levers == ()


def test_declared_context_and_slots_shrink_with_the_promise() -> None:
    host = Host(ram_mib=8000, available_mib=8000)
    seen = forecast({"ctx-size": 24_576, "parallel": 3, "cache-ram": 0}, host=host)
    fewer = next(lever for lever in seen.levers if "contract.seqs" in lever.set)
    seqs = int(fewer.set["contract.seqs"])
    assert fewer.set["engine.knobs.parallel"] == seqs
    assert fewer.set["engine.knobs.ctx-size"] == seqs * 8192


def test_without_a_header_tokens_are_known_and_bytes_are_not() -> None:
    seen = forecast(model=None)
    assert seen.kv_tokens is not None
    assert seen.kv_tokens.best == 24_576
    assert seen.method.endswith("tokens exact")
    card = seen.cards[0]
    assert (card.slab_mib, card.pool_mib, card.margin_mib, card.outside_mib) == (None, None, None, None)
    assert any("header was not read" in gap for gap in seen.not_modelled)


def test_a_context_that_only_the_model_knows_is_unknown_and_never_zero() -> None:
    seen = forecast({"ctx-size": 0}, model=None)
    assert (seen.kv_tokens, seen.seq_len_limit) == (None, None)
    assert verdict(endpoint({"ctx-size": 0}), ROOMY, None) == "unknown"


def test_an_architecture_without_geometry_is_said_and_not_guessed() -> None:
    blank = replace(LLAMA, geometry=None, geometry_reason="no law for architecture 'new'")
    seen = forecast(model=blank)
    assert seen.cards[0].pool_mib is None
    assert any("no law for architecture 'new'" in gap for gap in seen.not_modelled)


def test_an_architecture_that_was_not_compared_says_so() -> None:
    assert LLAMA.geometry is not None
    other = replace(LLAMA, geometry=replace(LLAMA.geometry, architecture="phi3"))
    seen = forecast(model=other)
    assert seen.method.endswith("tokens exact")
    assert any("phi3" in note for note in seen.notes)
    assert seen.cards[0].pool_mib == 3072


def test_on_cards_the_tokens_stay_exact_and_the_split_is_not_claimed() -> None:
    host = Host(ram_mib=65_536, cards=(Card(index=0, name="R9700", total_mib=32_624),))
    seen = forecast({"ngl": 99}, host=host)
    assert seen.kv_tokens is not None
    assert seen.kv_tokens.best == 24_576
    assert (seen.cards[0].name, seen.cards[0].pool_mib, seen.cards[0].slab_mib) == ("R9700", None, None)
    assert {demand.scope for demand in seen.demands if demand.cls in ("weights", "kv_cache")} == {"device"}
    assert any("which card holds which weights" in gap for gap in seen.not_modelled)
    assert forecast({"ngl": 0}, host=host).cards[0].name == "RAM"


def test_offloading_without_a_card_is_said() -> None:
    assert any("no card" in note for note in forecast({"ngl": 99}).notes)


@pytest.mark.parametrize(("version", "said"), [("", "not declared"), ("b9999", "b9999"), ("11434", "")])
def test_another_build_than_the_verified_one_is_said(version: str, said: str) -> None:
    notes = ADAPTER.forecast(endpoint(version=version), ROOMY, LLAMA).notes
    assert any(said in note and "law" in note for note in notes) == bool(said)


def test_memory_outside_the_law_is_named() -> None:
    gaps = forecast({"spec-type": "draft-simple", "md": "draft.gguf", "cache-ram": -1}).not_modelled
    assert any("of the draft: its model was not read" in gap for gap in gaps)
    assert any("without limit" in gap for gap in gaps)


hosts = st.builds(
    Host,
    ram_mib=st.one_of(st.none(), st.integers(1, 400_000)),
    available_mib=st.one_of(st.none(), st.integers(0, 400_000)),
)
knobs = st.fixed_dictionaries(
    {},
    optional={
        "ctx-size": st.integers(1, 400_000),
        "np": st.integers(1, 300),
        "kvu": st.booleans(),
        "cache-ram": st.integers(-1, 20_000),
        "ub": st.sampled_from([128, 512, 2048]),
        "fa": st.sampled_from(["on", "off", "auto"]),
        "kv-unified-per-slot": st.integers(0, 100_000),
    },
)
contracts = st.fixed_dictionaries(
    {
        "seqs": st.integers(1, 400),
        "len": st.integers(16, 300_000),
        "kv_dtype": st.sampled_from(["f16", "q8_0", "f16/q4_0"]),
        "margin": st.sampled_from([0.0, 0.01, 0.25]),
    }
)


@given(host=hosts, knobs=knobs, contract=contracts, header=st.booleans())
def test_every_lever_makes_the_judgement_hold(
    host: Host, knobs: dict[str, KnobValue], contract: dict[str, object], header: bool
) -> None:
    declared, model = endpoint(knobs, **contract), LLAMA if header else None
    seen = ADAPTER.forecast(declared, host, model)
    held = verdict(declared, host, model) == "holds"
    assert assess(declared, host, model).holds == held
    assert not (held and seen.levers)
    for lever in seen.levers:
        assert verdict(changed(declared, lever.set), host, model) == "holds", lever
