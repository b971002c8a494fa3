"""Beginnings of remote files that were read once, by address, with the entity tag and size that they had."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LARGEST_ENTRY_BYTES = 64 * 1024 * 1024
LARGEST_BYTES = 512 * 1024 * 1024
"""Of all entries; the oldest go first."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one file: its validator, its size in bytes and how it begins."""

    etag: str
    size: int
    head: bytes


@dataclass(frozen=True, slots=True)
class HeaderCache:
    """A folder that only its user can read. A cache that cannot be read or written is no cache, and nothing else."""

    folder: Path | None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> HeaderCache:
        """``$XDG_CACHE_HOME/archonctl/models``, or the same below ~/.cache; none without a home."""
        home = environ.get("HOME", "")
        base = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home.startswith("/") else "")
        return cls(Path(base) / "archonctl/models" if base.startswith("/") else None)

    def load(self, url: str) -> Entry | None:
        """The entry of an address; None without one that is whole."""
        if self.folder is None:
            return None
        try:
            raw = self._path(url).read_bytes()
            line, _, head = raw.partition(b"\n")
            said = json.loads(line)
            etag, size, digest = said["etag"], said["size"], said["sha256"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not (isinstance(etag, str) and isinstance(size, int) and len(head) <= size):
            return None
        return Entry(etag, size, head) if hashlib.sha256(head).hexdigest() == digest else None

    def store(self, url: str, entry: Entry) -> None:
        """Keep an entry, whole or not at all."""
        if self.folder is None or len(entry.head) > LARGEST_ENTRY_BYTES:
            return
        said = {"etag": entry.etag, "size": entry.size, "sha256": hashlib.sha256(entry.head).hexdigest()}
        path = self._path(url)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                with open(temporary, "xb", opener=_private) as file:
                    file.write(json.dumps(said).encode() + b"\n" + entry.head)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._trim()

    def _path(self, url: str) -> Path:
        # the address itself may hold what nobody else should read
        return (self.folder or Path()) / hashlib.sha256(url.encode("utf-8", "surrogatepass")).hexdigest()[:40]

    def _trim(self) -> None:
        assert self.folder is not None
        found = sorted(((entry.stat(), entry) for entry in os.scandir(self.folder)), key=lambda pair: -pair[0].st_mtime)
        total = 0
        for seen, entry in found:
            total += seen.st_size
            if total > LARGEST_BYTES:
                os.unlink(entry.path)  # noqa: PTH108


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
