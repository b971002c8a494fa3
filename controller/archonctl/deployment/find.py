"""Which endpoint is meant: a file, a name, or the only sensible one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from archonctl.deployment.paths import exists
from archonctl.deployment.problems import closest, printable
from archonctl.deployment.toml_file import SIZE_LIMIT_BYTES
from archonctl.errors import DeclarationError, UsageError

SYSTEM_DIR = Path("/etc/archon")
LOCAL_DIR = Path("env")
PREFERRED = "archon"
VARIABLE = "ARCHON_ENDPOINT"

_CONTRACT = re.compile(rb"^[ \t]*(?:\[[ \t]*contract[ \t]*\]|contract[ \t]*[.=])", re.MULTILINE)


class Found(NamedTuple):
    """A declaration file, and a sentence for stderr if nobody named it."""

    path: Path
    said: str


def find_endpoint(arg: str | None, environ: Mapping[str, str], cwd: Path, system_dir: Path = SYSTEM_DIR) -> Found:
    """The declaration that ``arg`` (a file or a name) means.

    Without ``arg``: ``$ARCHON_ENDPOINT``; else the one named ``archon`` or the only one in ``./env``; else the same
    in ``/etc/archon``. Raises UsageError ``endpoint-not-found`` or ``endpoint-ambiguous`` with the candidates.
    """
    folders = (cwd / LOCAL_DIR, system_dir)
    if arg is not None:
        return Found(_named(arg, folders, cwd), "")
    if wanted := environ.get(VARIABLE):
        path = _named(wanted, folders, cwd, f"from ${VARIABLE}")
        return Found(path, f"endpoint {_shown(path, cwd)} (from ${VARIABLE})")
    for folder in folders:
        if candidates := declarations(folder):
            return _chosen(candidates, folder, cwd)
    raise UsageError(
        "endpoint-not-found",
        f"no endpoint named, and there is no declaration in ./{LOCAL_DIR} nor in {system_dir}",
        hint=f"name a file, or set ${VARIABLE}",
    )


def declarations(folder: Path) -> tuple[Path, ...]:
    """The files ``*.toml`` directly in a folder that declare an endpoint, in the order of their names.

    A file that cannot be read counts: leaving it out could mean another endpoint than the one that was meant.
    Raises DeclarationError ``declaration-unreadable`` for a folder that cannot be listed, for the same reason.
    """
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  a name that is no UTF-8 must not end the search
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as err:
        message = f"cannot list the folder of declarations: {err.strerror}"
        raise DeclarationError("declaration-unreadable", message, where=printable(os.fspath(folder), 4096)) from None
    paths = (folder / name for name in names if name.endswith(".toml") and not name.startswith("."))
    return tuple(path for path in paths if _declares(path))


def _declares(path: Path) -> bool:
    """True if the text has a contract table, even where the rest of it is not valid TOML."""
    if not os.path.isfile(path):  # noqa: PTH113  False rather than an exception
        return False
    try:
        with path.open("rb") as file:
            return _CONTRACT.search(file.read(SIZE_LIMIT_BYTES)) is not None
    except OSError:
        return True


def _chosen(candidates: tuple[Path, ...], folder: Path, cwd: Path) -> Found:
    preferred = [path for path in candidates if path.stem == PREFERRED]
    if preferred:
        reason = f"the one named {PREFERRED!r} in {_shown(folder, cwd)}"
    elif len(candidates) == 1:
        preferred, reason = [candidates[0]], f"the only one in {_shown(folder, cwd)}"
    else:
        raise UsageError(
            "endpoint-ambiguous",
            f"{len(candidates)} endpoints are declared in {_shown(folder, cwd)}: {_names(candidates)}",
            hint=f"name one of them, or set ${VARIABLE}",
        )
    path = _relative(preferred[0], cwd)
    return Found(path, f"endpoint {_shown(path, cwd)} ({reason})")


def _named(arg: str, folders: Iterable[Path], cwd: Path, where: str = "") -> Path:
    path = Path(arg)
    if arg and "\0" not in arg:
        if "/" in arg or arg.endswith(".toml") or arg in (".", ".."):
            if exists(cwd / path):
                return path
        else:
            for folder in folders:
                if exists(folder / f"{arg}.toml"):
                    return _relative(folder / f"{arg}.toml", cwd)
            if os.path.isfile(cwd / path):  # noqa: PTH113
                return path
    known = {candidate.stem: candidate for folder in reversed(list(folders)) for candidate in declarations(folder)}
    close = closest(path.name.removesuffix(".toml"), known)
    listed = f"declared: {_names(known.values())}" if known else "no declaration in ./env nor in /etc/archon"
    hint = f"did you mean {close}? {listed}" if close else listed
    raise UsageError("endpoint-not-found", f"there is no endpoint {printable(arg, 200)!r}", where=where, hint=hint)


def _names(candidates: Iterable[Path]) -> str:
    return ", ".join(printable(path.stem) for path in candidates)


def _relative(path: Path, cwd: Path) -> Path:
    """As a person would write it: below the current directory without its name."""
    return path.relative_to(cwd) if path.is_relative_to(cwd) else path


def _shown(path: Path, cwd: Path) -> str:
    return printable(os.fspath(_relative(path, cwd)), 4096)
