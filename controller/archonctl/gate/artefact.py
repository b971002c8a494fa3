"""The artefact on disk: exact bytes, and its SHA-256 read with progress, resumable, and remembered.

A digest is remembered by device, inode, size and both times of the file, in the user's cache. A read that was
interrupted goes on where it stopped, as long as the file is the same.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from archonctl.findings import Finding
from archonctl.gate.sha256 import STATE_BYTES, Hasher, library
from archonctl.gate.where import Declared

_CHUNK = 8 << 20
_SAVE_EVERY = 1 << 30
"""So many bytes are read between two notes of how far it came."""

Progress = Callable[[str, int, int], None]
"""Path, bytes read so far, bytes in all."""


@dataclass(frozen=True, slots=True)
class Verified:
    """``sha256`` of a file in hex, its size, and True where it was remembered rather than read."""

    sha256: str
    size_bytes: int
    remembered: bool


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/archonctl/digests`` or the same below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if base.startswith("/") else Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111
    return root / "archonctl" / "digests"


def sha256_of(path: Path, cache: Path | None = None, progress: Progress | None = None) -> Verified:
    """The digest of a file. Raises OSError where it cannot be read.

    A file that changes while it is read is read for nothing: OSError ``EAGAIN``.
    """
    folder = cache or cache_folder()
    with path.open("rb") as file:
        info = os.fstat(file.fileno())
        note = folder / f"{_key(info)}.json"
        known = _noted(note)
        if isinstance(known.get("sha256"), str):
            return Verified(str(known["sha256"]), info.st_size, True)
        digest = _read(file.fileno(), path, info, note, progress)
        if _key(os.fstat(file.fileno())) != _key(info):
            raise BlockingIOError(11, "the file changed while it was read", str(path))
    _write(note, {"path": str(path), "sha256": digest})
    return Verified(digest, info.st_size, False)


def remembered_sha256(path: Path, cache: Path | None = None) -> str:
    """The digest of a file as it was last read, if nobody has touched it since; empty where it is not remembered.

    Reads nothing of the file itself. Raises OSError where it is not there.
    """
    known = _noted((cache or cache_folder()) / f"{_key(path.stat())}.json")
    found = known.get("sha256")
    return found if isinstance(found, str) else ""


def _read(handle: int, path: Path, info: os.stat_result, note: Path, progress: Progress | None) -> str:
    """The digest, from where an earlier read of the same file stopped."""
    state, done = _stopped(note)
    hasher = Hasher(state)
    os.lseek(handle, done, os.SEEK_SET)
    saved = done
    while chunk := os.read(handle, _CHUNK):
        hasher.update(chunk)
        done += len(chunk)
        if done - saved >= _SAVE_EVERY and (now := hasher.state) is not None:
            _write(note, {"path": str(path), "done": done, "state": now.hex()})
            saved = done
        if progress is not None:
            progress(str(path), done, info.st_size)
    return hasher.hexdigest()


def _stopped(note: Path) -> tuple[bytes | None, int]:
    """State and offset of a read that was interrupted; nothing and 0 where there is none that can be used."""
    known = _noted(note)
    done, state = known.get("done"), known.get("state")
    if library() is None or not isinstance(done, int) or not isinstance(state, str) or done < 0:
        return None, 0
    with suppress(ValueError):
        raw = bytes.fromhex(state)
        return (raw, done) if len(raw) == STATE_BYTES else (None, 0)
    return None, 0


def _key(info: os.stat_result) -> str:
    return f"{info.st_dev:x}-{info.st_ino:x}-{info.st_size:x}-{info.st_mtime_ns:x}-{info.st_ctime_ns:x}"


def _noted(note: Path) -> dict[str, object]:
    try:
        value = json.loads(note.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _write(note: Path, value: dict[str, object]) -> None:
    """A digest that cannot be remembered is read again next time: no reason to fail."""
    temporary = note.with_name(f".{note.name}.{os.getpid()}")
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.replace(note)


def file_findings(declared: Declared, verify: bool, progress: Progress | None = None) -> list[Finding]:
    """The model file against what is declared of it.

    A file that is not here is a note: the gate runs where the engine does not. With ``verify`` it is an error, and
    the digest is read.
    """
    model = declared.loaded.endpoint.model
    path = Path(model.path)
    found: list[Finding] = []
    if model.bytes is None and model.sha256 is None:
        message = "neither bytes nor sha256 of the artefact are declared: another file of this name would be served"
        found.append(declared.finding("artefact-not-pinned", "note", message, "model.path", "declare both"))
    try:
        info = path.stat()
    except OSError as err:
        message = f"the artefact was not checked: {err.strerror or err}"
        return [*found, declared.finding("artefact-not-checked", "error" if verify else "note", message, "model.path")]
    if not stat.S_ISREG(info.st_mode):
        return found
    if model.bytes is not None and info.st_size != model.bytes:
        message = f"{info.st_size:,} bytes, {model.bytes:,} declared ({info.st_size - model.bytes:+,})"
        hint = "a download cut short, or another file than the declared one"
        return [*found, declared.finding("model-bytes-differ", "error", message, "model.bytes", hint)]
    if verify and model.sha256 is None:
        message = "the artefact's sha256 is not declared, so there is nothing to verify it against"
        found.append(declared.finding("artefact-not-pinned", "warning", message, "model.path", "declare sha256"))
    elif verify:
        found += _digest(declared, path, model.sha256 or "", progress)
    return found


def _digest(declared: Declared, path: Path, wanted: str, progress: Progress | None) -> list[Finding]:
    try:
        seen = sha256_of(path, progress=progress)
    except OSError as err:
        message = f"the artefact was not checked: {err.strerror or err}"
        return [declared.finding("artefact-not-checked", "error", message, "model.path")]
    if seen.sha256 == wanted:
        return []
    message = f"the file's sha256 is {seen.sha256}, {wanted} is declared"
    return [declared.finding("model-sha256-differs", "error", message, "model.sha256", "fetch the declared file again")]
