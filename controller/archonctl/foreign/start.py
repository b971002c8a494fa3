"""One engine start, as every kind of source gives it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from archonctl.errors import ArchonError
from archonctl.foreign.env_file import read_env_file
from archonctl.foreign.files import read_text
from archonctl.foreign.launch import Launch
from archonctl.foreign.words import Setting, Unread, Word


@dataclass(frozen=True, slots=True)
class Start:
    """One engine start. ``path`` is the file it was found in, ``base`` where its relative paths begin."""

    launch: Launch
    name: str
    path: str
    base: Path
    user: str = ""
    load_timeout_s: int | None = None
    unread: tuple[Unread, ...] = ()


def with_env_files(start: Start) -> Start:
    """The variables of ``--env-file`` before those that are stated."""
    container = start.launch.container
    unread = list(start.unread)
    found: list[Setting] = []
    for word in container.all("env-file") if container else ():
        found += env_file_settings(word, start.base, unread, optional=False)
    return replace(start, launch=replace(start.launch, env=(*found, *start.launch.env)), unread=tuple(unread))


def env_file_settings(word: Word, base: Path, unread: list[Unread], *, optional: bool) -> list[Setting]:
    """The variables of one env file; a file that cannot be read is named, unless it is ``optional``."""
    try:
        settings, more = read_env_file(read_text(base / word.text))
    except ArchonError as err:
        if not optional:
            unread.append(Unread(word.text[:80], err.message, word.line, word.column))
        return []
    unread += more
    return [replace(each, value=Word(each.value.text, word.line, word.column)) for each in settings]


def plain_name(name: str) -> str:
    """A file's name as an endpoint's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.@") or "endpoint"
