"""The preflight on a real kernel: Debian's, with its own ttm module, in a virtual machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from archonctl.observe.failures import Line, classify
from support.kernelvm.machine import look

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(600)]  # the first one downloads and boots
Facts = Mapping[str, str]


def number(facts: Facts, name: str) -> int:
    return int(facts[name].split("\n", 1)[0])


def half_of_ram(total_kib: int) -> range:
    """Pages of 4 KiB; the kernel counts a few that MemTotal leaves out."""
    return range(total_kib // 8 - 64, total_kib // 8 + 64)


def test_the_knob_is_roots_and_shows_0_before_the_first_device(facts: Facts) -> None:
    assert facts["mode"].startswith("644 0:0\n")
    assert number(facts, "without-device") == 0
    assert "refused: ttm-not-set-yet: " in facts["check-without-device"]


def test_the_preflight_waits_for_the_driver_and_judges_the_limit_that_it_brings(facts: Facts) -> None:
    said = facts["wait-for-device"]
    assert "note: device-missing: not there: /dev/dri/card0; waiting" in said
    assert said.endswith("ttm-preflight: ok vm\nexit=0\n")
    assert number(facts, "after-device") in half_of_ram(number(facts, "total"))


def test_the_default_is_half_of_ram(facts: Facts) -> None:
    assert number(facts, "default") in half_of_ram(number(facts, "total"))


@pytest.mark.parametrize("gib", [2, 128])
def test_every_boot_begins_with_half_of_ram_again(facts: Facts, debian_kernel: Path, tmp_path: Path, gib: int) -> None:
    """Also the one after the limit was raised: nothing of it is kept."""
    seen = look(debian_kernel, tmp_path, gib)
    assert number(facts, "unit-raised") == 1300 * 256
    assert seen["alone"] == 0
    assert seen["pages_limit"] in half_of_ram(seen["total_kib"])
    assert seen["total_kib"] > (gib - 1) * 31 << 15


def test_a_limit_that_was_raised_before_the_driver_came_holds(facts: Facts) -> None:
    assert "raised: 0 -> 307200 pages" in facts["raise-without-device"]
    assert number(facts, "raised-before-device") == 307200


def test_an_account_without_rights_can_look_and_not_raise(facts: Facts) -> None:
    assert "refused: ttm-cap-short: " in facts["nobody-check-short"]
    assert "Permission denied" in facts["nobody-writes"]
    assert "refused: ttm-cap-not-raised: uid 65534 may not write" in facts["nobody-raises"]
    assert number(facts, "untouched") == number(facts, "default")


def test_root_raises_to_the_target_and_everyone_sees_it(facts: Facts) -> None:
    assert "refused: ttm-cap-short: " in facts["check-short"]
    assert number(facts, "raised") == 1500 * 256
    assert facts["raise"].endswith("ok vm\nexit=0\n")
    assert facts["nobody-check"].endswith("ok vm\nexit=0\n")


def test_a_floor_over_ram_is_set_as_far_as_ram_allows_and_refused(facts: Facts) -> None:
    allowed = number(facts, "total") * 9 // 10 // 4
    assert number(facts, "over-ram-set") == allowed
    assert "refused: ttm-floor-over-ram: " in facts["over-ram"]
    assert facts["over-ram"].endswith("exit=1\n")


def test_a_knob_that_the_kernel_does_not_move_is_one_named_refusal(facts: Facts) -> None:
    assert "refused: ttm-cap-not-raised: " in facts["read-only"]
    assert facts["read-only"].endswith("exit=1\n")


def test_absurd_and_tiny_limits_are_read_as_what_they_are(facts: Facts) -> None:
    assert facts["absurd"].endswith("ok vm\nexit=0\n")
    assert "raised:" not in facts["absurd-raise"]
    assert "have 0 MiB (1 pages), need 600 MiB (153600 pages), margin -600 MiB (-153599 pages)" in facts["tiny"]
    assert number(facts, "tiny-raised") == 600 * 256


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("010", "taken\n8"),
        ("0x10", "taken\n16"),
        ("+5", "taken\n5"),
        ("0", "taken\n0"),
        ("18446744073709551615", "taken\n18446744073709551615"),
        ("18446744073709551616", "refused\n4242"),
        (" 77", "refused\n4242"),
        ("-1", "refused\n4242"),
        ("abc", "refused\n4242"),
    ],
)
def test_what_the_kernel_makes_of_a_written_text(facts: Facts, text: str, answer: str) -> None:
    assert facts[f"write {text}"] == f"{answer}\nexit=0\n"


def test_reserved_huge_pages_are_not_there_to_be_pinned(facts: Facts) -> None:
    assert "refused: hugepages-reserved: 400 MiB of RAM are set aside as huge pages: have " in facts["hugepages"]


@pytest.mark.parametrize(("fact", "file"), [("group", "memory.max"), ("group-high", "memory.high")])
def test_a_units_memory_limit_is_seen_from_within_it(facts: Facts, fact: str, file: str) -> None:
    assert f"{fact}.service/{file}: have 200 MiB" in facts[f"{fact}.said"]
    assert "refused: cgroup-limit-short: " in facts[f"{fact}.said"]
    assert facts[fact].endswith("exit=1\n")


def test_a_units_memlock_is_judged_as_its_account_gets_it(facts: Facts) -> None:
    assert "refused: memlock-short: " in facts["memlock-short.said"]
    assert "have 1 MiB (256 pages), need 64 MiB" in facts["memlock-short.said"]
    assert "ok: memlock: unlimited" in facts["memlock.said"]
    assert facts["memlock"] == "exit=0\n"


def test_root_raises_from_within_a_unit_of_an_account_and_its_verdict_is_of_that_start(facts: Facts) -> None:
    assert facts["unit"] == "exit=0\n", facts["endpoint.said"]
    assert number(facts, "unit-raised") == 1300 * 256


def test_a_root_command_of_a_unit_does_not_get_the_units_memlock(facts: Facts) -> None:
    """Why memlock is judged by ``--inside``, which has no ``+``."""
    assert "memlock of the account: 1024\n" in facts["endpoint.said"]
    assert "memlock of root: 1024\n" not in facts["endpoint.said"]


def test_an_engine_that_the_kernel_kills_for_memory_is_tried_five_times_and_no_clock_step_tries_it_again(
    facts: Facts,
) -> None:
    wanted = {"ActiveState=failed", "NRestarts=5", "exit=0"}
    # systemd calls the last try by the kernel's word or by the signal, whichever came first: the kernel's count decides
    assert set(facts["oom"].split()) - wanted in ({"Result=oom-kill"}, {"Result=signal"})
    assert wanted <= set(facts["oom"].split())
    assert number(facts, "oom-kernel") >= 5
    assert facts["oom-after-clock-steps"] == facts["oom"]
    assert facts["oom-said"].count("Max locked memory") == 5 == number_of_lines(facts["oom-said-after"])


def test_the_kernels_own_line_of_a_kill_tells_whose_memory_ran_out(facts: Facts) -> None:
    lines = facts["oom-kernel-lines"].splitlines()
    found = [each.endpoint for at, line in enumerate(lines) for each in classify([Line(float(at), "kernel", line)])]
    assert found.count("oom") == 5


def test_an_engine_whose_worker_the_kernel_kills_for_memory_is_tried_again_as_well(facts: Facts) -> None:
    """A worker that dies so leaves its main process waiting: what ends that one must not look like a verdict."""
    assert set(facts["oom-worker"].split()) == {"ActiveState=failed", "NRestarts=5", "exit=0"}
    assert facts["oom-worker-said"].count("Max locked memory") == 5


def test_the_units_limit_of_locked_memory_is_real_for_an_ordinary_account(facts: Facts) -> None:
    assert all("unlimited" in line for line in facts["oom-said"].splitlines() if line.startswith("Max locked"))


def number_of_lines(fact: str) -> int:
    return int(fact.partition(" ")[0])


def test_root_without_a_capability_raises_the_limit_through_one_writable_mount(facts: Facts) -> None:
    """What ``render --target kubernetes`` gives the init container: no privilege, and nothing else of /sys."""
    assert facts["pod-capabilities"] == "CapEff:\t0000000000000000\nexit=0\n"
    assert "refused: ttm-cap-not-raised: " in facts["pod-closed"]
    assert facts["pod"].endswith("ttm-preflight: ok vm\nexit=0\n")
    assert number(facts, "pod-raised") == 1200 * 256
    assert "Read-only file system" in facts["pod-writes-elsewhere"]


def test_the_guards_account_reads_its_keys_as_a_credential_and_not_the_file_itself(facts: Facts) -> None:
    assert facts["guard-credential"].split() == ["archon-guard", "keys", "alice:sk-alice-0123456789"]
