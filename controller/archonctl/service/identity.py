"""Who listens on an endpoint's port, as the kernel shows it: what the identity leg of a probe judges."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from archonctl.deployment.schema import Endpoint
from archonctl.ledger.values import BootLedger
from archonctl.probe.identity import Process, judge_identity
from archonctl.probe.stored import ledger_from
from archonctl.probe.verdict import leg_json
from archonctl.release.load import StoredRelease
from archonctl.release.render import ARGV_FILE
from archonctl.service import procfs
from archonctl.service.gone import group_pids
from archonctl.service.preflight import split_listen
from archonctl.service.running import cmdline_of
from archonctl.service.separated import Message
from archonctl.service.unit import UnitState

_NODES = re.compile(r"/dev/(kfd|nvidia\d+|nvidia-uvm|nvidiactl|dri/renderD\d+|accel/.*|xe.*)$")
_VRAM = re.compile(rb"^drm-(?:memory|total)-vram\d*:\s+(\d+) KiB", re.M)
_CLIENT = re.compile(rb"^drm-client-id:\s+(\d+)", re.M)


def look(
    endpoint: Endpoint,
    argv: Sequence[str],
    port: int,
    main_pid: int,
    *,
    control_group: str = "",
    deployed_at: float | None = None,
    proc: Path = procfs.PROC,
) -> Process:
    """The process that listens on ``port`` now, against the engine whose main process is ``main_pid``.

    Raises nothing: what may not be seen is None in the answer.
    """
    found = procfs.listeners(port, proc)
    container = bool(endpoint.engine.image)
    family = set(procfs.tree(main_pid, proc)) | set(group_pids(control_group)) if main_pid else set()
    known = [each.pid for each in found if each.pid is not None]
    hidden = not found or len(known) < len(found)
    foreign = [each for each in found if each.pid is not None and each.pid not in family]
    # the container manager may hold a published port, and its processes are nobody's children here
    ours: bool | None = None if container or hidden or not family else True
    if foreign and not container and family:
        ours = False
    pid = foreign[0].pid if ours is False else next((each for each in known if each in family), None)
    device, layers = device_of(endpoint)
    watched = sorted(family | set(known))
    return Process(
        pid=pid,
        ours=ours,
        argv=tuple(argv),
        cmdline=cmdline_of(pid, proc) if pid else (),
        started_at=_started_at(pid, proc) if pid else None,
        deployed_at=deployed_at,
        container=container,
        device=device,
        layers=layers,
        device_open=_device_open(watched, proc) if device and pid else None,
        device_bytes=_device_bytes(watched, proc) if device and pid else None,
        who=next((str(each) for each in found if each.pid == pid), ""),
    )


def look_at_unit(release: StoredRelease, state: UnitState, link: Path) -> Process:
    """The same for a unit's running start; ``link`` names the current release. As root all of it may be seen."""
    argv = tuple(map(str, json.loads(release.files[ARGV_FILE])))
    endpoint = release.loaded.endpoint
    return look(
        endpoint,
        argv,
        split_listen(endpoint.service.listen)[1],
        state.main_pid,
        control_group=state.control_group,
        deployed_at=deployed_at(link),
    )


def add_identity(found: Message, process: Process) -> None:
    """The leg about the process in a judge's answer; it can only take away from the word."""
    probe, logged = found.get("probe"), found.get("ledger")
    if not isinstance(probe, dict) or not isinstance(probe.get("legs"), list):
        return
    ledger: BootLedger | None = None
    with contextlib.suppress(TypeError, ValueError, KeyError):
        ledger = ledger_from(logged) if isinstance(logged, dict) else None
    leg = judge_identity(process, ledger)
    probe["legs"].insert(1, leg_json(leg))
    word = "broken" if leg.status == "fail" else "no evidence" if leg.required and leg.status != "pass" else ""
    if not word or found.get("verdict") == "broken" or found.get("verdict") == word:
        return
    reasons = found.get("reasons")
    now = [f"{leg.id}: {leg.message}", *(reasons if isinstance(reasons, list) else [])]
    found |= {"verdict": word, "reasons": now, "code": leg.code if word == "broken" else found.get("code")}
    probe |= {"verdict": word, "reasons": now}


def deployed_at(link: Path) -> float | None:
    """When ``current`` began to name its release, in Unix seconds; None if it is not there."""
    try:
        return link.lstat().st_mtime
    except OSError:
        return None


def device_of(endpoint: Endpoint) -> tuple[str, int | None]:
    """The device that a declaration asks for in so many words, and how many layers on it; "" where it may be the CPU.

    radiance has no CPU backend, so that there is nothing to fall back to.
    """
    engine, knobs = endpoint.engine, endpoint.engine.knobs
    if engine.kind == "llamacpp":
        asked = next((knobs[name] for name in ("gpu-layers", "n-gpu-layers", "ngl") if name in knobs), None)
        if asked == "all":
            return "a device for all layers", 1 << 30
        if isinstance(asked, int | float) and not isinstance(asked, bool) and asked > 0:
            return f"a device for {int(asked):,} layers", int(asked)
        return ("the device " + str(knobs["device"]), None) if knobs.get("device") not in (None, "none") else ("", None)
    if engine.kind in ("vllm", "sglang") and endpoint.container.gpus not in ("", "none"):
        return f"GPUs {endpoint.container.gpus}", None
    if engine.kind in ("vllm", "sglang") and str(knobs.get("device", "")) in ("cuda", "xpu", "rocm"):
        return f"device {knobs['device']}", None
    return "", None


def _started_at(pid: int, proc: Path) -> float | None:
    stat = procfs.stat(pid, proc)
    try:
        text = (proc / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    boot = re.search(r"^btime (\d+)$", text, re.M)
    return int(boot[1]) + stat.start_ticks / os.sysconf("SC_CLK_TCK") if stat and boot else None


def _device_open(pids: Iterable[int], proc: Path) -> bool | None:
    """True if one of them has a device node open; None if not all of them may be looked into."""
    hidden = False
    for pid in pids:
        folder = proc / str(pid) / "fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except FileNotFoundError:
            continue
        except OSError:
            hidden = True
            continue
        for name in names:
            with contextlib.suppress(OSError):
                if _NODES.match(os.readlink(folder / name)):  # noqa: PTH115
                    return True
    return None if hidden else False


def _device_bytes(pids: Iterable[int], proc: Path) -> int | None:
    """Video memory of these processes by the kernel's DRM usage statistics; None where no driver tells."""
    clients: dict[bytes, int] = {}
    for pid in pids:
        folder = proc / str(pid) / "fdinfo"
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                text = (folder / name).read_bytes()
                client, sizes = _CLIENT.search(text), [int(each) for each in _VRAM.findall(text)]
                if client and sizes:
                    clients[client[1]] = max(sizes) * 1024
    return sum(clients.values()) if clients else None
