"""Which files of a folder the gate reads, and as what."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from archonctl.deployment.find import declarations
from archonctl.errors import ArchonError

Kind = Literal["env", "argv", "unit", "drop-in", "script", "compose", "manifest", "config"]

MOST_FILES = 20_000
_SKIPPED = frozenset({"node_modules", "__pycache__", "site-packages", "venv", "dist", "build", "target"})
_COMPOSE = re.compile(r"^services[ \t]*:", re.MULTILINE)
_MANIFEST = re.compile(
    r"^[ \t-]*kind:[ \t]*[\"']?(Deployment|StatefulSet|DaemonSet|ReplicaSet|Job|CronJob|Pod|LeaderWorkerSet|List)\b",
    re.MULTILINE,
)
_SHEBANG = re.compile(r"#![^\n]*\b(ba|da|k|z|a)?sh\b")
_UNIT = re.compile(r"^\[(Unit|Service|Container)\][ \t]*\r?$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"(export[ \t]+)?[A-Za-z_][A-Za-z0-9_]*=")
_UNIT_NAMES = (".service", ".container")


def walk(folder: Path) -> Iterator[Path]:
    """Every file below a folder in order of names; hidden folders and those of packages are left out."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED)
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                return
            yield Path(place, name)


def is_release(folder: Path) -> bool:
    """True for the folder of a rendered release."""
    return (folder / "release.json").is_file() and (folder / "argv.json").is_file()


_BY_NAME: tuple[tuple[str, Kind], ...] = (
    (r".+\.(service|container)", "unit"),
    (r".*\.(service|container)\.d/.+\.conf", "drop-in"),
    (r"argv\.json", "argv"),
    (r".*\.env|\.env\..+", "env"),
    (r".+\.(sh|bash)", "script"),
    (r"llama\.cpp/config\.ini", "config"),
)
"""The file's name, or its folder's and its own."""


def kind_by_name(path: Path) -> Kind | None:
    """What a file is by its name alone; None where its content has to tell."""
    names = (path.name, f"{path.parent.name}/{path.name}")
    return next((kind for pattern, kind in _BY_NAME for name in names if re.fullmatch(pattern, name)), None)


def may_hold(path: Path) -> bool:
    """True for a file within a folder that is worth a look into: scripts without a suffix, and YAML."""
    return path.suffix in ("", ".yml", ".yaml", ".toml") and not path.name.startswith(".")


def kind_by_content(path: Path, text: str, named: bool) -> Kind | None:
    """What a file is by what stands in it. ``named``: the user gave this very file, so that it is something."""
    if path.suffix in (".yml", ".yaml"):
        if _MANIFEST.search(text) and "apiVersion:" in text:
            return "manifest"
        return "compose" if _COMPOSE.search(text) else None
    if _SHEBANG.match(text):
        return "script"
    return _by_look(path, text) if named else None


def _by_look(path: Path, text: str) -> Kind | None:
    if _UNIT.search(text):
        return "drop-in" if path.name.endswith(".conf") else "unit"
    if text.lstrip().startswith("["):
        return "argv"
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;"]
    if lines and all(_ASSIGNMENT.match(line) for line in lines):
        return "env"
    return "compose" if _COMPOSE.search(text) else "script" if path.suffix == "" and lines else None


def declared_in(folder: Path) -> tuple[Path, ...]:
    """The endpoint declarations directly in a folder; none where it cannot be listed."""
    try:
        return declarations(folder)
    except ArchonError:
        return ()
