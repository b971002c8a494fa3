"""Where a relative path in a declaration points.

The rule, in this order: absolute paths and ``~`` as they are; below the current directory; below the folder
that holds the declaration's folder (the root of a repository with ``env/NAME.toml``); beside the declaration.
The first that exists wins. If none does, the one below that root is meant, and what needs it will say that it is
missing. A program without a slash is looked up on ``PATH`` first, like any command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.remote import is_remote
from archonctl.deployment.schema import Endpoint

PATH_KEYS = (
    ("model", "path"),
    ("model", "manifest"),
    ("host", "profile"),
    ("engine", "binary"),
    ("engine", "oracle"),
    ("service", "api_key_file"),
)
"""The keys of a declaration that hold a path."""


def exists(path: Path) -> bool:
    """True if something is there; False rather than an exception for a path too long or not allowed."""
    return os.path.exists(path)  # noqa: PTH110


@dataclass(frozen=True, slots=True)
class Bases:
    """The folders that a relative path may be below: cwd, the root, and the declaration's own folder."""

    cwd: Path
    root: Path
    beside: Path
    environ: Mapping[str, str]

    def resolve(self, text: str) -> Path:
        """The absolute path that ``text`` means."""
        path = self._expand(text)
        candidates = [folder / path for folder in (self.cwd, self.root, self.beside)]
        return next((c for c in candidates if exists(c)), self.root / path)

    def program(self, text: str) -> Path:
        """The absolute path of a program; a bare name is looked up on PATH first."""
        if "/" not in text:
            for folder in self.environ.get("PATH", os.defpath).split(os.pathsep):
                candidate = Path(folder) / text
                if folder.startswith("/") and os.access(candidate, os.X_OK) and os.path.isfile(candidate):  # noqa: PTH113
                    return candidate
        return self.resolve(text)

    def _expand(self, text: str) -> Path:
        home = self.environ.get("HOME", "")
        if home.startswith("/") and (text == "~" or text.startswith("~/")):
            return Path(home) / text[2:]
        return Path(text)


def bases(declaration: Path, cwd: Path, environ: Mapping[str, str]) -> Bases:
    """The folders for one declaration file (an absolute path)."""
    return Bases(cwd, declaration.parent.parent, declaration.parent, environ)


def resolve_paths(endpoint: Endpoint, where: Bases) -> tuple[Endpoint, dict[str, Path]]:
    """The endpoint with every path absolute, and the paths by dotted key (those that are set).

    A model on the network stays as written, and so does one that exists nowhere for engines that also take the name of
    a hub's repository.
    """
    changes: dict[str, dict[str, str]] = {}
    paths: dict[str, Path] = {}
    for table, key in PATH_KEYS:
        text = getattr(getattr(endpoint, table), key)
        if not text or ((table, key) == ("model", "path") and is_remote(text)):
            continue
        path = where.program(text) if key in ("binary", "oracle") else where.resolve(text)
        if (table, key) == ("model", "path") and endpoint.engine.kind in ("vllm", "sglang") and not exists(path):
            continue
        paths[f"{table}.{key}"] = path
        changes.setdefault(table, {})[key] = os.fspath(path)
    tables = {table: getattr(endpoint, table).model_copy(update=update) for table, update in changes.items()}
    return endpoint.model_copy(update=tables), paths
