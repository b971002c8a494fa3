"""Where a help text comes from: a file, or an engine's own binary, which is run for nothing but its lists."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from archonctl.engines.knobs.snapshot import Snapshot, as_line
from archonctl.errors import HostRefusal, UsageError

_MOST_BYTES = 8_000_000
_SECONDS = 120
"""An engine that imports its whole framework for a help text takes up to half a minute."""


def of_file(name: str) -> str:
    """The text of a file, or of stdin for ``-``; raises UsageError ``help-unreadable``."""
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or str(err)
        raise UsageError("help-unreadable", f"cannot be read: {reason}", where=name) from None
    if len(raw) > _MOST_BYTES:
        raise UsageError("help-unreadable", f"more than {_MOST_BYTES:,} bytes: no help text", where=name)
    return raw.decode("utf-8", "replace")


def of_binary(path: str) -> tuple[str, str]:
    """The help text and the version of an engine's binary (empty where it does not say).

    Raises HostRefusal ``engine-binary-missing`` and ``engine-binary-unusable``.
    """
    vllm = Path(path).name.startswith("vllm")
    text = _said(path, ["serve", "--help=all"] if vllm else ["--help"])
    version = _said(path, ["--version"])
    found = re.search(r"build (\d+)|version: (\d+) \(|^v?(\d+\.\d+[\w.]*)(?:\+[\w.]+)?\s*$", version, re.MULTILINE)
    number = next((group for group in found.groups() if group), "") if found else ""
    return text, f"b{number}" if number.isdigit() and number != "0" else "" if number == "0" else number


def _said(path: str, words: list[str]) -> str:
    import subprocess

    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            [path, *words],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise HostRefusal(
            "engine-binary-missing", f"{path[:200]!r} is not there", hint="name the engine's binary"
        ) from None
    except (OSError, ValueError, subprocess.TimeoutExpired) as err:
        message = f"{path[:200]!r} {' '.join(words)}: {getattr(err, 'strerror', None) or err}"
        raise HostRefusal("engine-binary-unusable", message) from None
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def write_snapshot(snapshot: Snapshot, name: str) -> None:
    """One line of JSON; raises UsageError ``help-unreadable`` where the file cannot be written."""
    try:
        Path(name).write_text(as_line(snapshot) + "\n", encoding="utf-8")
    except OSError as err:
        raise UsageError("answer-not-written", f"cannot be written: {err.strerror or err}", where=name) from None
