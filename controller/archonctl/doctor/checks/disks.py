"""Free disk: for a model that is still to come, and for releases, logs and temporary files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from archonctl.doctor.machine import Machine
from archonctl.doctor.subject import Subject
from archonctl.doctor.values import Result, failed, passed, skipped, unseen, warned
from archonctl.memory.interval import MIB
from archonctl.service.engine_account import CACHE
from archonctl.service.state import SYSTEM_STATE, state_dir

LEAST_MIB = 64
"""Under this a release, its log and a verdict may not fit: a start would fail half-way."""

LOW_MIB = 1024
"""Under this compiled kernels (vLLM's torch.compile cache, Triton's) soon do not fit."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system that holds ``path``."""

    path: str
    device: int
    free_bytes: int
    free_files: int | None
    """None where the file system does not count them."""
    is_read_only: bool


def look(machine: Machine, path: Path) -> Disk | None:
    """The file system of a path, or of the nearest folder above it that is there; None where none can be looked at."""
    for place in (path, *path.parents):
        try:
            found = os.statvfs(machine.at(place))
            device = os.stat(machine.at(place)).st_dev  # noqa: PTH116
        except (OSError, ValueError):
            continue
        files = found.f_favail if found.f_files else None
        is_read_only = bool(found.f_flag & os.ST_RDONLY)
        return Disk(str(path), device, found.f_frsize * found.f_bavail, files, is_read_only)
    return None


def disk_space(machine: Machine) -> tuple[Result, ...]:
    """Where state, releases, logs and temporary files go."""
    places = [Path(machine.environ.get("TMPDIR") or "/tmp"), state_dir(machine.environ, machine.uid)]
    places += [SYSTEM_STATE] if any(subject.installed for subject in machine.here) else []
    disks: dict[int, list[Disk]] = {}
    for place in dict.fromkeys(places):
        if not place.is_absolute() or (disk := look(machine, place)) is None:
            return (unseen(f"{place}: its file system cannot be looked at"),)
        disks.setdefault(disk.device, []).append(disk)
    return tuple(judge_space(", ".join(disk.path for disk in same), same[0]) for same in disks.values())


def judge_space(what: str, disk: Disk) -> Result:
    """One file system, by what is free on it."""
    free = disk.free_bytes // MIB
    if disk.is_read_only:
        return failed("disk-read-only", f"{what}: mounted read-only, 0 of {LEAST_MIB} MiB can be written", "see dmesg")
    if disk.free_files == 0:
        return failed("disk-short", f"{what}: {free:,} MiB free, and 0 more files can be made", "df -i")
    if free < LEAST_MIB:
        return failed("disk-short", f"{what}: {free:,} MiB free, {LEAST_MIB} at least", "free some of it")
    if free < LOW_MIB:
        message = f"{what}: {free:,} MiB free; compiled kernels and logs may want {LOW_MIB:,}"
        return warned("disk-short", message, "free some of it, or set TMPDIR and ARCHON_STATE_DIR")
    return passed(f"{what}: {free:,} MiB free, {LOW_MIB:,} wanted")


def disk_models(machine: Machine, subject: Subject) -> tuple[Result, ...]:
    """Room for the declared model where it is not there yet; a file that is there needs none."""
    if subject.endpoint is None:
        return (skipped("the declaration cannot be used"),)
    model = subject.endpoint.model
    is_file = model.path.startswith("/")
    place = Path(model.path) if is_file else _hub_cache(machine, subject)
    if place is None:
        return (skipped(f"{model.path}: no file of this machine; its container keeps it"),)
    disk = look(machine, place)
    if disk is None:
        return (unseen(f"{place}: its file system cannot be looked at"),)
    free = disk.free_bytes // MIB
    if machine.stat(place if is_file else place / f"models--{model.path.replace('/', '--')}") is not None:
        return (skipped(f"the model is there; {free:,} MiB are free beside it"),)
    if model.bytes is None:
        what = "the model is not there" if is_file else f"{model.path} comes to {place}"
        return (unseen(f"{what}, and its size is not declared; {free:,} MiB are free", "declare model.bytes"),)
    return (judge_room(place.parent if is_file else place, disk, -(-model.bytes // MIB)),)


def _hub_cache(machine: Machine, subject: Subject) -> Path | None:
    """Where an engine keeps what it fetches from the hub; None for a container, which has folders of its own.

    Source: huggingface_hub, environment variables: HF_HUB_CACHE, else hub below HF_HOME, else ~/.cache/huggingface/hub.
    """
    if subject.endpoint is None or subject.endpoint.engine.image:
        return None
    home = CACHE / subject.name if subject.installed else Path(machine.environ.get("HOME") or "/")
    given = {**({} if subject.installed else machine.environ), **subject.endpoint.engine.env}
    below = given.get("HF_HOME") or home / ".cache/huggingface"
    return Path(given.get("HF_HUB_CACHE") or Path(below, "hub"))


def judge_room(folder: Path, disk: Disk, need_mib: int) -> Result:
    """Room for a model of that size."""
    free = disk.free_bytes // MIB
    told = f"{folder}: {free:,} MiB free, the model that is to come has {need_mib:,} MiB"
    if disk.is_read_only:
        return failed("disk-read-only", f"{told}; mounted read-only", "see dmesg, or name another model.path")
    if free < need_mib:
        fix = "free some of it, or name another model.path"
        return failed("disk-short", f"{told}: {need_mib - free:,} MiB short", fix)
    return passed(told)
