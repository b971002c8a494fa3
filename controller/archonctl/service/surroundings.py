"""What a verdict was taken under, as facts that the drift check compares later; what is unknown is left out."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from archonctl.errors import HostRefusal
from archonctl.host.detect import TTM_MODULES
from archonctl.host.kernel_files import Reader
from archonctl.release.load import StoredRelease
from archonctl.service import procfs
from archonctl.service.artefact import RUNTIMES, container_image, image_of
from archonctl.service.engine_account import engine_account
from archonctl.service.installed import Installed, argv_of
from archonctl.service.place import Place
from archonctl.service.running import cmdline_of, runs
from archonctl.service.unit import UnitState

Facts = dict[str, str | int]

WORDS = {
    "boot_id": "boot",
    "kernel": "kernel",
    "pages_limit": "TTM limit in pages",
    "model_bytes": "model file, bytes",
    "model_mtime_ns": "model file, changed at (ns)",
    "image": "image id",
    "program": "engine program, bytes and time of change (ns)",
    "unit_file": "unit file, sha256",
    "drop_ins": "drop-ins",
}
"""Every fact and what it is called."""


def surroundings(installed: Installed, release: StoredRelease, state: UnitState) -> Facts:
    """The facts of this moment. Raises nothing: what cannot be told is not in them."""
    facts: Facts = {"kernel": " ".join((os.uname().release, os.uname().version))}
    if boot := procfs.boot_id(installed.root / "proc"):
        facts["boot_id"] = boot
    if (pages := pages_limit(installed.root)) is not None:
        facts["pages_limit"] = pages
    facts |= model_facts(release.loaded.endpoint.model.path)
    if program := program_facts(argv_of(release)):
        facts["program"] = program
    if image := _image(release, state, installed.where):
        facts["image"] = image
    if digest := file_digest(state.fragment):
        facts["unit_file"] = digest
    facts["drop_ins"] = " ".join(state.drop_ins)
    if state.main_pid and not runs(argv_of(release), state.main_pid, installed.proc):
        facts["cmdline"] = "\0".join(cmdline_of(state.main_pid, installed.proc))
    return facts


def changed(installed: Installed, state: UnitState) -> frozenset[str]:
    """The facts that are no longer what they were at the last verdict on the current release. Raises nothing."""
    try:
        release = installed.stored(installed.current())
        last = installed.history().last(installed.current())
    except HostRefusal:
        return frozenset()
    now = surroundings(installed, release, state)
    was = last.facts if last is not None else {}
    return frozenset(name for name in WORDS if name in was and name in now and was[name] != now[name])


def program_facts(argv: Sequence[str]) -> str:
    """Bytes and time of change of the engine's own program: a build that was exchanged in its place is another one."""
    if not argv or PurePosixPath(argv[0]).name in RUNTIMES:
        return ""
    try:
        info = Path(argv[0]).stat()
    except (OSError, ValueError):
        return ""
    return f"{info.st_size} {info.st_mtime_ns}"


def pages_limit(root: Path = Path("/")) -> int | None:
    """The kernel's limit of pinned pages as it stands there; 0 is what it shows before any driver has set it."""
    read = Reader(root)
    for module in TTM_MODULES:
        path = f"/sys/module/{module}/parameters/pages_limit"
        if read.exists(path):
            return read.number(path)
    return None


def file_digest(path: str) -> str:
    """SHA-256 of a small file; empty where there is none."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""
    except OSError:
        return ""


def model_facts(path: str) -> Facts:
    """Size and time of change of the model file; empty where it cannot be looked at."""
    try:
        info = Path(path).stat()
    except (OSError, ValueError):
        return {}
    return {"model_bytes": info.st_size, "model_mtime_ns": info.st_mtime_ns}


def _image(release: StoredRelease, state: UnitState, where: Place) -> str:
    argv, endpoint = argv_of(release), release.loaded.endpoint
    account = None
    with contextlib.suppress(HostRefusal):
        account = engine_account(endpoint, release.loaded.name, where)
    running = container_image(argv, account) if state.main_pid else ""
    if running:
        return running
    try:
        return image_of(argv, endpoint.engine.image, account)
    except HostRefusal:
        return ""
