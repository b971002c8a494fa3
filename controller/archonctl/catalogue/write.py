"""Adding an entry to a user's catalogue: what is there stays as it is, comments and all, and nobody sees half of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

from archonctl.catalogue.entry import Entry
from archonctl.catalogue.load import read_rows
from archonctl.errors import DeclarationError, HostRefusal

HEAD = "# Models beside those that archonctl ships; docs/models.md says what may stand here.\n"


def entry_text(entry: Entry) -> str:
    """The entry as TOML in the form of the shipped catalogue, with a blank line before it."""
    plain = {key: value for key, value in entry.row.items() if key not in ("geometry", "parameters", "quant")}
    tables = [("[[model]]", plain)]
    tables += [
        (f"[model.{key}]", table) for key in ("geometry", "parameters") if isinstance(table := entry.row.get(key), dict)
    ]
    quants = entry.row.get("quant")
    tables += [("[[model.quant]]", quant) for quant in quants] if isinstance(quants, list) else []
    lines = [line for header, table in tables for line in (header, *(f"{k} = {_toml(v)}" for k, v in table.items()))]
    return "\n" + "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    import tomli_w

    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"k": value}).removeprefix("k = ").strip()


def add_entry(path: Path, entry: Entry) -> None:
    """Append it to the file, or to a new one; a symbolic link stays one.

    Raises DeclarationError ``catalogue-duplicate`` where the file has the model, and whatever is wrong with the file,
    which is then left alone; HostRefusal ``catalogue-not-written``.
    """
    target = Path(os.path.realpath(path))
    with _refusing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            old = _old(target, path, entry)
            _replace(target, old + entry_text(entry))


def _old(target: Path, path: Path, entry: Entry) -> str:
    if not target.exists():
        return HEAD
    if any(row.name.lower() == entry.name.lower() for row in read_rows(path)):
        message = f"{entry.name} is in it already"
        raise DeclarationError(
            "catalogue-duplicate", message, where=str(path), hint="edit it there, or give another --name"
        )
    text = target.read_text("utf-8")
    tomllib.loads(text + entry_text(entry))  # an unfinished last line must not swallow the entry
    return text if text.endswith("\n") else text + "\n"


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name}.archonctl-{os.getpid()}")  # one writer at a time, see _locked
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer at a time: two that append to the same text would lose one entry."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        hint = "--catalogue FILE writes elsewhere, --print writes nothing"
        raise HostRefusal("catalogue-not-written", err.strerror or str(err), where=str(path), hint=hint) from None
