"""A rendered release as a value: every file that runs one endpoint, and the digest that names it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

MANIFEST = "release.json"
SCHEMA = "archonctl.release/1"


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """One file: its bytes and its mode (0o644, or 0o755 for what is executed)."""

    content: bytes
    mode: int = 0o644

    @property
    def sha256(self) -> str:
        """The digest of the content, in hex."""
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Release:
    """Everything that runs an endpoint. The same declaration gives the same bytes: no time and no chance is in them.

    ``home`` is the folder in which the unit expects the files; ``files`` has them by name, with ``release.json``.
    """

    endpoint: str
    home: str
    unit_name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    files: Mapping[str, ReleaseFile]
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 over the manifest, which holds the digest of every other file."""
        return self.files[MANIFEST].sha256

    @property
    def unit_text(self) -> str:
        """The rendered unit."""
        return self.files[self.unit_name].content.decode("utf-8")


def to_json(value: object) -> bytes:
    """JSON as it is stored: sorted keys, one form, a line break at the end."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8")
