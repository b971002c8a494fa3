"""Writing declarations that did not exist before: never over a file that is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from archonctl.errors import UsageError


def write_new(out: Path, texts: Mapping[str, str]) -> dict[str, Path]:
    """Write each text; one into ``out`` itself, several (or a folder that is there) as ``out/NAME.toml``.

    A file appears whole or not at all. Raises UsageError ``import-out-exists`` or ``import-out-unwritable``.
    """
    folder = out.is_dir() or len(texts) > 1
    paths = {name: out / f"{name}.toml" if folder else out for name in texts}
    for path in paths.values():
        if os.path.lexists(path):
            hint = "name another file, or move that one away"
            raise UsageError("import-out-exists", "a file is there already", where=str(path), hint=hint)
    try:
        if folder:
            out.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            _write(path, texts[name])
    except OSError as err:
        raise UsageError("import-out-unwritable", f"cannot write it: {err.strerror}", where=str(out)) from None
    return paths


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.archonctl-{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename it never goes over a file that came in between
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Put a new text in place of a file's, at once, with its mode. Raises UsageError ``import-out-unwritable``."""
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name}.archonctl-{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), place.stat().st_mode & 0o7777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
    except OSError as err:
        temporary.unlink(missing_ok=True)
        raise UsageError("import-out-unwritable", f"cannot write it: {err.strerror}", where=str(path)) from None
