"""``tiers plan``: what engines' own tiers hold and what losing one costs, and the answers with and without figures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.engines import adapter
from archonctl.engines.host_cache import cache_rows, host_caches
from archonctl.engines.knobs import edition, load_table
from archonctl.host.load import load_host
from archonctl.memory.interval import MIB, Interval
from archonctl.plan.build import plan_endpoint
from archonctl.plan.parked import expected_hits
from archonctl.plan.price import kv_price
from archonctl.tiers.explain import Evidence, TiersPlan, explain
from archonctl.tiers.live import Live, items
from archonctl.tiers.machine import file_system, room_of
from archonctl.tiers.measured import FILE, Measured, Speed, read_measured
from archonctl.tiers.prefill import Prefill, prefill_of, seen_speed
from archonctl.tiers.slots import Slot
from archonctl.tiers.table import ENGINE, Seen, defaults, ladder
from archonctl.tiers.values import Action, Reason

Plan = Callable[..., TiersPlan]


@pytest.fixture
def tiny_model(tiny_gguf: Callable[..., Path]) -> Path:
    """As ``scripts/quickstart`` makes it for env/tiny.toml: 12 KiB of KV cache a token."""
    return tiny_gguf("qwen2", layers=24, heads=2, kv_heads=2, head_dim=64, hidden=128, ff=16)


@pytest.fixture
def planned(repository: Path, tiny_model: Path) -> Plan:
    """``planned(name, evidence, to="", **keys)``: the answer for a declaration of ``env/`` with keys changed."""

    def make(name: str, evidence: Evidence = Evidence(), to: str = "", **keys: object) -> TiersPlan:  # noqa: B008
        given = {k.replace("__", "."): v for k, v in keys.items()}
        given |= {"model.path": str(tiny_model)} if name == "tiny" else {}
        loaded = load_endpoint(repository / "env" / f"{name}.toml", given, {})
        with loaded.placing():
            plan, host = plan_endpoint(loaded), load_host(loaded)
            return explain(name, loaded.endpoint, plan, host, evidence, to_version=to)

    return make


def test_the_disk_tier_that_a_version_drops_is_so_many_tokens_and_so_many_seconds_of_prefill(planned: Plan) -> None:
    """64 GiB at 2 x 7.3125 KiB a token, at the 3,290 tokens/s (+- 3 %) that were foretold for the pair."""
    found = planned("archon-pair", to="1.8.1")
    (loss,) = found.losses
    assert (loss.flag, loss.tier, loss.bytes) == ("prefix-cache-disk-mib", "disk", 65_536 * MIB)
    assert loss.tokens is not None
    assert loss.refill_s is not None
    per_token = 2 * 29.25 / 4 * 1024
    assert loss.tokens.high == pytest.approx(65_536 * MIB / per_token)
    whole = 200_000 * per_token + 2 * 110 * MIB  # a conversation that parks its recurrent state as well
    assert loss.tokens.low == pytest.approx(65_536 * MIB / whole * 200_000)
    assert loss.refill_s.low == pytest.approx(loss.tokens.low / (3_290 * 1.03))
    assert loss.refill_s.best == pytest.approx(loss.tokens.best / 3_290)
    assert loss.refill_s.high == pytest.approx(loss.tokens.high / (3_290 * 0.97))
    assert 20 * 60 < loss.refill_s.low < loss.refill_s.high < 25 * 60
    assert planned("archon-pair", to="1.2.0").losses == (), "and a flag that only has a new name is no loss"


def test_memory_is_given_for_what_comes_back_as_far_as_host_and_pinned_limit_go(planned: Plan) -> None:
    gift = planned("archon").gift
    assert gift is not None
    assert gift.room_bytes is not None
    assert gift.give_bytes == gift.wanted_bytes >= 3 * 200_000 * 2 * 29.25 / 4 * 1024
    assert gift.knobs == (("prefix-cache-mib", str(gift.give_bytes // MIB)),)
    many = planned("archon", tiers__conversations=1000).gift
    assert many is not None
    assert many.give_bytes is not None
    # the least of what RAM leaves and of what the pinned limit leaves (204,800 - 150,200 MiB), and 8,192 given today
    assert many.give_bytes == many.room_bytes == (204_800 - 150_200 + 8_192) * MIB
    assert planned("archon", host__profile="").gift is not None


@pytest.mark.parametrize(
    ("kind", "version", "knobs", "found"),
    [
        ("vllm", "0.32.0", {"kv-offloading-size": 16}, ("dram", 16 << 30)),
        ("vllm", "0.32.0", {"kv-offloading-size": 16, "kv-offloading-backend": "lmcache"}, ("dram", None)),
        (
            "vllm",
            "0.32.0",
            {"kv-transfer-config": '{"kv_connector_extra_config": {"cpu_bytes_to_use": 1000}}'},
            ("dram", 1000),
        ),
        ("vllm", "0.32.0", {"kv-transfer-config": "{"}, None),
        ("sglang", "0.5.10", {"hicache-size": 100}, None),
        ("sglang", "0.5.10", {"hicache-size": 100, "enable-hierarchical-cache": True}, ("dram", 200_000_000_000)),
        ("sglang", "0.5.10", {"enable-hierarchical-cache": True}, ("dram", 14_000)),
        ("sglang", "0.5.10", {"enable-hierarchical-cache": True, "hicache_ratio": 3}, ("dram", 21_000)),
        ("radiance", "1.8.1", {"prefix-cache-mib": 8192}, ("dram", 8192 << 20)),
        ("radiance", "1.8.1", {"prefix-cache-mib": 0}, None),
        ("llamacpp", "b11434", {}, ("dram", 8192 << 20)),
        ("llamacpp", "b11434", {"cache-ram": -1}, ("dram", None)),
        ("llamacpp", "b11434", {"cache_ram": 0}, None),
    ],
)
def test_an_engines_own_cache_is_read_as_the_engine_reads_it(
    repository: Path, kind: str, version: str, knobs: dict[str, Any], found: tuple[str, int | None] | None
) -> None:
    endpoint = load_endpoint(repository / "env" / "tiny.toml", {}, {}).endpoint
    engine = endpoint.engine.model_copy(update={"kind": kind, "version": version, "knobs": knobs})
    caches = host_caches(endpoint.model_copy(update={"engine": engine}), ranks=2, pool_bytes=7_000)
    assert [(each.row.tier, each.bytes) for each in caches] == ([found] if found else [])
    takes = edition(load_table(kind), version)
    assert all(takes.find(row.flag) for row in cache_rows(kind) if row.flag in knobs)


def test_the_rows_name_flags_that_some_version_has_and_where_they_come_from() -> None:
    for kind in ("radiance", "vllm", "sglang", "llamacpp"):
        flags = {knob.flag for knob in load_table(kind).knobs}
        for row in cache_rows(kind):
            assert {row.flag, row.switch or row.flag} <= flags
            assert row.source
            assert adapter(kind).kind == row.engine
    assert list(defaults()) == ["engine", "dram", "numa_far", "cxl", "disk", "remote"]
    assert all(row.source.startswith("https://") for row in defaults().values())


def test_hits_are_expected_only_of_declared_reuse_and_in_proportion_to_what_is_held(planned: Plan) -> None:
    assert planned("archon").expected_hit_ratio is None
    pair = {"tiers__reuse": 0.9, "tiers__conversations": 30}
    before, after = planned("archon-pair", **pair), planned("archon", **pair)
    assert before.expected_hit_ratio == pytest.approx(
        0.9 * min(1, (608_028 + 532_563 + 4_260_501) / 6_000_000), rel=1e-3
    )
    assert after.expected_hit_ratio is not None
    assert before.expected_hit_ratio is not None
    assert after.expected_hit_ratio < before.expected_hit_ratio / 3


def test_what_runs_is_weighed_slot_by_slot_and_says_what_a_newcomer_displaces(planned: Plan) -> None:
    slots = (
        Slot(0, 2048, busy=False, task=7, tokens=1500),
        Slot(1, 2048, busy=True, task=9, tokens=None),
        Slot(2, 2048, busy=False, task=3, tokens=2000),
    )
    live = Live("http://x", slots, 900.0, 0.25)
    found = planned("tiny", Evidence(live), host__detect=False, tiers__dram={"path": "/nowhere", "capacity_mib": 512})
    assert found.now is not None
    assert {each.action for each in found.now.decisions} == {Action.KEEP}
    assert found.arrival is not None
    first = found.arrival.decisions[0]
    assert (first.item.id, first.action, first.reason) == ("slot 2", Action.DEMOTE, Reason.RETAIN_CHEAPER)
    assert first.recompute_s == pytest.approx(2000 / 900)
    assert first.item.bytes == 2000 * 12_288
    assert found.arrival.of("slot 1").reason is Reason.IN_USE


def test_without_a_prefill_figure_everything_is_kept_and_that_is_said(planned: Plan) -> None:
    found = planned("tiny", host__detect=False, tiers__dram={"capacity_mib": 512})
    assert found.prefill is None
    assert found.now is None
    assert found.arrival is not None
    assert {each.reason for each in found.arrival.decisions} == {Reason.UNKNOWN_RECOMPUTE}
    assert any("prefills" in each for each in found.unknown)


def test_a_smaller_form_that_an_engine_keeps_is_taken_where_nothing_else_fits(planned: Plan) -> None:
    small = {"engine__knobs__prefix-cache-mib": 2048, "tiers__compressed_share": 0.3}
    (first, *_) = planned("archon", **small).arrival.moves  # type: ignore[union-attr]
    assert (first.action, first.reason) == (Action.COMPRESS_DEMOTE, Reason.ONLY_COMPRESSED_FITS)
    assert (first.to_tier, first.bytes_after) == ("dram", int((first.item.bytes or 0) * 0.3))
    found = planned("tiny", tiers__compressed_share=0.3)  # llama-server has none, and that is said
    assert {item.compressed_bytes for item in found.board.items} == {None}
    assert any("compressed_share" in each for each in found.unknown)


def test_what_was_measured_wins_over_what_is_declared_and_that_over_the_defaults(
    repository: Path, tmp_path: Path
) -> None:
    endpoint = load_endpoint(
        repository / "env" / "archon-pair.toml",
        {"tiers.prefill_tokens_per_s": 1000.0, "tiers.dram": {"bandwidth_mib_s": 100.0}},
        {},
    ).endpoint
    measured = Measured({"dram": Speed(5e9, 0.01)}, 2000.0)
    (tmp_path / FILE).write_text(json.dumps(measured.as_json()))
    assert read_measured([tmp_path]) == measured
    verdict = {"probe": {"facts": {"prefill_tokens_per_s": 1500.0}}}
    speeds = [
        prefill_of(endpoint, measured, 1800.0, verdict),
        prefill_of(endpoint, Measured(), 1800.0, verdict),
        prefill_of(endpoint, Measured(), None, verdict),
        prefill_of(endpoint, Measured(), None, None),
    ]
    assert [each and each.tokens_per_s.best for each in speeds] == [2000, 1800, 1500, 1000]
    by_name = {tier.name: tier for tier in ladder(endpoint.tiers, {"dram": Seen(bandwidth_bytes_per_s=5e9)})}
    assert by_name["dram"].bandwidth_bytes_per_s == 5e9
    assert {tier.name: tier for tier in ladder(endpoint.tiers, {})}["dram"].bandwidth_bytes_per_s == 100 * MIB
    assert by_name[ENGINE].bandwidth_bytes_per_s == defaults()[ENGINE].bandwidth_bytes_per_s


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": "x"}', '{"schema": "archonctl.tiers-measured/1"}', "\xff" * 9]
)
def test_a_damaged_record_counts_as_not_measured(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text, encoding="latin-1")
    assert read_measured([tmp_path]) == Measured()


def test_speed_follows_from_counters_that_are_all_there() -> None:
    said = "llamacpp:prompt_tokens_total 300\nllamacpp:prompt_seconds_total 0.5\n"
    assert seen_speed("llamacpp", said) == 600
    assert seen_speed("llamacpp", "llamacpp:prompt_tokens_total 300\n") is None
    assert seen_speed("llamacpp", said.replace("0.5", "0")) is None
    vllm = 'vllm:prompt_tokens_total{engine="0"} 1000\nvllm:request_prefill_time_seconds_sum{engine="0"} 2\n'
    assert seen_speed("vllm", vllm) is None, "without the cached ones nobody knows how many were computed"
    assert seen_speed("vllm", vllm + 'vllm:prompt_tokens_cached_total{engine="0"} 600\n') == 200
    assert seen_speed("radiance", said) is None
    text = files("archonctl.tiers").joinpath("prefill.toml").read_text(encoding="utf-8")
    assert all(row["source"] for row in tomllib.loads(text)["speed"])


def test_prefill_takes_from_the_fewest_tokens_at_the_fastest_to_the_most_at_the_slowest() -> None:
    took = Prefill(Interval(90, 100, 110), "x").seconds(Interval(900, 1000, 1100))
    assert (took.low, took.best, took.high) == (900 / 110, 10, 1100 / 90)


def test_slots_that_nobody_used_hold_nothing_and_the_latest_request_counts_most() -> None:
    slots = (
        Slot(0, 10, busy=False),
        Slot(1, 10, busy=False, task=1, tokens=0),
        Slot(2, 10, busy=False, task=5, tokens=9),
    )
    held = Live("x", slots, None, None).conversations
    assert held is not None
    assert [each.id for each in held] == [2]
    order = items((slots[2], Slot(3, 10, busy=False, task=8, tokens=4)), None)
    assert [(each.id, each.expected_uses, each.bytes) for each in order] == [("slot 3", 1, None), ("slot 2", 0.5, None)]


def test_the_file_system_of_a_folder_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    mounts = (
        "22 1 0:1 / / rw - ext4 /dev/sda rw\n"
        "23 22 0:2 / /dev/shm rw - tmpfs tmpfs rw\n"
        "24 22 0:3 / /with\\040space rw - xfs /dev/b rw\nbroken\n"
    )
    assert file_system(Path("/dev/shm/a"), mounts) == "tmpfs"
    assert file_system(Path("/with space/a"), mounts) == "xfs"
    assert file_system(Path("/dev/shmoo"), mounts) == "ext4"
    assert file_system(Path("/a"), "") is None
    room = room_of(tmp_path / "not" / "there")
    assert room is not None
    assert room.free_bytes > 0


def test_a_token_weighs_what_the_plans_law_says(repository: Path, tiny_model: Path) -> None:
    for name, each, state in (("archon", 14_976.0, 220 * MIB), ("tiny", 12_288.0, 0)):
        given = {"model.path": str(tiny_model)} if name == "tiny" else {}
        loaded = load_endpoint(repository / "env" / f"{name}.toml", given, {})
        with loaded.placing():
            price = kv_price(plan_endpoint(loaded))
        assert price is not None
        assert (price.bytes_per_token, price.bytes_per_conversation) == (each, state)
    assert expected_hits(loaded.endpoint, 1000, 0) is None
