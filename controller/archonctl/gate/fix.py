"""The safe edits of a report: shown as a unified diff, written only when asked."""

from __future__ import annotations

import difflib
import os
import stat
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.findings import Edit, Finding


@dataclass(frozen=True, slots=True)
class Fixed:
    """One file before and after; ``left`` counts edits that did not fit any more (run it again)."""

    path: str
    before: str
    after: str
    left: int = 0

    @property
    def diff(self) -> str:
        """A unified diff that ``patch -p0`` takes."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), self.path, self.path
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def fixes(findings: Iterable[Finding]) -> tuple[Fixed, ...]:
    """Every file that an edit changes. Reads the files; a line that is not what it was is left alone."""
    by_file: dict[str, list[Edit]] = defaultdict(list)
    for finding in findings:
        if finding.edit is not None and finding.edit not in by_file[finding.edit.path]:
            by_file[finding.edit.path].append(finding.edit)
    return tuple(found for path, edits in by_file.items() if (found := _fixed(path, edits)) is not None)


def _fixed(path: str, edits: list[Edit]) -> Fixed | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:  # noqa: PTH123  line ends stay as they are
            before = file.read()
    except (OSError, UnicodeDecodeError):
        return None
    lines = before.split("\n")
    by_line: dict[int, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_line[edit.line].append(edit)
    left, removed = 0, set[int]()
    for number, mine in by_line.items():
        text = lines[number - 1] if 0 < number <= len(lines) else ""
        fitting = [edit for edit in mine if edit.old in (text, text.removesuffix("\r"))]
        left += len(mine) - len(fitting)
        if any(edit.new is None for edit in fitting):
            removed.add(number)
        elif fitting:
            merged, over = _merged(text, fitting)
            lines[number - 1] = merged
            left += over
    after = "\n".join(line for number, line in enumerate(lines, 1) if number not in removed)
    return Fixed(path, before, after, left) if after != before else None


def _merged(text: str, edits: list[Edit]) -> tuple[str, int]:
    """Several changes of one line, from right to left; how many overlap and wait for another run."""
    spans = sorted({_span(edit.old, edit.new or "") for edit in edits}, reverse=True)
    edge, left = len(text) + 1, 0
    for start, end, new in spans:
        if end > edge:
            left += 1
            continue
        text, edge = text[:start] + new + text[end:], start
    return text, left


def _span(old: str, new: str) -> tuple[int, int, str]:
    """The part of a line that an edit changes."""
    start = _common(old, new)
    tail = _common(old[start:][::-1], new[start:][::-1])
    return start, len(old) - tail, new[start : len(new) - tail]


def _common(first: str, second: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def write(fixed: Fixed) -> None:
    """Put the new text in place in one step, with the mode and owner that the file had.

    Raises HostRefusal ``fix-not-written`` where that cannot be done, or the file changed meanwhile.
    """
    path = Path(os.path.realpath(fixed.path))
    temporary = path.with_name(f".{path.name}.archonctl-{os.getpid()}")
    try:
        info = path.stat()
        if path.read_bytes() != fixed.before.encode("utf-8"):
            raise OSError(0, "the file changed since it was judged")
        temporary.write_bytes(fixed.after.encode("utf-8"))
        os.chmod(temporary, stat.S_IMODE(info.st_mode))  # noqa: PTH101
        if (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
            os.chown(temporary, info.st_uid, info.st_gid)
        temporary.replace(path)
    except OSError as err:
        temporary.unlink(missing_ok=True)
        raise HostRefusal("fix-not-written", err.strerror or str(err), where=fixed.path) from None
