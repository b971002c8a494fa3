"""The journal as lines to classify: of installed endpoints, of systemd about them, and of the kernel."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.observe.failures import Line

_FIELDS = "MESSAGE,UNIT,INVOCATION_ID,_PID,_SYSTEMD_UNIT,_SYSTEMD_INVOCATION_ID,_TRANSPORT,__REALTIME_TIMESTAMP"
_LINE_CHARS = 8192
_JOURNALS = (Path("/var/log/journal"), Path("/run/log/journal"))
_PREFIX, _SUFFIX = "archon@", ".service"


def command(since: str, *, follow: bool) -> list[str]:
    """journalctl for what may tell of memory. ``since`` as journalctl takes it ("-7d", "now")."""
    words = ["journalctl", "--quiet", "--no-pager", "--all", "--output=json", f"--output-fields={_FIELDS}"]
    words += ["--follow"] if follow else []
    words += [f"--since={since}"]
    # the engines' own lines; what systemd says about units; the kernel
    return [*words, "_SYSTEMD_SLICE=system-archon.slice", "+", "_PID=1", "+", "_TRANSPORT=kernel"]


def parse(raw: bytes, engines: Mapping[str, str]) -> Line | None:
    """One entry of ``--output=json``; None for one that concerns no endpoint, or is damaged.

    ``engines``: the kind of each endpoint's engine by its name.
    """
    try:
        entry = json.loads(raw)
        text = _text(entry["MESSAGE"])
        at = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if entry.get("_TRANSPORT") == "kernel":
        return Line(at, "kernel", text)
    if entry.get("_PID") == "1":
        name = _name(entry.get("UNIT"))
        return Line(at, "systemd", text, name, engines.get(name, ""), _word(entry, "INVOCATION_ID")) if name else None
    name = _name(entry.get("_SYSTEMD_UNIT"))
    start = _word(entry, "_SYSTEMD_INVOCATION_ID")
    return Line(at, "engine", text, name, engines.get(name, ""), start) if name else None


def _word(entry: Mapping[str, object], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _text(message: object) -> str:
    """journald gives bytes that are no text as a list of numbers."""
    if isinstance(message, list):
        return bytes(message).decode("utf-8", "replace")[:_LINE_CHARS]
    if not isinstance(message, str):
        raise TypeError("a message is text or bytes")
    return message[:_LINE_CHARS]


def _name(unit: object) -> str:
    """``a`` for ``archon@a.service``; empty for any other unit."""
    if not isinstance(unit, str) or not (unit.startswith(_PREFIX) and unit.endswith(_SUFFIX)):
        return ""
    return unit.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def read(since: str, engines: Mapping[str, str]) -> Iterator[Line]:
    """What was written since then. Raises HostRefusal ``journal-unreadable``: also where there is no journal at all."""
    if not any(place.is_dir() for place in _JOURNALS):
        why = "no journal is kept on this machine: nothing shows whether memory ran out"
        raise HostRefusal("journal-unreadable", why, hint="systemctl status systemd-journald")
    with _running(command(since, follow=False)) as journal:
        yield from _lines(journal, lambda: engines)
        said = journal.stderr.read(2000).decode("utf-8", "replace") if journal.stderr else ""
        if journal.wait() != 0:
            why = " ".join(said.split()) or f"journalctl ended with {journal.returncode}"
            raise HostRefusal(
                "journal-unreadable", why, hint="--since as journalctl takes it: -7d, yesterday, 2026-01-31"
            )


def follow(
    engines: Callable[[], Mapping[str, str]], begun: Callable[[subprocess.Popen[bytes]], None], since: str = "now"
) -> Iterator[Line]:
    """What is written since then, until ``begun``'s process is ended. Raises HostRefusal ``journal-unreadable``."""
    with _running(command(since, follow=True)) as journal:
        begun(journal)
        yield from _lines(journal, engines)


def _lines(journal: subprocess.Popen[bytes], engines: Callable[[], Mapping[str, str]]) -> Iterator[Line]:
    assert journal.stdout is not None
    for raw in journal.stdout:
        if (line := parse(raw, engines())) is not None:
            yield line


@contextlib.contextmanager
def _running(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        journal = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as err:
        raise HostRefusal("journal-unreadable", f"journalctl: {err.strerror or err}") from None
    try:
        yield journal
    finally:
        journal.terminate()
        for pipe in (journal.stdout, journal.stderr):
            if pipe is not None:
                pipe.close()
        journal.wait()
