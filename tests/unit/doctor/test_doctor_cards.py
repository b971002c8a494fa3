"""Drivers, nodes, access and leftovers, on machines laid out as files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from archonctl.doctor.bounded import NoAnswer
from archonctl.doctor.checks.cards import gpu_access, gpu_driver, gpu_nodes, gpu_visible
from archonctl.doctor.checks.leftovers import Holders, judge_holders, leftovers
from archonctl.doctor.checks.ttm import gtt_size, ttm_limit, ttm_module
from archonctl.doctor.machine import Machine, engine_pids
from archonctl.doctor.subject import Subject
from archonctl.doctor.values import Result
from archonctl.host.profile import Host
from support.machines import amd, lay_out, ttm

Lay = Callable[..., Machine]
MIB = 1 << 20


def words(results: tuple[Result, ...]) -> list[tuple[str, str]]:
    return [(result.status, result.code) for result in results]


def test_a_machine_without_a_card_skips_and_never_passes(lay: Lay) -> None:
    for check in (gpu_driver, gpu_visible, gpu_nodes, gpu_access, leftovers, ttm_module, ttm_limit, gtt_size):
        assert words(check(lay())) == [("skip", "")], check


def test_a_card_without_its_driver_is_named(lay: Lay) -> None:
    machine = lay(
        amd(0, vram=31_856, gtt=1000) | amd(1, vram=1, gtt=1, driver="") | amd(2, vram=1, gtt=1, driver="vfio-pci")
    )
    results = gpu_driver(machine)
    assert words(results) == [("fail", "driver-not-loaded"), ("skip", "")]
    assert "0000:04:00.0 (AMD, one of 3 cards) has no driver; amdgpu is needed" in results[0].message
    assert "modprobe amdgpu" in results[0].fix


def test_a_driven_card_that_tells_nothing_is_not_visible(lay: Lay) -> None:
    files = {k: v for k, v in amd(1, vram=1, gtt=1).items() if "drm" not in k}
    results = gpu_visible(lay(amd(0, vram=31_856, gtt=1000) | files))
    assert words(results) == [("fail", "cards-not-visible")]
    assert "cards with a driver: 2, that answer: 1; silent: 0000:04:00.0" in results[0].message


def intel(device: str, driver: str = "xe", **memory: str) -> dict[str, str]:
    """An Intel GPU at 0000:0a:00.0."""
    pci, card = "sys/bus/pci/devices/0000:0a:00.0", "sys/class/drm/card7"
    files = {f"{pci}/class": "0x030000", f"{pci}/vendor": "0x8086", f"{pci}/device": device}
    files |= {f"{card}/device/vendor": "0x8086", f"{card}/device/device": device}
    files |= {f"{card}/device/uevent": "DRIVER=xe\nPCI_SLOT_NAME=0000:0a:00.0\n"}
    return (
        files | ({f"{pci}/driver": f"->x/{driver}"} if driver else {}) | {f"{card}/{k}": v for k, v in memory.items()}
    )


def test_cards_of_intel_count_and_the_graphics_of_its_processors_do_not(lay: Lay) -> None:
    arc = lay(intel("0xe20b", lmem_total_bytes=str(12_192 * MIB)) | {"dev/dri/renderD128": ""})
    assert [words(check(arc)) for check in (gpu_driver, gpu_visible, gpu_nodes)] == [[("pass", "")]] * 3


def test_the_graphics_of_a_processor_of_intel_are_no_card(lay: Lay) -> None:
    machine = lay(intel("0x4680", "i915"))
    assert [words(check(machine)) for check in (gpu_driver, gpu_visible, gpu_nodes)] == [[("skip", "")]] * 3


def test_a_card_of_intel_whose_driver_tells_no_memory_is_not_called_silent(lay: Lay) -> None:
    results = gpu_visible(lay(intel("0xe20b", "i915")))
    assert "tells its memory in no file" in results[0].message
    assert "fail" not in [result.status for result in results]


def test_a_card_of_intel_without_its_driver_is_named(lay: Lay) -> None:
    assert words(gpu_driver(lay(intel("0xe20b", "")))) == [("fail", "driver-not-loaded")]


def test_an_intel_card_without_a_node_is_told(lay: Lay) -> None:
    results = gpu_nodes(lay(intel("0xe20b")))
    assert "cards of Intel: 1, render nodes below /dev/dri: 0" in results[0].message


def test_more_cards_declared_than_there_are(lay: Lay, archon: Subject) -> None:
    results = gpu_visible(lay(amd(0, vram=31_856, gtt=1000), subjects=(archon,)))
    assert "archon is declared for 2 cards, 1 of them can be used here" in results[0].message


def test_a_driver_that_hangs_is_a_finding(lay: Lay) -> None:
    results = gpu_visible(lay(host=NoAnswer("no answer within 5 s", late=True)))
    assert words(results) == [("fail", "driver-silent")]
    assert "5 s" in results[0].message
    hung = Host(source="sysfs", notes=("NVML: did not answer in 15 s",))
    assert words(gpu_visible(lay(host=hung))) == [("fail", "driver-silent")]


class Nvml:
    """One H200 as pynvml tells it; with ``fails`` the driver and its library are of two versions."""

    NVMLError = RuntimeError

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fails:
            raise self.NVMLError(self.fails)

    def __getattr__(self, name: str) -> Any:
        memory = SimpleNamespace(total=143_771 * MIB, free=143_000 * MIB)
        told: dict[str, Any] = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetMemoryInfo": memory,
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:4E:00.0"),
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlSystemGetDriverVersion": "580.82.07",
        }
        if name == "nvmlMemory_v2":
            raise AttributeError(name)
        return lambda *_words, **_named: told.get(name, 0)


NVIDIA = {
    "sys/bus/pci/devices/0000:4e:00.0/class": "0x030200",
    "sys/bus/pci/devices/0000:4e:00.0/vendor": "0x10de",
    "sys/bus/pci/devices/0000:4e:00.0/driver": "->../drivers/nvidia",
    "proc/driver/nvidia/gpus/0000:4e:00.0/information": "",
}


def test_nvml_answers_for_its_card_and_its_refusal_is_told(lay: Lay) -> None:
    assert words(gpu_visible(lay(NVIDIA, nvml=Nvml()))) == [("pass", "")]
    (result,) = gpu_visible(lay({}, nvml=Nvml("Driver/library version mismatch")))
    assert (result.status, result.code) == ("fail", "cards-not-visible")
    assert "Driver/library version mismatch" in result.message


def test_cards_without_nodes_are_a_warning_and_a_failure_for_who_needs_them(lay: Lay, archon: Subject) -> None:
    machine = lay(NVIDIA | amd(0, vram=31_856, gtt=1000))
    (result,) = gpu_nodes(machine)
    assert (result.status, result.code) == ("warn", "device-missing")
    assert "no /dev/kfd" in result.message
    assert "cards of NVIDIA: 1, nodes /dev/nvidiaN: 0" in result.message
    (result,) = gpu_nodes(replace(machine, subjects=(archon,)))
    assert result.status == "fail"
    nodes = dict.fromkeys(("dev/kfd", "dev/dri/renderD128", "dev/nvidia0", "dev/nvidiactl"), "")
    assert words(gpu_nodes(lay(nodes, subjects=(archon,)))) == [("pass", "")]


def _nodes(machine: Machine, mode: int) -> tuple[int, int]:
    for node in ("dev/kfd", "dev/dri/renderD128"):
        (machine.root / node).chmod(mode)
    found = machine.stat("/dev/kfd")
    assert found is not None
    return found.st_uid, found.st_gid


def test_access_is_judged_by_number_for_the_account_that_runs_the_engine(lay: Lay, archon: Subject) -> None:
    machine = lay({"dev/kfd": "", "dev/dri/renderD128": ""}, uid=4242, groups=frozenset({4242, 27}))
    owner, group = _nodes(machine, 0o660)
    (result,) = gpu_access(machine)
    assert (result.status, result.code) == ("fail", "device-unusable")
    assert f"/dev/kfd is 0660 {owner}:{group}" in result.message
    assert "uid 4242 is in the groups 27, 4242" in result.message
    assert words(gpu_access(replace(machine, groups=frozenset({group})))) == [("pass", "")]
    assert words(gpu_access(replace(machine, uid=0, groups=frozenset()))) == [("pass", "")]
    # the declared account, as this machine's own files have it
    files = {"etc/passwd": "archon:x:990:990::/:/bin/false\n", "etc/group": f"render:x:{group}:archon,x\n"}
    (result,) = gpu_access(lay(uid=4242, subjects=(archon,)))
    assert (result.status, result.unseen) == ("skip", True)
    assert words(gpu_access(lay(files, uid=4242, subjects=(archon,)))) == [("pass", "")]
    lay_out(machine.root, {"etc/group": "video:x:5:\n"})
    (result,) = gpu_access(lay(uid=4242, subjects=(archon,)))
    assert "uid 990 (archon) is in the groups 990" in result.message
    assert ("usermod -aG" in result.fix) is (group != 0)


CONTAINED = """
[contract]
seqs = 1
len = 4096
[engine]
kind = "vllm"
version = "0.32.0"
image = "vllm/vllm-openai@sha256:{digest}"
[model]
path = "org/model"
[container]
devices = ["/dev/kfd", "/dev/dri"]
groups = [{group}]
"""


def test_a_container_with_the_wrong_group_number_is_warned_of(lay: Lay, declared: Callable[..., Subject]) -> None:
    machine = lay({"dev/kfd": "", "dev/dri/renderD128": ""}, uid=0)
    _owner, group = _nodes(machine, 0o660)
    for given, wanted in ((group, []), (group + 7, [("warn", "device-group-differs")] * 2)):
        subject = declared(CONTAINED.format(digest="0" * 64, group=given))
        assert words(gpu_access(replace(machine, subjects=(subject,))))[1:] == wanted


# The limit of pinned memory


def test_the_default_limit_is_under_the_floor_with_both_numbers(lay: Lay, archon: Subject) -> None:
    machine = lay(amd(0, vram=31_856, gtt=125_988) | ttm(32_252_928), subjects=(archon,))
    results = ttm_limit(machine)
    assert words(results) == [("fail", "ttm-cap-short"), ("warn", "ttm-not-persistent")]
    assert "32,252,928 pages (125,988 MiB) now, 38,451,200 pages (150,200 MiB) are needed" in results[0].message
    assert "24,212 MiB short (for archon)" in results[0].message
    assert "archonctl host ttm archon --persist" in results[1].fix


def test_a_raised_limit_passes_and_says_what_is_to_spare(lay: Lay, archon: Subject) -> None:
    options = {"etc/modprobe.d/ttm.conf": "options ttm pages_limit=52428800\n"}
    machine = lay(amd(0, vram=31_856, gtt=125_988) | ttm(52_428_800) | options, subjects=(archon,))
    (result,) = ttm_limit(machine)
    assert result.status == "pass"
    assert "archon needs 38,451,200 pages (150,200 MiB): 54,600 MiB to spare" in result.message
    (result,) = gtt_size(machine)
    assert result.status == "pass"
    assert "GTT 125,988 MiB, pages_limit 204,800 MiB" in result.message


def test_the_module_that_binds_is_named_and_options_for_another_are_errors(lay: Lay, archon: Subject) -> None:
    files = ttm(1000) | ttm(52_428_800, module="amdttm") | {"etc/modprobe.d/x.conf": "options ttm pages_limit=9\n"}
    results = ttm_module(lay(files, subjects=(archon,)))
    assert words(results) == [("pass", ""), ("fail", "ttm-option-wrong-module")]
    assert "amdttm binds" in results[0].message
    assert ttm_limit(lay(subjects=(archon,)))[0].status == "pass", "amdttm's limit counts"


def test_no_module_is_a_failure_where_memory_is_pinned(lay: Lay, archon: Subject) -> None:
    assert words(ttm_module(lay(subjects=(archon,)))) == [("fail", "ttm-absent")]
    assert words(ttm_limit(lay(subjects=(archon,))))[0] == ("fail", "ttm-absent")


APU = {"sys/class/kfd/kfd/topology/nodes/1/properties": "cpu_cores_count 16\nsimd_count 80\ndrm_render_minor 128\n"}


@pytest.mark.parametrize(
    ("gtt", "limit_mib", "wanted"),
    [
        (98_304, 98_304, [("pass", "")]),
        (63_000, 98_304, [("fail", "gtt-differs")]),
        (98_304, 63_000, [("warn", "gtt-differs")]),
        (98_304, 0, [("skip", "")]),
    ],
)
def test_the_gtt_of_an_apu_goes_with_the_limit(
    lay: Lay, gtt: int, limit_mib: int, wanted: list[tuple[str, str]]
) -> None:
    files = amd(0, vram=512, gtt=gtt, device="0x1586") | ttm(limit_mib * 256, ram_mib=128_000) | APU
    results = gtt_size(lay(files))
    assert words(results) == wanted
    assert f"{gtt:,} MiB" in results[0].message


# Who holds a card


def test_a_process_that_holds_a_card_is_named_unless_it_is_our_engine(lay: Lay, archon: Subject) -> None:
    files = {
        "dev/kfd": "",
        "proc/77/fd/5": "->/dev/kfd",
        "proc/77/cmdline": "python\0serve\0",
        "proc/78/fd/0": "->/dev/null",
        "proc/88/fd/9": "->/dev/dri/renderD128",
        "proc/88/cgroup": "0::/system.slice/system-archon.slice/archon@archon.service\n",
    }
    machine = lay(files)
    (result,) = leftovers(replace(machine, engines=engine_pids(machine.root)))
    assert (result.status, result.code) == ("warn", "cards-held")
    assert "cards are held by processes of no endpoint (1): pid 77 (python serve) has /dev/kfd" in result.message
    (result,) = leftovers(replace(machine, engines=engine_pids(machine.root), subjects=(archon,)))
    assert result.status == "fail"
    ours = replace(machine, engines={"archon": frozenset({77, 88})})
    assert words(leftovers(ours)) == [("pass", "")]


def test_memory_without_a_holder_needs_root_or_is_told(lay: Lay) -> None:
    files = amd(0, vram=31_856, gtt=1) | {
        "dev/kfd": "",
        "sys/class/drm/card0/device/mem_info_vram_used": str(20_000 * MIB),
    }
    machine = lay(files)
    (result,) = judge_holders(machine, Holders({}, hidden=9))
    assert (result.status, result.unseen) == ("skip", True)
    assert "20,000 MiB in use, at most 1,024 when idle; 9 processes can be looked into by root" in result.message
    (result,) = judge_holders(machine, Holders({}, hidden=0))
    assert (result.status, result.code) == ("warn", "vram-not-released")
    assert "20,000 MiB in use, at most 1,024" in result.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another account")
@pytest.mark.optional
def test_what_an_ordinary_user_may_not_see_is_no_pass(lay: Lay, tmp_path: Path) -> None:
    machine = lay({"dev/kfd": "", "proc/77/fd/5": "->/dev/kfd"})
    for folder in (tmp_path, machine.root, machine.root / "proc", machine.root / "dev"):
        folder.chmod(0o755)
    (machine.root / "proc/77/fd").chmod(0o500)
    # the folder above belongs to root alone: the look is taken by a child that gave its rights away
    from archonctl.doctor.bounded import Task, gather

    def look() -> tuple[Result, ...]:
        os.chdir("/")
        os.chroot(machine.root)
        os.setresuid(4242, 4242, 4242)
        return leftovers(replace(machine, root=Path("/"), uid=4242))

    (answer,) = gather([Task(look, 10.0)])
    assert not isinstance(answer, NoAnswer), answer
    assert (answer[0].status, answer[0].unseen) == ("skip", True)
    assert "root only" in answer[0].message
