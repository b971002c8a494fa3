"""Which quant is taken, what a refusal says, and which of several refusals stands for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from archonctl.catalogue import Catalogue
from archonctl.errors import UsageError
from archonctl.fit.cards import card_host, where
from archonctl.fit.values import FitResult
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import GIB

Question = Callable[..., FitResult]


def card(index: int = 0, mib: int = 24_000, free: int | None = None, name: str = "X", target: str = "8.9") -> Card:
    return Card(index=index, name=name, total_mib=mib, free_mib=free, maker="nvidia", target=target)


@pytest.mark.parametrize(("name", "quant", "engine"), [("L4", "FP8", "vllm"), ("T4", "Q4_K_M", "llamacpp")])
def test_qwen3_14b_takes_the_first_quant_that_runs_and_fits(ask: Question, name: str, quant: str, engine: str) -> None:
    found = ask("qwen3-14b", card_host(name), quants=("FP8", "Q4_K_M"))
    assert found.verdict == "fits"
    assert found.chosen
    assert (found.chosen.quant, found.chosen.engine, found.chosen.tp) == (quant, engine, 1)
    assert ask("qwen3-14b", card_host(name)).chosen.quant == quant  # type: ignore[union-attr]


def test_on_a_t4_the_missing_kernel_is_named_and_weights_are_about_those_that_people_know(ask: Question) -> None:
    found = ask("qwen3-14b", card_host("T4"), quants=("FP8", "Q4_K_M"))
    shut = next(each for each in found.refusals if each.quant == "FP8")
    assert shut.code == "fit-capability"
    assert shut.kernel == "FP8 W8A8"
    assert "gfx" not in shut.message, "what other makers' cards need is of no use here"
    assert all(word in shut.message for word in ("Tesla T4", "7.5", "8.9", "Q4_K_M (llamacpp)", "--weight-only"))
    assert found.chosen
    assert 7.3 * GIB < found.chosen.weights_bytes < 8.4 * GIB


def test_at_its_full_context_the_t4_is_refused_by_size_and_the_two_estimates_differ(ask: Question) -> None:
    host = card_host("T4")
    full = ask("qwen3-14b", host, len=40_960)
    assert (full.verdict, full.code, full.chosen) == ("refused", "fit-size", None)
    least = min((each for each in full.refusals if each.wanted_bytes), key=lambda each: each.wanted_bytes)
    assert least.quant == "Q4_K_M"
    assert least.wanted_bytes > least.free_bytes == 14_909 << 20
    assert least.plain_bytes > least.wanted_bytes, "windows and driver aside, 1.15 takes more than there is"
    assert f"{least.wanted_bytes / GIB:.2f} GiB" in full.message
    assert f"{least.plain_bytes / GIB:.2f} GiB" in full.message
    # Between these two contexts the plain estimate refuses what the law, and so a plan, lets pass.
    between = next(way for way in full.ways_out if way.options[:1] == ("--len",))
    shorter = ask("qwen3-14b", host, len=int(between.options[1]))
    assert shorter.verdict == "fits"
    assert shorter.chosen
    assert shorter.chosen.plain_bytes > shorter.chosen.free_bytes > shorter.chosen.est.best
    assert ask("qwen3-14b", host, len=int(between.options[1]) + 256).verdict == "refused"


def test_every_way_out_was_tried_and_fits(ask: Question) -> None:
    full = ask("qwen3-14b", card_host("T4"), len=40_960, seqs=2)
    ways = {way.options[0]: way.options[1] for way in full.ways_out if way.options}
    assert {"--kv-quant", "--len", "--seqs", "--card"} & ways.keys()
    for option, value in ways.items():
        what: dict[str, object] = {"len": 40_960, "seqs": 2}
        host = card_host(value) if option == "--card" else card_host("T4")
        if option != "--card":
            what[option[2:].replace("-", "_")] = int(value) if value.isdigit() else value
        assert ask("qwen3-14b", host, **what).verdict == "fits", (option, value)


def test_all_without_a_kernel_is_a_capability_refusal_that_says_what_would_do(ask: Question) -> None:
    found = ask("qwen3-14b", card_host("A100 80GB"), quants=("FP8",))
    assert found.code == "fit-capability"
    assert "8.0" in found.message
    assert ("--weight-only",) in [way.options for way in found.ways_out]
    assert ask("qwen3-14b", card_host("A100 80GB"), quants=("FP8",), weight_only=True).verdict == "fits"


def test_some_that_reached_sizing_make_it_a_size_refusal(ask: Question) -> None:
    found = ask("qwen3-14b", card_host("T4"), quants=("FP8", "Q8_0"))
    assert {each.code for each in found.refusals} == {"fit-capability", "fit-size"}
    assert found.code == "fit-size"
    assert found.refusals[0].code == "fit-capability"


def test_no_device_is_its_own_refusal_and_llamacpp_may_still_use_ram(ask: Question) -> None:
    bare = Host(name="none")
    assert ask("qwen3-14b", bare).code == "fit-no-device"
    small = Host(ram_mib=4096, available_mib=3000)
    found = ask("qwen3-14b", small)
    assert found.code == "fit-no-device"
    assert "RAM" in found.message
    roomy = ask("qwen3-14b", Host(ram_mib=65_536, available_mib=60_000))
    assert roomy.chosen
    assert (roomy.chosen.engine, roomy.chosen.split, roomy.chosen.tp) == ("llamacpp", "ram", 0)
    assert [each.code for each in roomy.warnings] == ["fit-crawls"]


def test_the_tightest_free_card_decides_and_only_cards_of_one_kind_share(ask: Question) -> None:
    alike = tuple(card(i) for i in range(2))
    pair = ask("qwen3-14b", Host(cards=alike), quants=("BF16",))
    assert pair.chosen
    assert (pair.chosen.tp, pair.chosen.split) == (2, "tensor")
    tight = ask("qwen3-14b", Host(cards=(card(0, free=24_000), card(1, free=9_000))), quants=("BF16",))
    assert tight.code == "fit-size"
    assert tight.refusals[0].free_bytes in (24_000 << 20, 9_000 << 20)
    other = ask("qwen3-14b", Host(cards=(card(0), card(1, name="Y"))), quants=("BF16",))
    assert other.code == "fit-size"


def test_the_freer_card_is_taken_and_named_and_vllm_asks_for_no_more_than_is_free(ask: Question) -> None:
    host = Host(cards=(card(0, free=2_000), card(1, free=20_000)))
    found = ask("qwen3-14b", host, quants=("FP8",))
    assert found.chosen
    assert found.chosen.endpoint.engine.env == {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert found.chosen.endpoint.engine.knobs["gpu-memory-utilization"] == 0.83


def test_the_share_of_vllm_is_written_where_less_is_free_than_any_version_takes_by_itself(ask: Question) -> None:
    host = Host(cards=(card(0, mib=94_330, free=85_852),))
    found = ask("gemma-4-31b", host, quants=("BF16",), engine="vllm")
    assert found.chosen
    assert found.chosen.endpoint.engine.knobs["gpu-memory-utilization"] == 0.91


def test_one_card_of_several_is_named_so_that_no_engine_spreads_over_the_others(ask: Question) -> None:
    found = ask("qwen3-14b", card_host("T4x2"), tp=1)
    assert found.chosen
    assert (found.chosen.engine, found.chosen.tp) == ("llamacpp", 1)
    assert found.chosen.endpoint.engine.env["CUDA_VISIBLE_DEVICES"] == "0"
    assert ask("qwen3-14b", card_host("T4x2"), tp=2).chosen.endpoint.engine.env == {}  # type: ignore[union-attr]


def test_layers_that_the_tightest_card_need_not_hold_are_left_to_the_plan(ask: Question) -> None:
    cards = tuple(card(i, 32_112, free) for i, free in enumerate((None, 15_500, None)))
    found = ask("qwen2.5-72b", Host(cards=cards), seqs=8, len=16, tp=3, engine="llamacpp", kv_quant="q5_1")
    assert found.chosen
    assert found.chosen.est.best <= found.chosen.free_bytes == 15_500 << 20


def test_what_is_short_by_less_than_a_rounding_is_left_to_the_plan(ask: Question) -> None:
    found = ask("qwen3-next-80b-a3b", card_host("B200"), seqs=2, engine="sglang", kv_quant="fp8", quants=("BF16",))
    assert found.chosen
    assert found.chosen.est.best <= found.chosen.free_bytes


def test_more_cards_than_there_are_or_heads_that_do_not_divide_cannot_be_had(
    ask: Question, catalogue: Catalogue
) -> None:
    for tp in (0, 3):
        found = ask("qwen3-14b", card_host("L4x2"), tp=tp)
        assert found.code == "fit-unsatisfiable"
        assert str(tp) in found.message
    odd = ask("qwen3-14b", card_host("L4x3"), tp=3, engine="vllm")
    assert odd.code == "fit-unsatisfiable"
    assert "40 attention heads do not divide over 3" in odd.message
    model = catalogue.find("qwen3-14b")
    thin = replace(model, geometry=replace(model.geometry, heads=37), name="thin")
    assert (chosen := ask(thin, card_host("A100 80GBx2"), quants=("BF16",)).chosen)
    assert chosen.tp == 1


def test_longer_than_the_models_context_cannot_be_had(ask: Question) -> None:
    found = ask("qwen3-14b", card_host("H200"), len=10_000_000)
    assert found.code == "fit-unsatisfiable"
    assert "10,000,000" in found.message


def test_a_quant_that_the_model_does_not_have_is_said_with_those_that_it_has(ask: Question) -> None:
    found = ask("qwen3-14b", card_host("H200"), quants=("Q9",))
    assert found.code == "fit-unsatisfiable"
    assert "Q9" in found.message
    assert "FP8" in found.message


def test_experts_go_to_ram_only_as_a_last_resort_and_ram_is_checked(ask: Question) -> None:
    host = card_host("RTX 4090", 128)
    found = ask("gpt-oss-120b", host)
    assert found.chosen
    assert found.chosen.split == "experts-in-ram"
    assert found.chosen.engine == "llamacpp"
    count = found.chosen.expert_layers
    assert 0 < count < 36
    assert found.chosen.endpoint.engine.knobs["n-cpu-moe"] == count
    assert found.chosen.est.best <= found.chosen.free_bytes
    assert found.chosen.host_bytes > 20 * GIB
    assert ask("gpt-oss-120b", card_host("RTX 4090", 16)).verdict == "refused"
    unknown = ask("gpt-oss-120b", card_host("RTX 4090"))
    ram = next(way.options[1] for way in unknown.ways_out if way.options[:1] == ("--ram",))
    assert ask("gpt-oss-120b", card_host("RTX 4090", int(ram))).verdict == "fits"
    assert (alone := ask("gpt-oss-120b", card_host("H100 80GB HBM3")).chosen)
    assert alone.expert_layers == 0


def test_a_substituted_cache_is_one_warning(ask: Question) -> None:
    found = ask("qwen3-14b", card_host("T4"), kv_quant="int8")
    told = [each for each in found.warnings if each.code == "fit-kv-substituted"]
    assert len(told) == 1
    assert all(word in told[0].message for word in ("int8", "q8_0", "llamacpp"))
    with pytest.raises(UsageError, match="q3_0"):
        ask("qwen3-14b", card_host("T4"), kv_quant="q3_0")


def test_speed_ranks_the_quants_that_fit(ask: Question) -> None:
    good, fast = (ask("qwen3-14b", card_host("L4"), prefer=how).chosen for how in ("quality", "speed"))
    assert good
    assert fast
    assert good.quant == "FP8"
    assert good.throughput
    assert fast.throughput
    assert good.throughput.decode
    assert fast.throughput.decode
    assert fast.throughput.decode.best > good.throughput.decode.best


def test_what_fits_and_crawls_says_so_with_a_number(ask: Question) -> None:
    slow = card_host("L4").cards[0].model_copy(update={"total_mib": 1 << 20})
    found = ask("llama-3.3-70b", Host(cards=(slow,)), quants=("BF16",))
    told = next(each for each in found.warnings if each.code == "fit-crawls")
    assert found.verdict == "fits"
    assert "tokens a second" in told.message


def test_a_mixture_reads_only_the_experts_that_a_token_uses(ask: Question) -> None:
    found = ask("qwen3-30b-a3b", card_host("H200"), quants=("FP8",))
    assert found.chosen
    assert found.chosen.throughput
    assert found.chosen.throughput.read_bytes < found.chosen.weights_bytes / 4


def test_a_card_of_unknown_target_is_sized_and_the_gap_is_said(ask: Question) -> None:
    found = ask("qwen3-14b", Host(cards=(card(target=""),)), quants=("FP8",))
    assert found.verdict == "fits"
    assert "fit-target-unknown" in [each.code for each in found.warnings]


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("T4", "Tesla T4", 1),
        ("T4x2", "Tesla T4", 2),
        ("L4 x 4", "NVIDIA L4", 4),
        ("RTX3090x2", "NVIDIA GeForce RTX 3090", 2),
        ("A100-80GBx8", "NVIDIA A100-SXM4-80GB", 8),
        ("rtx 7900 xtx", "AMD Radeon RX 7900 XTX", 1),
    ],
)
def test_cards_are_named_as_people_name_them(text: str, name: str, count: int) -> None:
    host = card_host(text)
    assert [each.name for each in host.cards] == [name] * count
    assert name in where(host)


@pytest.mark.parametrize("text", ["", "T400", "A100", "T4x0", "T4x-1", "T4x9999999999", "x", "😀", "L4x2x2", "8060S"])
def test_no_card_or_several_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"card-(unknown|ambiguous)|catalogue|may be|published"):
        card_host(text)
