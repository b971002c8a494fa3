"""RAM, locked memory, control groups, shared memory, disks, ports, the clock, systemd and containers."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archonctl.doctor.checks.clock import Clock, clock, judge_clock
from archonctl.doctor.checks.containers import container_cgroups, container_devices, container_runtime
from archonctl.doctor.checks.disks import Disk, disk_models, disk_space, judge_room, judge_space
from archonctl.doctor.checks.limits import Space, cgroup_memory, cgroup_version, judge_shm, memlock, ram
from archonctl.doctor.checks.ports import listening, ports
from archonctl.doctor.checks.services import systemd_running, systemd_version
from archonctl.doctor.machine import Machine
from archonctl.doctor.runtimes import Runtime, parse
from archonctl.doctor.subject import Subject
from archonctl.doctor.values import Result

Lay = Callable[..., Machine]
Declared = Callable[..., Subject]
MIB = 1 << 20


def words(results: tuple[Result, ...]) -> list[tuple[str, str]]:
    return [(result.status, result.code) for result in results]


def meminfo(total_mib: int, available_mib: int) -> dict[str, str]:
    return {"proc/meminfo": f"MemTotal: {total_mib * 1024} kB\nMemAvailable: {available_mib * 1024} kB\n"}


LIMITS = "Max locked memory         {:<20} {:<20} bytes     \n"
STATUS = {"proc/self/status": "CapEff:\t0000000000000000\n"}


def test_ram_is_judged_by_what_the_engine_holds_at_its_boot(lay: Lay, archon: Subject) -> None:
    (result,) = ram(lay(meminfo(251_976, 240_000), subjects=(archon,)))
    assert result.status == "pass"
    assert "240,000 MiB available, archon needs 150,200 MiB: 89,800 MiB to spare" in result.message
    (result,) = ram(lay(meminfo(251_976, 100_000), subjects=(archon,)))
    assert (result.code, "50,200 MiB short" in result.message) == ("ram-short", True)
    # while an engine runs, what is available says nothing of the next start
    running = lay(subjects=(archon,), engines={"archon": frozenset({1})})
    assert words(ram(running)) == [("skip", "")]
    huge = {"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "120"}
    (result,) = ram(lay(meminfo(251_976, 120_000) | huge, subjects=(archon,)))
    assert (result.code, "122,880 of 251,976 MiB" in result.message) == ("hugepages-reserved", True)


def test_locked_memory_of_64_kib_is_too_little_for_who_pins(lay: Lay, archon: Subject) -> None:
    machine = lay({"proc/self/limits": LIMITS.format(65_536, 65_536)} | STATUS)
    (result,) = memlock(machine)
    assert (result.status, result.unseen) == ("skip", False)
    (result,) = memlock(replace(machine, subjects=(archon,)))
    assert (result.status, result.code) == ("fail", "memlock-short")
    assert "this shell may lock 0 MiB, archon needs 150,200 MiB" in result.message
    # root's container runtime gives its container no limit, whatever this shell has
    assert archon.command
    assert archon.command.container
    of_root = replace(archon.command, container=replace(archon.command.container, rootless=False))
    assert words(memlock(replace(machine, subjects=(replace(archon, command=of_root),)))) == [("skip", "")]
    # installed: the unit has a limit of its own, and once it runs that one counts
    installed = replace(archon, installed=True)
    assert words(memlock(replace(machine, subjects=(installed,)))) == [("skip", "")]
    lay({"proc/7/limits": LIMITS.format("unlimited", "unlimited"), "proc/8/limits": LIMITS.format(8 << 20, 8 << 20)})
    for pid, status in ((7, "pass"), (8, "fail"), (9, "skip")):
        (result,) = memlock(replace(machine, subjects=(installed,), engines={"archon": frozenset({pid})}))
        assert result.status == status
    assert result.unseen


V2 = {"proc/self/cgroup": "0::/a/b\n"}


def test_control_groups_are_told_by_limit_and_version(lay: Lay, archon: Subject) -> None:
    assert words(cgroup_memory(lay())) == [("skip", "")]
    machine = lay(V2 | {"sys/fs/cgroup/a/memory.max": str(8192 * MIB)} | meminfo(251_976, 240_000))
    assert words(cgroup_version(machine)) == [("pass", "")]
    (result,) = cgroup_memory(machine)
    assert (result.status, "8,192 MiB allowed of 251,976 MiB" in result.message) == ("skip", True)
    (result,) = cgroup_memory(replace(machine, subjects=(archon,)))
    assert (result.code, "142,008 MiB short" in result.message) == ("cgroup-limit-short", True)
    old = lay({"proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"})
    (result,) = cgroup_version(old)
    assert (result.status, result.code) == ("warn", "cgroup-v1")
    assert "controllers of version 1: 2 (memory among them)" in result.message


VLLM = """
[contract]
seqs = 1
len = 4096
[engine]
kind = "vllm"
version = "0.32.0"
{how}
[model]
path = "org/model"
"""
IMAGE = f'image = "vllm/vllm-openai@sha256:{"0" * 64}"\n'


def test_shared_memory_is_judged_only_for_engines_that_use_it(lay: Lay, archon: Subject, declared: Declared) -> None:
    machine = lay()
    assert words(judge_shm(replace(machine, subjects=(archon,)), Space(64 * MIB, 64 * MIB))) == [("skip", "")]
    vllm = replace(machine, subjects=(declared(VLLM.format(how=IMAGE)),))
    for space, status in ((Space(9 << 30, 8 << 30), "pass"), (Space(64 * MIB, 64 * MIB), "fail"), (None, "fail")):
        (result,) = judge_shm(vllm, space)
        assert result.status == status
    (result,) = judge_shm(vllm, Space(24 << 30, 100 * MIB))
    assert "100 of 24,576 MiB are free" in result.message
    assert "left behind" in result.fix
    own = declared(VLLM.format(how=IMAGE) + '[container]\nshm = "64m"\n')
    (result,) = judge_shm(replace(machine, subjects=(own,)), Space(9 << 30, 9 << 30))
    assert (result.code, "64 MiB of /dev/shm, 1,024 are wanted" in result.message) == ("shm-short", True)


@pytest.mark.parametrize(
    ("free_mib", "files", "read_only", "wanted"),
    [
        (9000, 5, False, ("pass", "")),
        (9000, None, False, ("pass", "")),
        (900, 5, False, ("warn", "disk-short")),
        (63, 5, False, ("fail", "disk-short")),
        (9000, 0, False, ("fail", "disk-short")),
        (9000, 5, True, ("fail", "disk-read-only")),
    ],
)
def test_a_disk_by_bytes_files_and_how_it_is_mounted(
    free_mib: int, files: int | None, read_only: bool, wanted: tuple[str, str]
) -> None:
    assert words((judge_space("/x", Disk("/x", 1, free_mib * MIB, files, read_only)),)) == [wanted]


def test_room_is_asked_for_a_model_that_is_still_to_come(lay: Lay, archon: Subject) -> None:
    machine = lay()
    (result,) = disk_models(machine, archon)
    assert "116,320 MiB" in result.message
    assert judge_room(Path("/m"), Disk("/m", 1, 1000 * MIB, 1, False), 1200).message.endswith("200 MiB short")
    assert judge_room(Path("/m"), Disk("/m", 1, 1200 * MIB, 1, False), 1200).status == "pass"
    model = archon.endpoint.model.path if archon.endpoint else ""
    assert words(disk_models(lay({model: "x"}), archon)) == [("skip", "")]
    assert disk_space(replace(machine, environ={"TMPDIR": "relative"}))[0].unseen


def test_a_model_of_a_hub_is_judged_where_its_engine_keeps_it(lay: Lay, declared: Declared) -> None:
    text = VLLM.format(how='binary = "/bin/true"')
    machine = lay(environ={"HF_HOME": "/big/hf", "HOME": "/home/a"})
    (result,) = disk_models(machine, declared(text))
    assert (result.unseen, "org/model comes to /big/hf/hub" in result.message) == (True, True)
    (result,) = disk_models(machine, declared(text + "bytes = 999_999_999_999_999\n"))
    assert (result.code, result.message.startswith("/big/hf/hub: ")) == ("disk-short", True)
    lay({"big/hf/hub/models--org--model/refs/main": ""})
    assert words(disk_models(machine, declared(text + "bytes = 999_999_999_999_999\n"))) == [("skip", "")]
    (result,) = disk_models(machine, replace(declared(text), installed=True))
    assert "/var/cache/archon/x/.cache/huggingface/hub" in result.message
    assert words(disk_models(machine, declared(VLLM.format(how=IMAGE)))) == [("skip", "")]


LISTENING = (
    "  sl  local_address rem_address   st\n   0: {} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  {} 0 {}\n"
)


@pytest.mark.parametrize(
    ("table", "local", "listen", "held"),
    [
        ("tcp", "0100007F:1F40", "127.0.0.1", True),
        ("tcp", "0100007F:1F40", "0.0.0.0", True),
        ("tcp", "00000000:1F40", "127.0.0.1", True),
        ("tcp", "0200007F:1F40", "127.0.0.1", False),
        ("tcp", "0100007F:1F41", "127.0.0.1", False),
        ("tcp6", "00000000000000000000000000000000:1F40", "127.0.0.1", True),
        ("tcp6", "0000000000000000FFFF00000100007F:1F40", "127.0.0.1", True),
        ("tcp6", "00000000000000000000000001000000:1F40", "::1", True),
        ("tcp6", "00000000000000000000000001000000:1F40", "127.0.0.1", False),
        ("tcp", "garbage:zz", "127.0.0.1", False),
    ],
)
def test_a_listener_counts_where_it_would_be_in_the_way(
    lay: Lay, table: str, local: str, listen: str, held: bool
) -> None:
    assert listening(lay({f"proc/net/{table}": LISTENING.format(local, 0, 5)}), listen, 8000) is held


def test_a_port_is_free_held_by_its_own_engine_or_by_whom(lay: Lay, archon: Subject) -> None:
    machine = lay({"etc/passwd": "archon:x:990:990::/:\n"}, subjects=(archon,))
    assert ports(machine)[0].unseen, "nothing tells who listens"
    machine = lay({"proc/net/tcp6": ""}, subjects=(archon,))
    assert ports(machine)[0].message == "127.0.0.1:8000 is free for archon"
    held = {"proc/net/tcp": LISTENING.format("0100007F:1F40", 33, 5), "proc/9/cmdline": "llama-server\0"}
    (result,) = ports(lay(held, subjects=(archon,)))
    assert result.code == "port-in-use"
    assert "a process of uid 33 that this user may not look into" in result.message
    machine = lay({"proc/9/fd/3": "->socket:[5]"}, subjects=(archon,))
    (result,) = ports(machine)
    assert "is held by pid 9 (llama-server)" in result.message
    (result,) = ports(replace(machine, engines={"archon": frozenset({9})}))
    assert (result.status, "by archon itself" in result.message) == ("pass", True)
    twice = ports(replace(machine, subjects=(archon, replace(archon, name="other"))))
    assert ("warn", "ports-clash") in words(twice)


SMALL = """
[contract]
seqs = 1
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/bin/false"
[model]
path = "/m.gguf"
[service]
listen = "127.0.0.1:{port}"
"""


def test_a_low_port_is_for_root(lay: Lay, declared: Declared) -> None:
    files = {"proc/sys/net/ipv4/ip_unprivileged_port_start": "1024\n", "proc/net/tcp": ""}
    machine = lay(files, subjects=(declared(SMALL.format(port=80)),))
    assert words(ports(machine)) == [("fail", "listen-unavailable")]
    assert words(ports(replace(machine, uid=0))) == [("pass", "")]


def test_a_port_of_this_machine_that_is_taken_is_named_with_its_holder(declared: Declared, lay: Lay) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        subject = declared(SMALL.format(port=taken.getsockname()[1]))
        (result,) = ports(replace(lay(), root=Path("/"), subjects=(subject,)))
    assert result.code == "port-in-use"
    assert f"pid {os.getpid()} " in result.message
    elsewhere = declared(SMALL.format(port=8000).replace("127.0.0.1", "192.0.2.7"))
    assert words(ports(replace(lay(), root=Path("/"), subjects=(elsewhere,)))) == [("fail", "listen-unavailable")]


DAY = 86_400.0


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (Clock(100 * DAY, 99 * DAY, True, 0.001), ("pass", "")),
        (Clock(100 * DAY, 99 * DAY, False, None), ("warn", "clock-unsynchronised")),
        (Clock(100 * DAY, 99 * DAY, None, None), ("skip", "")),
        (Clock(0, 20_000 * DAY, True, 0.0), ("fail", "clock-wrong")),
        (Clock(30_000 * DAY, 20_000 * DAY, True, 0.0), ("fail", "clock-wrong")),
        (Clock(1e30, 0.0, True, 0.0), ("fail", "clock-wrong")),
    ],
)
def test_the_clock(seen: Clock, wanted: tuple[str, str]) -> None:
    assert words((judge_clock(seen),)) == [wanted]


def test_the_clock_of_this_machine_is_asked_and_a_folder_has_none(lay: Lay) -> None:
    machine = lay()
    assert words(clock(machine)) == [("skip", "")]
    assert clock(replace(machine, root=Path("/")))[0].status in ("pass", "warn")


def test_systemd_by_process_1_and_version(lay: Lay, archon: Subject) -> None:
    machine = lay({"proc/1/comm": "sleep\n"}, subjects=(archon,))
    (result,) = systemd_running(machine)
    assert (result.status, "process 1 is sleep" in result.message) == ("skip", True)
    assert words(systemd_running(replace(machine, subjects=(replace(archon, installed=True),)))) == [
        ("fail", "no-systemd")
    ]
    (machine.root / "run/systemd/system").mkdir(parents=True)
    assert words(systemd_running(machine)) == [("pass", "")]
    for version, status in ((None, "skip"), (246, "fail"), (247, "pass"), (257, "pass")):
        (result,) = systemd_version(replace(machine, systemd_version=version))
        assert result.status == status
    assert "grows" not in result.message


DOCKER = {"ServerVersion": "28.2.2", "CgroupDriver": "cgroupfs", "CgroupVersion": "2", "Runtimes": {"runc": {}}}
PODMAN = {"host": {"cgroupManager": "systemd", "cgroupVersion": "v2", "ociRuntime": {"name": "crun"}}}


def docker(**more: Any) -> Runtime:
    return parse("docker", "/usr/bin/docker", 0, json.dumps(DOCKER | more), "")


def test_a_runtime_is_needed_only_where_an_endpoint_runs_in_it(lay: Lay, archon: Subject) -> None:
    podman = parse("podman", "/usr/bin/podman", 0, json.dumps(PODMAN | {"version": {"Version": "5.4.2"}}), "")
    assert (podman.version, podman.cgroup_driver, podman.runtimes) == ("5.4.2", "systemd", ("crun",))
    machine = lay(runtimes=(Runtime("podman"), docker()))
    assert words(container_runtime(machine)) == [("pass", "")]
    (missing, there) = container_runtime(replace(machine, subjects=(archon,)))
    assert (missing.code, there.status) == ("container-runtime-missing", "pass")
    hung = Runtime("podman", "/usr/bin/podman", fault="podman info did not answer within 3 s")
    (silent,) = container_runtime(replace(machine, subjects=(archon,), runtimes=(hung,)))
    assert (silent.code, "within 3 s" in silent.message) == ("container-runtime-silent", True)
    assert words(container_runtime(replace(machine, runtimes=(hung,)))) == [("skip", "")]
    # nobody asked the runtimes of another machine: that none is needed may not be said
    assert "another machine's files" in container_runtime(replace(machine, runtimes=(), subjects=(archon,)))[0].message


@pytest.mark.parametrize("out", ["", "[]", "{", '{"version": 5, "host": []}', "null", "[" * 100_000])
def test_whatever_a_runtime_prints_is_a_value(out: str) -> None:
    for name in ("podman", "docker"):
        found = parse(name, "/x", 0, out, "")  # type: ignore[arg-type]
        assert found.fault or not found.version


def test_a_second_manager_of_control_groups_is_warned_of_beside_systemd(lay: Lay) -> None:
    machine = lay(runtimes=(docker(),))
    assert words(container_cgroups(machine)) == [("skip", "")]
    (machine.root / "run/systemd/system").mkdir(parents=True)
    assert words(container_cgroups(machine)) == [("warn", "container-cgroup-driver")]
    assert words(container_cgroups(replace(machine, runtimes=(docker(CgroupDriver="systemd"),)))) == [("pass", "")]


def test_nvidia_cards_come_in_by_a_runtime_or_by_cdi(lay: Lay, declared: Declared) -> None:
    text = VLLM.format(how=IMAGE) + '[container]\nruntime = "docker"\ngpus = "all"\n'
    machine = lay(subjects=(declared(text),), runtimes=(docker(),))
    assert words(container_devices(machine)) == [("fail", "container-devices-hidden")]
    with_runtime = replace(machine, runtimes=(docker(Runtimes={"nvidia": {}}),))
    assert words(container_devices(with_runtime)) == [("pass", "")]
    lay({"etc/cdi/nvidia.yaml": ""})
    assert words(container_devices(machine)) == [("pass", "")]


def test_devices_of_a_container_that_are_not_here_are_named(lay: Lay, archon: Subject) -> None:
    machine = lay(subjects=(archon,), runtimes=(replace(docker(), name="podman"),))
    (result,) = container_devices(machine)
    assert result.code == "device-missing"
    assert "/dev/kfd" in result.message
