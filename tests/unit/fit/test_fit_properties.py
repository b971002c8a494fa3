"""What must hold of every fit: monotone in memory, length and conversations, and at one with the plan."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from archonctl.catalogue import CatalogueModel, load_catalogue
from archonctl.fit.declare import Candidate
from archonctl.fit.kv_quants import known_quants, served
from archonctl.fit.need import need_of
from archonctl.fit.needs import Needs
from archonctl.fit.values import Ask, FitResult
from archonctl.fit.walk import verdict
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import MIB
from archonctl.plan.build import build_plan

MODELS = [model for model in load_catalogue().models if model.quants]
models = st.sampled_from(MODELS)
makers = st.sampled_from([("nvidia", "7.5"), ("nvidia", "8.9"), ("nvidia", "10.0"), ("amd", "gfx942"), ("", "")])
memory = st.integers(1, 400_000)
lengths = st.integers(16, 40_000)
seqs = st.integers(1, 12)
asks = st.builds(
    Ask,
    seqs=seqs,
    len=lengths,
    kv_quant=st.sampled_from(["f16", "fp8", "int4"]),
    engine=st.sampled_from(["", "vllm", "sglang", "llamacpp"]),
    prefer=st.sampled_from(["quality", "speed"]),
    weight_only=st.booleans(),
)
RANK = {"refused": 0, "unknown": 0, "fits": 1}
quick = settings(max_examples=60, deadline=None)


def host(mib: int, count: int, maker: tuple[str, str], ram_mib: int | None = None) -> Host:
    cards = tuple(Card(index=i, name="X", total_mib=mib, maker=maker[0], target=maker[1]) for i in range(count))
    return Host(cards=cards, ram_mib=ram_mib)


@quick
@given(models, memory, memory, st.integers(1, 8), makers, asks)
def test_more_memory_never_turns_a_fit_into_a_refusal(
    model: CatalogueModel, mib: int, more: int, count: int, maker: tuple[str, str], ask: Ask
) -> None:
    less = verdict(model, host(mib, count, maker), ask)
    roomy = verdict(model, host(mib + more, count, maker), ask)
    assert RANK[less.verdict] <= RANK[roomy.verdict]


@quick
@given(models, memory, makers, asks, st.integers(0, 5_000), st.integers(0, 8), st.none() | st.integers(1_000, 800_000))
def test_longer_contexts_and_more_conversations_never_turn_a_refusal_into_a_fit(
    model: CatalogueModel, mib: int, maker: tuple[str, str], ask: Ask, longer: int, more: int, ram: int | None
) -> None:
    on = host(mib, 2, maker, ram)
    assert ask.len
    asked = verdict(model, on, ask)
    assert RANK[verdict(model, on, replace(ask, len=ask.len + longer)).verdict] <= RANK[asked.verdict]
    assert RANK[verdict(model, on, replace(ask, seqs=ask.seqs + more)).verdict] <= RANK[asked.verdict]


@quick
@given(models, makers, asks, st.data())
def test_more_cards_never_raise_what_lies_on_one(
    model: CatalogueModel, maker: tuple[str, str], ask: Ask, data: st.DataObject
) -> None:
    needs = Needs(model)
    number = data.draw(st.integers(0, len(model.quants) - 1))
    engine = data.draw(st.sampled_from(model.quants[number].engines))
    kv = served(engine, ask.kv_quant)
    facts = needs.facts(number, engine)
    assume(kv is not None and facts.geometry is not None)
    assert kv
    last = None
    for tp in (1, 2, 4, 8):
        need = need_of(Candidate(facts.path, engine, ask.seqs, ask.len or 4096, kv, tp, "nvidia"), facts)
        if need.unknown or need.problem[0]:
            continue
        assert need.est.low <= need.est.best <= need.est.high
        if last is not None:
            assert need.weights_bytes <= last
        last = need.weights_bytes


@quick
@given(models, asks, st.sampled_from(known_quants()), st.data())
def test_a_substituted_cache_is_never_sized_under_what_is_served(
    model: CatalogueModel, ask: Ask, asked: str, data: st.DataObject
) -> None:
    """The need under a name is that of the type that is served, under its own name."""
    number = data.draw(st.integers(0, len(model.quants) - 1))
    engine = data.draw(st.sampled_from(model.quants[number].engines))
    kv = served(engine, asked)
    assume(kv is not None)
    assert kv
    own = served(engine, kv.dtype)
    assert own is not None
    assert own.dtype == kv.dtype
    facts = Needs(model).facts(number, engine)
    one = Candidate(facts.path, engine, ask.seqs, ask.len or 4096, kv, 1, "nvidia")
    assert need_of(one, facts).kv_bytes == need_of(replace(one, kv=own), facts).kv_bytes


@settings(max_examples=150, deadline=None)
@given(models, memory, st.integers(0, 8), makers, asks, st.none() | st.integers(1_000, 800_000), st.data())
def test_a_plan_of_the_declaration_says_what_the_fit_said(
    model: CatalogueModel,
    mib: int,
    count: int,
    maker: tuple[str, str],
    ask: Ask,
    ram: int | None,
    data: st.DataObject,
) -> None:
    whole = host(mib, count, maker, ram)
    frees = [data.draw(st.none() | st.integers(0, mib)) for _ in whole.cards]
    cards = tuple(card.model_copy(update={"free_mib": free}) for card, free in zip(whole.cards, frees, strict=True))
    on = whole.model_copy(update={"cards": cards})
    found = verdict(model, on, ask)
    needs = Needs(model)
    if found.chosen:
        assert _planned(found, needs, model, on) == "holds"
    for refusal in found.refusals:
        if refusal.declared and refusal.endpoint:
            number = next(i for i, quant in enumerate(model.quants) if quant.name == refusal.quant)
            plan = build_plan("fit", refusal.endpoint, on, needs.facts(number, refusal.engine), detail=False)
            assert plan.verdict in ("short", "unknown"), refusal.message


def _planned(found: FitResult, needs: Needs, model: CatalogueModel, on: Host) -> str:
    assert found.chosen
    number = next(i for i, quant in enumerate(model.quants) if quant.name == found.chosen.quant)
    facts = needs.facts(number, found.chosen.engine)
    return build_plan("fit", found.chosen.endpoint, on, facts, detail=False).verdict


def test_a_card_at_exactly_the_estimate_fits_and_one_below_does_not() -> None:
    model = next(each for each in MODELS if each.name == "qwen3-14b")
    ask = Ask(quants=("Q4_K_M",))
    found = verdict(model, host(100_000, 1, ("nvidia", "8.9")), ask)
    assert found.chosen
    exact = -(-round(found.chosen.est.best) // MIB)
    assert verdict(model, host(exact, 1, ("nvidia", "8.9")), ask).verdict == "fits"
    assert verdict(model, host(exact - 1, 1, ("nvidia", "8.9")), ask).verdict == "refused"
