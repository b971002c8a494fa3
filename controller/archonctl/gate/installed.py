"""What is installed against what would be rendered."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.engines.base import CommandLine
from archonctl.errors import ArchonError
from archonctl.findings import Finding, Place
from archonctl.release.render import DECLARATION_FILE, DROP_IN_FILE, INSTALLED, render_release
from archonctl.release.values import MANIFEST, Release

UNITS = Path("etc/systemd/system")
_SIZE_LIMIT = 4 << 20
_NOT_COMPARED = frozenset({MANIFEST, DECLARATION_FILE})
"""They say who rendered what from where: no process reads them."""


def installed_findings(loaded: LoadedEndpoint, command: CommandLine, root: Path) -> list[Finding]:
    """Every file below ``root`` that differs from what the declaration renders to today. Reads only."""
    try:
        with loaded.placing():
            release = render_release(loaded, command)
    except ArchonError:
        return []  # told as a finding of its own
    folder = root / INSTALLED.relative_to("/") / loaded.name / "releases" / "current"
    if not (folder / MANIFEST).is_file():
        message = f"{loaded.name} is not installed: there is no release in {folder}"
        hint = f"archonctl apply {loaded.name}"
        return [Finding("drift-not-installed", "warning", message, Place(str(folder)), hint)]
    return [*_release(release, folder), *_units(release, root)]


def _release(release: Release, folder: Path) -> Iterator[Finding]:
    for name, file in sorted(release.files.items()):
        if name not in _NOT_COMPARED:
            yield from _compare(folder / name, file.content)


def _units(release: Release, root: Path) -> Iterator[Finding]:
    """The drop-in of the template, the unit of its own where there is one, and drop-ins that nobody rendered."""
    units = root / UNITS
    folder = units / f"archon@{release.endpoint}.service.d"
    ours = folder / "10-release.conf"
    alone = units / release.unit_name
    if alone.exists():
        yield from _compare(alone, release.files[release.unit_name].content)
    if ours.exists() or not alone.exists():
        yield from _compare(ours, release.files[DROP_IN_FILE].content)
    for place in (folder, units / f"{release.unit_name}.d", units / "archon@.service.d"):
        for name in sorted(_names(place)):
            if name.endswith(".conf") and place / name != ours:
                message = f"{place / name} changes the unit, and the declaration knows nothing of it"
                yield Finding("drift-drop-in", "warning", message, Place(str(place / name)), "declare it, or remove it")


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _compare(path: Path, wanted: bytes) -> Iterator[Finding]:
    fix = "archonctl apply renders it anew; an edit by hand belongs into the declaration"
    try:
        content = _read(path)
    except FileNotFoundError:
        message = "the file is not there, and the declaration renders to one"
        yield Finding("drift-file", "error", message, Place(str(path)), fix)
        return
    except OSError as err:
        message = f"the file cannot be read: {err.strerror or err}"
        yield Finding("drift-file", "error", message, Place(str(path)), fix)
        return
    if content == wanted:
        return
    line, have, want = _first_difference(content, wanted)
    message = f"installed {have!a}, the declaration renders to {want!a}"
    yield Finding("drift-file", "error", message, Place(str(path), line, 1), fix)


def _read(path: Path) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(0, "not a regular file")
        return file.read(_SIZE_LIMIT)


def _first_difference(content: bytes, wanted: bytes) -> tuple[int, str, str]:
    """The first line that differs, and what stands there in either file (empty: no such line)."""
    have = content.decode("utf-8", "replace").split("\n")
    want = wanted.decode("utf-8", "replace").split("\n")
    for code, i1, i2, j1, j2 in difflib.SequenceMatcher(None, have, want, autojunk=False).get_opcodes():
        if code != "equal":
            return i1 + 1, " ".join(have[i1 : min(i2, i1 + 1)])[:160], " ".join(want[j1 : min(j2, j1 + 1)])[:160]
    return 1, "", ""
