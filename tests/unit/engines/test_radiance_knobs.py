"""The knob table by version: what a version takes, what it refuses, and values that would be read as something else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from radiance_cases import ENV, REPOSITORY, declared, forecast, read, shown, verdict

from archonctl.engines.radiance.calibrate import PAIR_SAME
from archonctl.engines.radiance.calibration import calibration
from archonctl.engines.radiance.knobtable import accepts, arguments, check_knob, find, known, parse_version, table
from archonctl.engines.radiance.settings import read_settings
from archonctl.errors import DeclarationError

NOW, PAIR = (1, 8, 1), (1, 2, 0)
FOLDER = REPOSITORY / "controller" / "archonctl" / "engines" / "radiance"


def test_every_row_says_what_it_does_and_where_that_was_read() -> None:
    assert len(table()) > 60
    for knob in table().values():
        assert len(knob.effect) > 8, knob.flag
        assert len(knob.source) > 8, knob.flag
        assert knob.renamed_to in table() or not knob.renamed_to
        for version in filter(None, (knob.since, knob.removed)):
            parse_version(version)
        assert not knob.default or accepts(knob, knob.default), knob.flag


def test_every_measured_figure_names_its_source() -> None:
    data = read(FOLDER / "calibration.toml")
    rows = [*data["exchange"], data["law"], *data["law"]["boot"], *data["slab"], data["carry"]]
    assert all(len(row["source"]) > 8 for row in rows)


def test_the_rules_of_carrying_name_knobs_that_exist() -> None:
    rules = calibration()
    named = rules.exact | rules.widens | rules.inert | set(PAIR_SAME)
    assert named <= set(table())
    assert not rules.exact & rules.inert
    assert not rules.widens & rules.inert


@pytest.mark.parametrize(
    ("flag", "in_pair_era", "now"),
    [
        ("vram-weights-mib", True, False),
        ("vram-kv-mib", True, False),
        ("prefix-cache-dir", True, False),
        ("prefix-cache-disk-mib", True, False),
        ("prefix-cache-host-mib", True, False),
        ("prefix-cache-mib", False, True),
        ("busy-prefill-chunk", False, True),
        ("prefill-interleave", False, True),
        ("expert-vs-cache-ratio", False, False),
        ("p2p", True, True),
        ("gpu-headroom-mib", True, True),
        ("host-pool-mib", True, True),
        ("max-model-len", True, True),
        ("max-num-seqs", True, True),
        ("kv-cache-dtype", True, True),
        ("max-num-batched-tokens", True, True),
        ("draft-model", False, False),
    ],
)
def test_what_each_version_takes(flag: str, in_pair_era: bool, now: bool) -> None:
    assert known(table()[flag], PAIR) is in_pair_era
    assert known(table()[flag], NOW) is now


@pytest.mark.parametrize(
    ("flag", "last", "first_without"),
    [("vram-kv-mib", (1, 2, 9), (1, 3, 0)), ("expert-vs-cache-ratio", (1, 1, 0), (1, 1, 1))],
)
def test_a_removal_is_a_boundary(flag: str, last: tuple[int, int, int], first_without: tuple[int, int, int]) -> None:
    assert known(table()[flag], last)
    assert not known(table()[flag], first_without)


def test_a_retired_knob_is_a_problem_that_names_its_successor() -> None:
    problem = check_knob("prefix-cache-host-mib", 8192, NOW)
    assert problem is not None
    assert problem.code == "knob-retired"
    assert "prefix-cache-mib" in problem.hint
    assert "1.8.1" in problem.message


@pytest.mark.parametrize(
    "stale", ["vram-weights-mib", "vram-kv-mib", "prefix-cache-disk-mib", "prefix-cache-host-mib", "vram_kv_mib"]
)
def test_a_stale_knob_makes_the_plan_short_and_cannot_be_rendered(stale: str) -> None:
    from archonctl.engines.radiance.adapter import ADAPTER

    endpoint = declared(knobs={stale: 5120})
    found = forecast(endpoint)
    assert verdict(endpoint, found) == "short"
    assert "knob-retired" in {p.code for p in found.problems}
    with pytest.raises(DeclarationError) as err:
        ADAPTER.command(endpoint)
    assert err.value.code == "knob-retired"


@pytest.mark.parametrize("key", ["vram-kv-mb", "ctx-size", "host-pool", "", "--", "a" * 200])
def test_an_unknown_knob_is_a_problem_whatever_it_is_called(key: str) -> None:
    problem = check_knob(key, 1, NOW)
    assert problem is not None
    assert problem.code == "knob-unknown"


def test_a_knob_of_a_later_version_is_unknown_and_says_which_brought_it() -> None:
    problem = check_knob("prefix-cache-mib", 8192, PAIR)
    assert problem is not None
    assert problem.code == "knob-unknown"
    assert "1.8.1" in problem.message


def test_a_misspelt_knob_gets_the_one_that_was_meant() -> None:
    problem = check_knob("host-pol-mib", 1, NOW)
    assert problem is not None
    assert "host-pool-mib" in problem.hint


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("host-pool-mib", "45568 MiB"),
        ("host-pool-mib", -1),
        ("host-pool-mib", 45_568.5),
        ("host-pool-mib", True),
        ("host-pool-mib", ""),
        ("host-pool-mib", 2**40),
        ("max-num-seqs", 0),
        ("tp", 0),
        ("tp-wire", "wht8"),
        ("kv-cache-dtype", "f16"),
        ("num-speculative-tokens", -1),
        ("num-speculative-tokens", "Auto"),
        ("busy-prefill-chunk", "on"),
        ("busy-prefill-chunk", 0),
        ("prefill-interleave", "off"),
        ("temp", 2.1),
        ("temp", "nan"),
        ("temp", float("inf")),
        ("top-p", 0.0),
        ("weights-disk-tier", "perhaps"),
        ("kernels", "a\nb"),
        ("kernels", 7),
    ],
)
def test_a_value_that_the_engine_would_misread_is_refused(flag: str, value: bool | int | float | str) -> None:
    problem = check_knob(flag, value, NOW)
    assert problem is not None
    assert problem.code == "knob-bad-value"
    assert "expected" in problem.message


@pytest.mark.parametrize(
    ("flag", "value", "words"),
    [
        ("host-pool-mib", 45_568, ("--host-pool-mib", "45568")),
        ("host-pool-mib", "45_568", ("--host-pool-mib", "45568")),
        ("busy-prefill-chunk", "auto", ("--busy-prefill-chunk", "auto")),
        ("busy-prefill-chunk", "off", ("--busy-prefill-chunk", "off")),
        ("prefill-interleave", 0, ()),
        ("prefill-interleave", "0", ()),
        ("prefill-interleave", 2, ("--prefill-interleave", "2")),
        ("weights-disk-tier", True, ("--weights-disk-tier",)),
        ("weights-disk-tier", False, ()),
        ("temp", 0.7, ("--temp", "0.7")),
        ("num-speculative-tokens", 0, ("--num-speculative-tokens", "0")),
        ("kernels", "libr4d,libref", ("--kernels", "libr4d,libref")),
    ],
)
def test_flag_and_value_are_separate_words(flag: str, value: bool | int | float | str, words: tuple[str, ...]) -> None:
    assert check_knob(flag, value, NOW) is None
    assert arguments(table()[flag], value) == words


@given(value=st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=30)))
def test_a_value_is_either_refused_or_rendered_as_plain_words(value: bool | int | float | str) -> None:
    for knob in table().values():
        problem = check_knob(knob.flag, value, NOW)
        if problem is None:
            words = arguments(knob, value)
            assert len(words) in (0, 1, 2)
            assert all(word and "\n" not in word and "\0" not in word for word in words)
            if words and knob.type == "int" and words[1] not in knob.words:
                assert re.fullmatch(r"-?\d+", words[1])


def test_a_knob_is_found_by_flag_alias_and_env_key() -> None:
    for key in ("host-pool-mib", "host_pool_mib", "--host-pool-mib", "HOST_POOL_MIB"):
        knob = find(key)
        assert knob is not None
        assert knob.flag == "host-pool-mib"
    alias = find("gpu-headroom")
    assert alias is not None
    assert alias.flag == "gpu-headroom-mib"


@pytest.mark.parametrize(
    "key",
    [
        "MODEL_FILE",
        "HOST_POOL_MIB",
        "PREFIX_CACHE_MIB",
        "BUSY_PREFILL_CHUNK",
        "PREFILL_INTERLEAVE",
        "MAX_SEQS",
        "MAX_MODEL_LEN",
        "KV_DTYPE",
    ],
)
def test_the_env_keys_of_the_endpoint_are_in_the_table(key: str) -> None:
    assert any(knob.env_key == key for knob in table().values())


@pytest.mark.parametrize(
    ("knobs", "code"),
    [
        ({"gpu-headroom": 96}, "knob-twice"),
        ({"host_pool_mib": 1}, "knob-twice"),
        ({"port": 9000}, "knob-reserved"),
        ({"model": "/models/other.rad"}, "knob-reserved"),
        ({"kv-cache-dtype": "bf16"}, "kv-dtype-conflict"),
        ({"tp": "two"}, "knob-bad-value"),
    ],
)
def test_knobs_that_contradict_the_declaration_are_refused_at_their_key(knobs: dict[str, object], code: str) -> None:
    with pytest.raises(DeclarationError) as err:
        forecast(declared(knobs=knobs))
    assert err.value.code == code
    assert err.value.where == f"engine.knobs.{next(iter(knobs))}"


def test_a_knob_that_repeats_the_contract_is_fine() -> None:
    endpoint = declared(knobs={"kv-cache-dtype": "fp8", "max-num-seqs": 3, "max-model-len": 200_000})
    assert verdict(endpoint, forecast(endpoint)) == "holds"


def test_an_api_key_on_the_command_line_is_refused() -> None:
    assert "knob-secret" in {p.code for p in forecast(declared(knobs={"api-key": "s3cret"})).problems}
    assert "s3cret" not in shown(forecast(declared(knobs={"api-key": "s3cret"})))


def test_window_0_means_the_trained_context() -> None:
    settings, _ = read_settings(declared(knobs={"max-model-len": 0}))
    assert settings.window is None
    assert forecast(declared(knobs={"max-model-len": 0})).seq_len_limit is None


@pytest.mark.parametrize("name", ["archon", "archon-pair"])
def test_the_shipped_declarations_hold_no_knob_that_their_version_refuses(name: str) -> None:
    _, problems = read_settings(declared(name))
    assert problems == ()


def test_the_shipped_declarations_are_what_the_cutover_left() -> None:
    now, before = declared(), declared("archon-pair")
    assert (now.engine.version, before.engine.version) == ("1.8.1", "1.2.0")
    assert now.engine.knobs["host-pool-mib"] == 45_568
    assert now.engine.knobs["prefix-cache-mib"] == 8_192
    assert (before.engine.knobs["vram-weights-mib"], before.engine.knobs["vram-kv-mib"]) == (25_600, 5_120)
    for endpoint in (now, before):
        assert endpoint.model.bytes == 121_969_901_568
        assert endpoint.model.sha256 == "0af5e96244e80c21ac8edca1719dae49b8a201b94a2f3994c3e24026ceaa4d20"
        assert (endpoint.contract.tokens, endpoint.contract.kv_dtype, endpoint.contract.margin) == (
            600_000,
            "fp8",
            0.01,
        )
        assert set(endpoint.engine.image.rpartition(":")[2]) <= {"0", "1"}, "the placeholder must look like one"
    assert "REPLACE THIS DIGEST" in (ENV / "archon.toml").read_text(encoding="utf-8")
