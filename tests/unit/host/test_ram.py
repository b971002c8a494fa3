"""What of RAM may be used: huge pages, control groups with their use, and locked memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.host.capacity import card_capacity, host_capacity, outside_demands
from archonctl.host.detect import detect_host
from archonctl.host.profile import Card, Host, Settle
from archonctl.memory.demand import Capacity
from archonctl.memory.interval import MIB

MEMINFO = "MemTotal: 67108864 kB\nMemAvailable: 33554432 kB\n"


def detect(root: Path, files: dict[str, str]) -> Host:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return detect_host(root, page_bytes=4096)


def group(**files: str) -> dict[str, str]:
    base = "sys/fs/cgroup/a"
    return {"proc/self/cgroup": "0::/a\n"} | {
        f"{base}/{name.replace('_', '.', 1)}": text for name, text in files.items()
    }


def test_a_group_has_left_its_limit_less_its_use_and_the_cache_that_it_can_drop(tmp_path: Path) -> None:
    host = detect(
        tmp_path,
        group(
            memory_max=str(8192 * MIB),
            memory_current=str(6000 * MIB),
            memory_stat=f"anon 1\ninactive_file {1000 * MIB}\n",
        ),
    )
    assert (host.cgroup_limit_mib, host.cgroup_free_mib) == (8192, 3192)


def test_a_group_that_throttles_is_limited_by_that(tmp_path: Path) -> None:
    host = detect(tmp_path, group(memory_max="max", memory_high=str(4096 * MIB), memory_current="0"))
    assert (host.cgroup_limit_mib, host.cgroup_free_mib) == (4096, 4096)


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    host = detect(tmp_path, group(memory_max=str(100 * MIB), memory_current=str(200 * MIB), memory_stat="garbage"))
    assert (host.cgroup_limit_mib, host.cgroup_free_mib) == (100, 0)


def test_what_a_group_above_has_left_counts_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/memory.max": str(1000 * MIB),
        "sys/fs/cgroup/a/memory.current": str(900 * MIB),
        "sys/fs/cgroup/a/b/memory.max": str(500 * MIB),
        "sys/fs/cgroup/a/b/memory.current": str(0),
    }
    host = detect(tmp_path, files)
    assert (host.cgroup_limit_mib, host.cgroup_free_mib) == (500, 100)


def test_a_group_of_version_1_tells_its_use_too(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/memory/a"
    files = {
        "proc/self/cgroup": "3:memory:/a\n",
        f"{base}/memory.limit_in_bytes": str(1000 * MIB),
        f"{base}/memory.usage_in_bytes": str(700 * MIB),
        f"{base}/memory.stat": f"total_inactive_file {200 * MIB}\n",
    }
    assert detect(tmp_path, files).cgroup_free_mib == 500


def test_huge_pages_of_all_sizes_are_set_aside(tmp_path: Path) -> None:
    base = "sys/kernel/mm/hugepages"
    files = {f"{base}/hugepages-2048kB/nr_hugepages": "512\n", f"{base}/hugepages-1048576kB/nr_hugepages": "4\n"}
    host = detect(tmp_path, files)
    assert host.hugepages_mib == 5120
    without = host.model_copy(update={"available_mib": None})
    assert host_capacity(without).total_bytes == (65_536 - 5_120) * MIB


def test_more_huge_pages_than_ram_are_refused(tmp_path: Path) -> None:
    host = detect(tmp_path, {"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "4000"})
    assert host.hugepages_mib is None
    assert any("host-figure-refused" in note and "huge pages" in note for note in host.notes)


LIMITS = "Limit                     Soft Limit           Hard Limit           Units     \n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"proc/self/limits": "garbage"}, None),
        (
            {
                "proc/self/limits": LIMITS
                + "Max locked memory         8388608              8388608              bytes     \n"
            },
            8,
        ),
        (
            {
                "proc/self/limits": LIMITS
                + "Max locked memory         unlimited            unlimited            bytes\n"
            },
            "unlimited",
        ),
        (
            {
                "proc/self/limits": LIMITS
                + "Max locked memory         65536                65536                bytes\n",
                "proc/self/status": "CapEff:\t000001ffffffffff\n",
            },
            "unlimited",
        ),
        (
            {
                "proc/self/limits": LIMITS
                + "Max locked memory         65536                65536                bytes\n",
                "proc/self/status": "CapEff:\t0000000000000000\n",
            },
            0,
        ),
    ],
)
def test_what_may_be_locked(tmp_path: Path, files: dict[str, str], expected: int | str | None) -> None:
    assert detect(tmp_path, files).memlock_mib == expected


figures = st.none() | st.integers(1, 10**6)


@given(figures, figures, figures, figures, figures)
def test_no_known_figure_is_ever_exceeded_and_no_unknown_one_counts(
    ram: int | None, available: int | None, limit: int | None, left: int | None, huge: int | None
) -> None:
    host = Host(ram_mib=ram, available_mib=available, cgroup_limit_mib=limit, cgroup_free_mib=left, hugepages_mib=huge)
    capacity = host_capacity(host)
    assert capacity.known == (ram is not None or limit is not None)
    assert capacity.free_known == (available is not None)
    for bound in (ram, limit):
        assert bound is None or capacity.total_bytes <= bound * MIB
    for bound in (available, left):
        assert bound is None or not capacity.free_known or capacity.free_bytes <= bound * MIB
    if capacity.known and not huge:
        assert capacity.total_bytes > 0


def test_a_card_offers_its_memory_less_the_reserve_and_what_is_consumed_beside_is_a_demand() -> None:
    card = Card(index=3, name="x", total_mib=1000, free_mib=900, outside_mib=100, reserve_mib=50)
    assert card_capacity(card) == Capacity(950 * MIB, 850 * MIB, known=True, free_known=True)
    assert not card_capacity(card.model_copy(update={"free_mib": None})).free_known
    settled = card.model_copy(update={"settle": Settle(free_gib="0.1", floor_mib=10, at_ceiling_mib=800)})
    assert card_capacity(settled).total_bytes == 1000 * MIB
    (beside,) = outside_demands([card])
    assert (beside.bytes, beside.card, beside.resident, beside.source) == (100 * MIB, 3, True, "declared")


def test_a_limit_of_locked_memory_binds_where_a_profile_states_it_and_not_where_it_is_that_of_the_reader() -> None:
    declared = Host(ram_mib=1000, memlock_mib=64)
    assert host_capacity(declared).lockable_bytes == 64 * MIB
    assert host_capacity(declared.model_copy(update={"source": "sysfs"})).lockable_bytes is None
    assert host_capacity(declared.model_copy(update={"memlock_mib": "unlimited"})).lockable_bytes is None
