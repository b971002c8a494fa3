"""Which engine and version a file is about, where the file itself or something beside it says so."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.find import declarations
from archonctl.deployment.load import load_endpoint
from archonctl.deployment.schema import Endpoint
from archonctl.errors import ArchonError
from archonctl.release.values import MANIFEST

_COMMENT = re.compile(
    r"[#;][^\n]*\barchonctl:(?=[^\n]*\bengine(?:-version)?=)(?:[^\n]*?\bengine=(?P<engine>[a-z]+))?"
    r"(?:[^\n]*?\b(?:engine-)?version=(?P<version>[A-Za-z0-9._+-]+))?"
)
_PINNED = re.compile(r"\b(?P<engine>vllm|sglang)(?:\[[^\]\n]*\])?==(?P<version>[0-9][A-Za-z0-9.]*)")
_MANIFEST_LIMIT = 1 << 20
_KINDS = {"llama": "llamacpp", "llamacpp": "llamacpp", "vllm": "vllm", "sglang": "sglang", "radiance": "radiance"}


@dataclass(frozen=True, slots=True)
class Known:
    """An engine and its version, and who reads the file (``compose``); empty where nothing says."""

    engine: str = ""
    version: str = ""
    reader: str = ""


def said_in(text: str) -> Known:
    """What a comment (``# archonctl: engine=vllm version=0.9.2``) or a pinned installation in a file says."""
    if found := _COMMENT.search(text):
        return Known(_KINDS.get(found["engine"] or "", ""), found["version"] or "")
    pins = {(found["engine"], found["version"]) for found in _PINNED.finditer(text)}
    return Known(*pins.pop()) if len(pins) == 1 else Known()


def rendered_for(folder: Path) -> Known:
    """The engine that a rendered release in this folder is for; empty where it is none."""
    try:
        value = json.loads((folder / MANIFEST).read_bytes()[:_MANIFEST_LIMIT])
        engine = value["engine"]
        return Known(str(engine["kind"]), str(engine["version"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return Known()


def beside(path: Path, engine: str = "") -> Endpoint | None:
    """The declaration that a file belongs to: the one of its name in its folder or in ``env/`` beside it, else the
    only one of that engine in its folder."""
    stem = re.sub(r"^archon[-@]", "", path.name.partition(".")[0])
    for folder in (path.parent, path.parent / "env", path.parent.parent / "env"):
        try:
            found = declarations(folder)
        except ArchonError:
            continue
        named = [one for one in found if one.stem == stem]
        for one in named or (found if folder == path.parent and len(found) == 1 else ()):
            endpoint = _load(one)
            if endpoint is not None and engine in ("", endpoint.engine.kind):
                return endpoint
    return None


def _load(path: Path) -> Endpoint | None:
    try:
        return load_endpoint(path.absolute(), {}, {}).endpoint
    except (ArchonError, OSError, tomllib.TOMLDecodeError):
        return None
