"""Adding an entry to a user's catalogue: what is there stays as it is, comments and all, and nobody sees half of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from archonctl.catalogue.entry import Entry
from archonctl.catalogue.load import WHAT, rows_of
from archonctl.deployment.toml_file import read_toml
from archonctl.errors import DeclarationError, HostRefusal

HEAD = "# Models beside those that archonctl ships; docs/models.md says what may stand here.\n"


def entry_text(entry: Entry) -> str:
    """The entry as TOML in the form of the shipped catalogue, with a blank line before it."""
    plain = {key: value for key, value in entry.row.items() if key not in ("geometry", "parameters", "quant")}
    tables = [("[[model]]", plain)]
    tables += [
        (f"[model.{key}]", table) for key in ("geometry", "parameters") if isinstance(table := entry.row.get(key), dict)
    ]
    return "\n" + "".join(_lines(header, table) for header, table in tables) + _quants(entry)


def _quants(entry: Entry) -> str:
    quants = entry.row.get("quant")
    return "".join(_lines("[[model.quant]]", quant) for quant in quants) if isinstance(quants, list) else ""


def _lines(header: str, table: Mapping[str, object]) -> str:
    return "\n".join((header, *(f"{key} = {_toml(value)}" for key, value in table.items()))) + "\n"


def _toml(value: object) -> str:
    import tomli_w

    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return tomli_w.dumps({"k": value}).removeprefix("k = ").strip()


def add_entry(path: Path, entry: Entry) -> None:
    """Add it to the file, or to a new one; a symbolic link stays one.

    A model is appended; the quant of one that the file has goes below that. Raises DeclarationError
    ``catalogue-duplicate`` where the file has it already, and whatever is wrong with the file, which is then left
    alone; HostRefusal ``catalogue-not-written``.
    """
    target = Path(os.path.realpath(path))
    with _refusing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent):
            _replace(target, _grown(path, entry) if target.exists() else HEAD + entry_text(entry))


def _grown(path: Path, entry: Entry) -> str:
    file = read_toml(path, WHAT)
    text = file.text if file.text.endswith("\n") else file.text + "\n"
    names = [row.name.lower() for row in rows_of(file)]
    if entry.name.lower() not in names:
        grown = text + entry_text(entry)
        if _models(grown) is None:
            message = "its models are not written as [[model]] tables, so none can be added"
            raise DeclarationError("declaration-invalid-toml", message, where=str(path), hint="write them so")
        return grown
    index = names.index(entry.name.lower())
    row = rows_of(file)[index]
    if entry.is_new or entry.quant.lower() in {quant.name.lower() for quant in row.quant}:
        raise _there(entry, path)
    lines = text.splitlines(keepends=True)
    cut = file.lines.get(("model", index + 1), len(lines) + 1) - 1
    while not lines[cut - 1].strip() or lines[cut - 1].lstrip().startswith("#"):
        cut -= 1  # what stands before the next model belongs to that
    grown = "".join((*lines[:cut], _quants(entry), *lines[cut:]))
    if _models(grown) != _models(text, index, entry):
        raise _there(entry, path)
    return grown


def _models(text: str, index: int = -1, entry: Entry | None = None) -> object:
    """The models of a text, with the entry's quant where it is to be: the file may be written in another form."""
    try:
        models = tomllib.loads(text)["model"]
    except tomllib.TOMLDecodeError:
        return None
    if entry is not None:
        models[index].setdefault("quant", []).extend(tomllib.loads(entry_text(entry))["model"][0]["quant"])
    return models


def _there(entry: Entry, path: Path) -> DeclarationError:
    what = entry.name if entry.is_new else f"{entry.name} with {entry.quant}"
    hint = "edit it there, or give another --name"
    return DeclarationError("catalogue-duplicate", f"{what} is in it already", where=str(path), hint=hint)


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
