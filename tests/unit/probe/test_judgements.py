"""The pure judgements: ledger, report, verdict, budgets, prompts, addresses, keys, costs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.deployment.schema import Contract
from archonctl.errors import DeclarationError
from archonctl.ledger.values import BootLedger, Reading, Remark
from archonctl.memory.interval import Interval
from archonctl.probe.address import base_url, model_names, read_key
from archonctl.probe.budget import Deadlines, answer_tokens, estimate, is_generous
from archonctl.probe.calibration import calibration_tokens
from archonctl.probe.faults import Fault
from archonctl.probe.ledger_leg import ledger_leg
from archonctl.probe.limits import Limits
from archonctl.probe.pace import Pace
from archonctl.probe.prompts import TOLERANCE, WORDS, PromptSource
from archonctl.probe.report import EngineReport, judge_report
from archonctl.probe.values import Leg, LegStatus
from archonctl.probe.verdict import judge, verdict_json
from support.probing import boot_ledger, endpoint

CONTRACT = Contract(seqs=3, len=200_000, margin=0.01)


def rounded(low: float, best: float, high: float) -> BootLedger:
    reading = Reading(Interval(low, best, high, "log"), 1, "about")
    return BootLedger("llamacpp", figures={"kv_tokens": reading}, lines_read=3)


def without(ledger: BootLedger, *names: str) -> BootLedger:
    figures = {name: reading for name, reading in ledger.figures.items() if name not in names}
    return replace(ledger, figures=figures, missing=names)


LEDGERS: dict[str, tuple[BootLedger | None, LegStatus, str]] = {
    "enough": (boot_ledger(606_000, 3, 200_000), "pass", ""),
    "exactly enough": (boot_ledger(600_000, 3, 200_000), "pass", ""),
    "one token short": (boot_ledger(599_999, 3, 200_000), "fail", "kv-tokens-short"),
    "a window short": (boot_ledger(700_000, 3, 199_999), "fail", "window-short"),
    "a slot short": (boot_ledger(700_000, 2, 200_000), "fail", "slots-short"),
    "none": (None, "no evidence", "ledger-missing"),
    "no KV line": (without(boot_ledger(1, 3, 200_000), "kv_tokens"), "no evidence", "ledger-missing"),
    "no KV line and too few slots": (without(boot_ledger(1, 2, 200_000), "kv_tokens"), "fail", "slots-short"),
    "no slot line": (without(boot_ledger(700_000, 3, 200_000), "n_slots"), "no evidence", "ledger-missing"),
    "rounded above": (rounded(600_000, 600_500, 601_000), "pass", ""),
    "rounded across": (rounded(599_000, 600_500, 601_000), "no evidence", "ledger-rounded"),
    "rounded below": (rounded(598_000, 598_500, 599_000), "fail", "kv-tokens-short"),
    "of another engine": (replace(boot_ledger(700_000, 3, 200_000), engine="vllm"), "no evidence", "ledger-foreign"),
    "with a refusal": (
        replace(boot_ledger(700_000, 3, 200_000), remarks=(Remark("x", "refusal", "no", 9),)),
        "no evidence",
        "ledger-refusal",
    ),
    "with a warning": (
        replace(boot_ledger(700_000, 3, 200_000), remarks=(Remark("x", "warning", "hm", 9),)),
        "pass",
        "",
    ),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_a_boot_log_is_judged(name: str) -> None:
    ledger, status, code = LEDGERS[name]
    leg = ledger_leg(ledger, CONTRACT, "llamacpp")
    assert (leg.status, leg.code) == (status, code), leg.message


def test_a_failed_ledger_tells_both_numbers_and_the_line() -> None:
    leg = ledger_leg(boot_ledger(556_348, 3, 200_000), CONTRACT, "llamacpp")
    assert "556,348" in leg.message
    assert "600,000" in leg.message
    assert "43,652 short" in leg.message
    assert leg.evidence.startswith("line 7: ")


def test_a_ledger_below_the_margin_passes_and_says_so() -> None:
    assert (
        "less than the declared margin of 6,000"
        in ledger_leg(boot_ledger(601_000, 3, 200_000), CONTRACT, "llamacpp").message
    )


@given(st.floats(0, 1e7), st.floats(0, 1e5), st.floats(0, 1e5))
def test_a_rounded_pool_is_never_judged_beyond_its_rounding(best: float, under: float, over: float) -> None:
    low, high = max(0.0, best - under), best + over
    status = ledger_leg(rounded(low, best, high), CONTRACT, "llamacpp").status
    assert (status == "pass") == (low >= 600_000)
    assert (status == "fail") == (high < 600_000)


REPORTS: dict[str, tuple[EngineReport, LegStatus, str]] = {
    "all": (EngineReport("/x", 200_000, 3, 700_000), "pass", ""),
    "nothing": (EngineReport("/x"), "skip", "report-silent"),
    "window short": (EngineReport("/x", 199_999, 3), "fail", "window-short"),
    "slots short": (EngineReport("/x", 200_000, 2), "fail", "slots-short"),
    "pool short": (EngineReport("/x", kv_tokens=599_999), "fail", "kv-tokens-short"),
    "other window than logged": (EngineReport("/x", 262_144, 3), "no evidence", "report-disagrees"),
    "other slots than logged": (EngineReport("/x", 200_000, 4), "no evidence", "report-disagrees"),
    "other file": (EngineReport("/x", 200_000, 3, model_path="/m/other.gguf"), "fail", "model-file-mismatch"),
    "same file elsewhere": (EngineReport("/x", 200_000, 3, model_path="/mnt/tiny.gguf"), "pass", ""),
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_judged_and_compared_with_the_log(name: str) -> None:
    report, status, code = REPORTS[name]
    leg = judge_report(report, CONTRACT, boot_ledger(700_000, 3, 200_000), "/models/tiny.gguf")
    assert (leg.status, leg.code) == (status, code), leg.message


LEGS = st.lists(
    st.builds(Leg, st.sampled_from("abc"), st.sampled_from(get_args(LegStatus)), st.just("m"), required=st.booleans()),
    max_size=8,
)


@given(LEGS)
def test_a_verdict_follows_from_its_legs(legs: list[Leg]) -> None:
    verdict = judge(legs)
    required = [leg for leg in legs if leg.required]
    if any(leg.status == "fail" for leg in legs):
        assert verdict.word == "broken"
    elif required and all(leg.status == "pass" for leg in required):
        assert verdict.word == "holds"
    else:
        assert verdict.word == "no evidence"
    assert (verdict.reasons == ()) == (verdict.word == "holds")


def test_a_verdict_as_json_has_stable_keys() -> None:
    value = verdict_json(judge([Leg("a", "fail", "1 of 2", code="x", seconds=0.12345)], {"depth": "full"}), "tiny")
    assert json.loads(json.dumps(value)) == value
    assert list(value) == ["schema", "endpoint", "verdict", "legs", "reasons", "facts", "predictions"]
    assert value["schema"] == "archonctl.probe/1"
    assert value["legs"][0]["seconds"] == 0.123


CONTRACTS = st.builds(Contract, seqs=st.integers(1, 300), len=st.integers(16, 1_000_000))
PACES = st.builds(
    Pace,
    tokens=st.integers(1, 16_384),
    prefill_s=st.floats(1e-4, 100),
    step_s=st.floats(0, 1),
    steps_per_token=st.none() | st.floats(0, 1),
    overhead_tokens=st.integers(0, 20),
)


@given(CONTRACTS, PACES, st.sampled_from([1, 2]))
def test_an_answer_budget_leaves_half_for_the_prompt(contract: Contract, pace: Pace, attempt: int) -> None:
    answer = answer_tokens(contract, pace, attempt)
    assert 1 <= answer <= contract.len // 2
    assert answer_tokens(contract, pace, 2) >= answer_tokens(contract, pace, 1)


@given(CONTRACTS, PACES)
def test_deadlines_are_bounded_and_a_hang_is_never_called_early(contract: Contract, pace: Pace) -> None:
    limits = Limits()
    deadlines = Deadlines.derive(contract, pace, 32, limits, None)
    assert limits.floor_s <= deadlines.first_s <= limits.cap_s
    assert deadlines.answer_s <= limits.cap_s
    assert deadlines.needed_s >= limits.hang_s
    asked = Deadlines.derive(contract, pace, 32, limits, 7.0)
    assert (asked.first_s, asked.extends) == (7.0, False)


def test_a_small_budget_does_not_prove_a_lack_of_room() -> None:
    contract = Contract(seqs=3, len=200_000)
    pace = Pace(16_384, 5.0, 0.02, 1 / 2048, 1)
    assert not is_generous(contract, pace, 500, 1)
    assert is_generous(contract, pace, 6_250, 1)


@given(st.integers(16, 10_000_000))
def test_a_calibration_fits_in_half_of_a_sequence(length: int) -> None:
    assert 1 <= calibration_tokens(length) <= length // 2


def test_the_cost_is_told_before() -> None:
    declared = endpoint("127.0.0.1:1", 3, 200_000)
    full = estimate(declared)
    assert full.tokens > 3 * 200_000 + 200_000
    assert full.requests >= 3
    assert estimate(declared, "ledger").tokens < 1000


def sized(source: PromptSource, target: int, count: object, index: int = 0) -> int:
    async def counter(text: str) -> int:
        return int(count(text))  # type: ignore[operator]

    return asyncio.run(source.sized(index, target, counter)).tokens


TOKENIZERS = {
    "bytes": len,
    "words": lambda text: len(text.split()) + 1,
    "pieces": lambda text: sum(1 + len(word) // 4 for word in text.split()) + 2,
    "merging": lambda text: max(1, len(text.split()) * 2 // 3),
    "wide": lambda text: 2 * len(text),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=25, deadline=None)
@given(target=st.integers(40, 30_000), seed=st.integers(0, 2**32))
def test_prompts_reach_their_size_with_any_tokenizer(name: str, target: int, seed: int) -> None:
    got = sized(PromptSource(seed), target, TOKENIZERS[name])
    assert target - TOLERANCE <= got <= target


@pytest.mark.parametrize("count", [lambda _: 5, lambda _: 10**9, lambda text: len(text) % 7 + 1])
def test_counts_that_lead_nowhere_end_soon(count: object) -> None:
    with pytest.raises(Fault) as caught:
        sized(PromptSource(1), 5_000, count)
    assert (caught.value.code, caught.value.status) == ("prompt-not-sizable", "no evidence")


@given(st.integers(0, 2**64), st.integers(2, 300))
def test_no_two_prompts_begin_alike(seed: int, many: int) -> None:
    source = PromptSource(seed)
    assert len(WORDS) == len(set(WORDS)) == 64
    beginnings = {" ".join(source.text(index, 20).split()[:3]) for index in range(many)}
    assert len(beginnings) == many
    assert len({source.text(index, 20).split()[0] for index in range(min(many, 64))}) == min(many, 64)


def test_two_runs_do_not_send_the_same_prompts() -> None:
    assert PromptSource().text(0, 50) != PromptSource().text(0, 50)


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("[::]:8000", "http://[::1]:8000"),
        ("[fe80::1]:80", "http://[fe80::1]:80"),
        ("localhost:8080", "http://localhost:8080"),
    ],
)
def test_what_is_listened_on_becomes_what_is_asked(listen: str, url: str) -> None:
    assert base_url(listen) == url


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.0.0.1:65536", ":8000", "127.0.0.1"])
def test_a_port_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        base_url(listen)
    assert caught.value.code == "listen-invalid"


@pytest.mark.parametrize("content", [b"", b" \n", b"two keys", b"a\nb", b"\xff\xfe", b"x" * 5000])
def test_a_key_file_that_holds_no_key_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(DeclarationError) as caught:
        read_key(str(path))
    assert caught.value.code == "api-key-file-invalid"
    assert "keys" not in str(caught.value).replace(str(path), "")


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="No such file"):
        read_key(str(tmp_path / "none"))
    assert read_key("") == ""


def test_a_model_may_be_served_under_its_file_name() -> None:
    declared = endpoint("127.0.0.1:1", 1, 16, served_name="")
    assert model_names(declared, True) == ("/models/tiny.gguf", "tiny.gguf", "tiny")
    assert model_names(declared, False) == ()
