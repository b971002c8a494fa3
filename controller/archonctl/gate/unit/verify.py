"""``systemd-analyze verify`` on copies of units whose programs need not be installed here."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from archonctl.findings import Finding, Place
from archonctl.gate.source import Source

_EXEC = re.compile(r"^([ \t]*Exec[A-Za-z]+[ \t]*=[ \t]*[-@:+!|]*)([^\s\\]+)", re.MULTILINE)
_SAID = re.compile(r"(?P<path>/[^:\n]*/(?P<number>[0-9]+)/[^/:\n]+):(?:(?P<line>[0-9]+):)? (?P<text>.*)")
_IGNORED = re.compile(
    r"is not executable|Command .* is not executable|not found|Unit .* is masked|EnvironmentFile"
    r"|Failed to create .*|Support for option .* has been"
)
_TIMEOUT_S = 60


def verify_findings(sources: Sequence[Source]) -> list[Finding]:
    """What systemd itself says to these units; one note where it is not installed. Nothing is started."""
    wanted = [source for source in sources if source.path.name.endswith(".service")]
    if not wanted:
        return []
    tool = shutil.which("systemd-analyze")
    if tool is None:
        message = "systemd-analyze is not here, so systemd itself was not asked about the units"
        return [Finding("unit-not-verified", "note", message, Place(wanted[0].shown), "install systemd")]
    with tempfile.TemporaryDirectory(prefix="archonctl-") as folder:
        paths = [_copy(Path(folder) / str(number), source) for number, source in enumerate(wanted)]
        said = _ask(tool, paths)
    if said is None:
        message = "systemd-analyze verify did not answer, so systemd itself was not asked about the units"
        return [Finding("unit-not-verified", "note", message, Place(wanted[0].shown))]
    found = []
    for match in _SAID.finditer(said):
        number = int(match["number"])
        if number < len(wanted) and not _IGNORED.search(match["text"]):
            place = Place(wanted[number].shown, int(match["line"] or 0), 1 if match["line"] else 0)
            found.append(
                Finding("unit-refused", "error", f"systemd says: {match['text'][:200]}", place, "see systemd.exec(5)")
            )
    return found


def _copy(folder: Path, source: Source) -> Path:
    """The unit with ``/bin/true`` in place of each program, line for line."""
    folder.mkdir()
    path = folder / source.path.name
    path.write_text(_EXEC.sub(lambda found: f"{found[1]}/bin/true", source.text), encoding="utf-8")
    return path


def _ask(tool: str, paths: Sequence[Path]) -> str | None:
    words = [tool, "verify", "--man=no", "--recursive-errors=no", *map(str, paths)]
    try:
        done = subprocess.run(words, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
        if b"unrecognized option" in done.stderr:  # before 250
            words.remove("--recursive-errors=no")
            done = subprocess.run(words, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stderr + done.stdout).decode("utf-8", "replace")
