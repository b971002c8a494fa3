"""A check never raises and always says something, whatever lies below the root; and nothing hangs for ever."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from archonctl.doctor.bounded import NoAnswer, Task, gather
from archonctl.doctor.machine import Machine, engine_pids
from archonctl.doctor.run import OF_ENDPOINT, OF_MACHINE, Asked, observe, run_checks
from archonctl.doctor.subject import Subject, study
from archonctl.doctor.table import checks, chosen
from archonctl.doctor.values import Line, Report, failed, passed, skipped, unseen, warned
from archonctl.host.detect import detect_host
from archonctl.service import procfs
from support.engines import wait_for

PCI = "sys/bus/pci/devices/0000:03:00.0"
FILES = (
    f"{PCI}/class", f"{PCI}/vendor", f"{PCI}/driver", "sys/bus/pci/devices/ä b/class", "dev/kfd", "dev/dri/renderD128",
    "dev/nvidia0", "etc/passwd", "etc/group", "proc/meminfo", "proc/self/cgroup", "proc/self/limits", "proc/net/tcp",
    "proc/net/tcp6", "proc/7/cgroup", "proc/7/fd", "proc/7/limits", "proc/²/cgroup", "proc/1/comm",
    "run/systemd/system", "sys/module/ttm/parameters/pages_limit", "sys/module/amdttm/parameters/pages_limit",
    "etc/modprobe.d/a.conf",
    "sys/class/drm/card0/device/mem_info_vram_total", "sys/class/drm/card0/device/mem_info_gtt_total",
    "sys/class/drm/card0/device/uevent", "proc/sys/net/ipv4/ip_unprivileged_port_start", "proc/sys/kernel/hostname",
    "models", "dev/shm", "tmp", "etc/cdi",
)  # fmt: skip
TELLING = st.sampled_from(
    ["0x030000", "0x1002", "amdgpu", "4096", "0", "18446744073709551616", "max", "0::/a\n", "9:memory:/\n", "²", "-1",
     "archon:x:990:990::/:\n", "archon:x:²:²::/\n", "render:x:٣:archon\n", "options ttm pages_limit=010\n",
     "0::/system.slice/archon@archon.service\n", "Max locked memory         65536                65536 bytes\n",
     "sl\n 0: 0100007F:1F40 0:0 0A 0:0 0:0 0 ² 0 ²\n", "sl\n 0: 00:1F40 0:0 0A 0:0 0:0 0 0 0 5\n"]
)  # fmt: skip
CONTENT = st.one_of(TELLING.map(str.encode), st.binary(max_size=200), st.just(None), st.just("folder"), st.just("loop"))


def write(root: Path, name: str, content: Any) -> None:
    path = root / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == "folder":
            path.mkdir()
        elif content == "loop":
            path.symlink_to(path.name)
        elif content is not None:
            path.write_bytes(content)
    except OSError:
        return  # a parent is a file or a loop already


@cache
def archon() -> Subject:
    """Loaded and planned once: what lies below a root does not change it."""
    repository = Path(__file__).parents[3]
    return study(repository / "env/archon.toml", {}, Path("/nowhere"), "archon", is_named=True, cwd=repository)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example({"dev/kfd": b"", "etc/passwd": "archon:x:²:²::/\n".encode(), "etc/group": "render:x:²:archon\n".encode()})
@example({"proc/²/cgroup": b"0::/system.slice/archon@archon.service\n", "proc/7/cgroup": b"/archon@a.service"})
@example({f"{PCI}/class": b"0x030000", f"{PCI}/vendor": b"0x1002", f"{PCI}/driver": "loop", "proc/meminfo": b""})
@given(st.dictionaries(st.sampled_from(FILES), CONTENT, max_size=len(FILES)))
def test_no_check_ever_raises_and_none_is_silent(files: dict[str, Any]) -> None:
    subject = archon()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, content in files.items():
            write(root, name, content)
        host = detect_host(root, page_bytes=4096)
        for subjects in ((), (subject,)):
            machine = Machine(root, host, subjects, engines=engine_pids(root), uid=1000, groups=frozenset({1000}))
            told = [result for check in OF_MACHINE.values() for result in (check(machine) or (None,))]
            told += [result for check in OF_ENDPOINT.values() for result in (check(machine, subject) or (None,))]
            for result in told:
                assert result is not None
                assert result.message
                assert bool(result.code) == (result.status in ("fail", "warn")), result


# Work that does not come back


def test_work_that_hangs_dies_or_raises_has_no_answer_and_the_rest_has(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def hang_with_a_child() -> int:
        child = subprocess.Popen(["sleep", "600"])
        note.write_text(str(child.pid))
        time.sleep(600)
        return 0

    def die() -> int:
        os._exit(3)

    def fall() -> int:
        raise ValueError("garbage")

    def unpicklable() -> Any:
        return lambda: 0

    tasks = [
        Task(hang_with_a_child, 5.0), Task(die, 60.0), Task(fall, 60.0), Task(unpicklable, 60.0),
        Task(lambda: 1, 60.0), Task(lambda: b"x" * 3_000_000, 60.0),
    ]  # fmt: skip
    late, died, raised, lost, one, large = gather(tasks, at_once=2)
    assert late == NoAnswer("no answer within 5 s", late=True)
    assert isinstance(died, NoAnswer)
    assert raised == NoAnswer("ValueError: garbage", late=False)
    assert isinstance(lost, NoAnswer)
    assert one == 1
    assert len(large) == 3_000_000

    def is_gone() -> bool:
        found = procfs.stat(int(note.read_text()))
        return found is None or found.state == "Z"

    wait_for(is_gone)  # what the work had started


def test_a_check_that_hangs_or_falls_over_is_a_finding(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(OF_MACHINE, "ports", lambda _machine: time.sleep(600))
    monkeypatch.setitem(OF_MACHINE, "clock", lambda _machine: 1 // 0)
    asked = Asked(chosen(["ports", "clock", "cgroup-version"]), (), False, tmp_path, {}, tmp_path)
    monkeypatch.setattr("archonctl.doctor.run._deadline", lambda check, _asked: 1.0 if check.id == "ports" else 120.0)
    found = {line.check.id: line.result for line in run_checks(asked).lines}
    assert (found["ports"].status, found["ports"].code) == ("fail", "check-unanswered")
    assert "within 1 s" in found["ports"].message
    assert found["clock"].code == "internal-fault"
    assert found["cgroup-version"].unseen


def test_only_the_facts_that_are_needed_are_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archonctl.doctor.run.detect_host", lambda _root: pytest.fail("the host was asked"))
    machine = observe(Asked(chosen(["clock"]), (), False, tmp_path, {}, tmp_path))
    assert isinstance(machine.host, NoAnswer)


@pytest.mark.parametrize(
    ("results", "strict", "code"),
    [
        ([passed("a")], False, 0),
        ([passed("a"), skipped("b"), unseen("c")], False, 0),
        ([passed("a"), unseen("c")], True, 3),
        ([passed("a"), skipped("c")], True, 0),
        ([passed("a"), warned("x-y", "c")], False, 0),
        ([passed("a"), warned("x-y", "c"), unseen("d")], True, 1),
        ([passed("a"), failed("x-y", "c")], False, 1),
        ([skipped("a")], False, 3),
        ([unseen("a")], False, 3),
        ([], False, 3),
    ],
)
def test_the_exit_code_never_takes_silence_for_health(results: list[Any], strict: bool, code: int) -> None:
    lines = tuple(Line(checks()[0], "", result) for result in results)
    assert Report("vm", lines, (), strict).exit_code == code
