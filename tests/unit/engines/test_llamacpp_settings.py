"""From a declaration to settings: what is derived from the contract, what is honoured, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.schema import Contract, Endpoint, Engine, KnobValue, ModelRef
from archonctl.engines.llamacpp import settings
from archonctl.engines.llamacpp.declared import ALIASES
from archonctl.engines.llamacpp.settings import adapted, settings_of
from archonctl.engines.passed_on import table
from archonctl.errors import DeclarationError
from archonctl.model.geometry import Geometry, ModelFacts


def endpoint(
    knobs: dict[str, KnobValue] | None = None, env: dict[str, str] | None = None, **contract: object
) -> Endpoint:
    return Endpoint(
        contract=Contract.model_validate({"seqs": 3, "len": 8000, **contract}),
        engine=Engine(kind="llamacpp", binary="llama-server", knobs=knobs or {}, env=env or {}),
        model=ModelRef(path="model.gguf"),
    )


def code(knobs: dict[str, KnobValue] | None = None, env: dict[str, str] | None = None, **contract: object) -> str:
    with pytest.raises(DeclarationError) as refused:
        settings_of(endpoint(knobs, env, **contract))
    return refused.value.code


def test_without_knobs_everything_follows_from_the_contract() -> None:
    kv = settings_of(endpoint()).kv
    assert (kv.n_ctx, kv.n_seq_max, kv.kv_unified, kv.type_k, kv.type_v) == (3 * 8192, 3, False, "f16", "f16")


def test_the_margin_is_funded_in_every_sequence() -> None:
    assert settings_of(endpoint(margin=0.01)).kv.n_ctx == 3 * 8192
    assert settings_of(endpoint(margin=0.1)).kv.n_ctx == 3 * 8960
    assert settings_of(endpoint({"kv-unified": True}, margin=0.1)).kv.n_ctx == 26_624


def test_more_slots_than_promised_are_all_of_full_height() -> None:
    assert settings_of(endpoint({"parallel": 5})).kv.n_ctx == 5 * 8192


def test_auto_slots_are_four_on_one_unified_cache() -> None:
    found = settings_of(endpoint({"parallel": -1, "no-kv-unified": True}))
    assert (found.kv.n_seq_max, found.kv.kv_unified, found.slots_auto) == (4, True, True)


@pytest.mark.parametrize("key", ["ctx-size", "c", "-c", "--ctx-size", "ctx_size"])
def test_a_knob_has_many_spellings(key: str) -> None:
    found = settings_of(endpoint({key: "128k"}))
    assert found.kv.n_ctx == 131_072
    assert found.keys["ctx-size"] == key


def test_switches_are_read_in_either_sense() -> None:
    assert settings_of(endpoint({"kvu": True})).kv.kv_unified
    assert settings_of(endpoint({"no-kvu": False})).kv.kv_unified
    assert not settings_of(endpoint({"kv-unified": "off"})).kv.kv_unified


def test_k_and_v_may_differ() -> None:
    kv = settings_of(endpoint(kv_dtype="q8_0/q4_0")).kv
    assert (kv.type_k, kv.type_v) == ("q8_0", "q4_0")
    assert settings_of(endpoint({"ctk": "q8_0"}, kv_dtype="q8_0")).kv.type_v == "q8_0"


def test_offloading_is_asked_for_ruled_out_or_left_open() -> None:
    assert settings_of(endpoint()).offload is None
    assert settings_of(endpoint({"ngl": "auto"})).offload is None
    assert settings_of(endpoint({"ngl": 0})).offload is False
    assert settings_of(endpoint({"device": "none"})).offload is False
    assert settings_of(endpoint({"n-gpu-layers": 99})).offload is True


@pytest.mark.parametrize(
    ("knobs", "wanted"),
    [
        ({"c": 1, "ctx-size": 2}, "knob-twice"),
        ({"kvu": True, "no-kvu": True}, "knob-twice"),
        ({"c": "12abc"}, "knob-bad-value"),
        ({"c": -1}, "knob-bad-value"),
        ({"c": 1.5}, "knob-bad-value"),
        ({"c": True}, "knob-bad-value"),
        ({"np": 0}, "knob-bad-value"),
        ({"np": -2}, "knob-bad-value"),
        ({"fa": "maybe"}, "knob-bad-value"),
        ({"swa-full": "perhaps"}, "knob-bad-value"),
        ({"rope-scale": 0}, "knob-bad-value"),
        ({"rope-freq-scale": "nan"}, "knob-bad-value"),
        ({"cache-ram": -2}, "knob-bad-value"),
        ({"ctk": "q8_0"}, "kv-dtype-conflict"),
        ({"cache-type-v": "bf16"}, "kv-dtype-conflict"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(knobs: dict[str, KnobValue], wanted: str) -> None:
    assert code(knobs) == wanted


def test_an_unknown_dtype_is_refused_with_all_that_are_known() -> None:
    with pytest.raises(DeclarationError, match="iq4_nl, q5_0, q5_1") as refused:
        settings_of(endpoint(kv_dtype="fp8"))
    assert refused.value.code == "kv-dtype-unknown"
    assert "q8_0" in refused.value.hint
    assert code(kv_dtype="f16/int3") == "kv-dtype-unknown"


def test_a_conflict_names_both_places() -> None:
    with pytest.raises(DeclarationError, match=r"contract.kv_dtype says 'q4_0', so K is q4_0; knob ctk says 'f16'"):
        settings_of(endpoint({"ctk": "f16"}, kv_dtype="q4_0"))


@pytest.mark.parametrize("variable", ["LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_NO_KV_UNIFIED", "LLAMA_API_KEY"])
def test_flags_in_disguise_are_refused_in_the_environment(variable: str) -> None:
    assert code(env={variable: "1"}) == "knob-in-environment"


def test_other_variables_pass() -> None:
    assert settings_of(endpoint(env={"OMP_NUM_THREADS": "2", "GGML_LOG": "1"}))


def facts(trained: int, **metadata: int | str | float) -> ModelFacts:
    keys = {f"llama.rope.scaling.{name}": value for name, value in metadata.items()}
    return ModelFacts("x", "gguf", Geometry("llama", "x", (), 1, 1, 1, trained), 1, metadata=dict(keys))


@pytest.mark.parametrize(
    ("knobs", "header", "stretch"),
    [
        ({}, {}, 0),
        ({"rope-scaling": "yarn"}, {}, 0),
        ({"rope-scaling": "linear", "rope-scale": 2}, {}, 0),
        ({"rope-scaling": "yarn", "rope-scale": 2}, {}, 16_384),
        ({"rope-scaling": "yarn", "rope-freq-scale": 0.25}, {}, 32_768),
        ({"rope-scaling": "yarn", "rope-scale": 2, "yarn-orig-ctx": 4096}, {}, 8192),
        ({"rope-scale": 4}, {"type": "yarn", "original_context_length": 2048, "factor": 2.0}, 8192),
        ({"rope-scale": 2}, {"type": "yarn", "original_context_length": 2048, "factor": 2.0}, 0),
    ],
    ids=str,
)
def test_only_yarn_with_a_factor_of_its_own_stretches_a_slot(
    knobs: dict[str, KnobValue], header: dict[str, int | str | float], stretch: int
) -> None:
    assert adapted(settings_of(endpoint(knobs)), facts(8192, **header)).kv.stretched_context == stretch


def test_an_overridden_header_is_read_as_the_engine_reads_it() -> None:
    found = settings_of(endpoint({"override-kv": "a.b=bool:true,llama.context_length=int:1234"}))
    assert settings.trained_context(found, facts(8192)) == 1234


def test_the_short_list_of_aliases_agrees_with_the_whole_table() -> None:
    for alias, name in ALIASES.items():
        found = table("llamacpp", "b11434").find(alias)
        assert found, alias
        assert name == (found[0].flag if found[1] else f"no-{found[0].flag}"), alias


@given(
    seqs=st.integers(1, 256),
    length=st.integers(16, 300_000),
    margin=st.floats(0, 0.5),
    unified=st.booleans(),
)
def test_what_is_derived_always_funds_the_contract(seqs: int, length: int, margin: float, unified: bool) -> None:
    declared = endpoint({"kv-unified": unified}, seqs=seqs, len=length, margin=margin)
    kv = settings_of(declared).kv
    assert kv.n_ctx >= declared.contract.tokens_with_margin
    assert kv.n_ctx % 256 == 0
    if not unified:
        assert kv.n_ctx // kv.n_seq_max >= length


@given(
    knobs=st.dictionaries(
        st.sampled_from([*ALIASES, *ALIASES.values(), "fit", "rope-scale", "swa-full", "override-kv", "nonsense"]),
        st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=12)),
        max_size=4,
    )
)
def test_any_knob_is_understood_or_refused_in_words(knobs: dict[str, KnobValue]) -> None:
    assert _code_of(knobs) in {"", "knob-twice", "knob-bad-value", "kv-dtype-conflict"}


def _code_of(knobs: dict[str, KnobValue]) -> str:
    try:
        settings_of(endpoint(knobs))
    except DeclarationError as refused:
        return refused.code if refused.where else "no place is named"
    return ""
