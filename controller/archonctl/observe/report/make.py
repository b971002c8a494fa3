"""Reports made: of one endpoint, or of all on one page; written to a file, or given to whoever asks over HTTP."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.observe.journal_story import JournalStory, read_story
from archonctl.observe.report.page import page
from archonctl.observe.story import Show, Story, tell
from archonctl.service.installed import Installed
from archonctl.service.status import engine_kinds

INDEX = "Endpoints"
_AT_ONCE = 8
"""Endpoints that are looked at together: part of a look waits for ``systemctl show``."""


def stories(installed: Sequence[Installed], show: Show, since: float) -> tuple[list[Story], JournalStory]:
    """Look at each; the journal is read once for all. ``since`` is Unix time."""
    journal = read_story(since, engine_kinds(installed))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda each: tell(each, show, journal), installed)), journal


def pages(
    installed: Callable[[], Sequence[Installed]], show: Show, since: Callable[[], float], now: Callable[[], float]
) -> Callable[[str], str | None]:
    """The page of a name, made when it is asked for: "" is the index where there are several endpoints."""

    def make(name: str) -> str | None:
        found = list(installed())
        if name == "" and len(found) != 1:
            return page(*stories(found, show, since()), now(), title=INDEX, linked=True)
        chosen = [each for each in found if name in ("", each.name)]
        return page(*stories(chosen, show, since()), now()) if chosen else None

    return make


def write_page(path: Path, text: str) -> int:
    """Write it whole, or leave what is there; a pipe or a device is written to. Returns its bytes.

    Raises HostRefusal ``report-unwritable``.
    """
    data = text.encode()
    try:
        is_plain = not path.exists() or stat.S_ISREG(path.stat().st_mode)
        target = Path(os.path.realpath(path)) if is_plain else path
        temporary = target.with_name(f".{target.name}.{os.getpid()}") if is_plain else target
        try:
            temporary.write_bytes(data)
            if temporary != target:
                temporary.replace(target)
        finally:
            if temporary != target:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
    except OSError as err:
        hint = "name another file with --html, or write to stdout: --html -"
        raise HostRefusal("report-unwritable", err.strerror or str(err), where=str(path), hint=hint) from None
    return len(data)
