"""What the readers of this room hand out: words and settings with the place where each was written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["script", "unit", "quadlet", "compose", "process"]

WORD_LIMIT = 1 << 16
"""Characters of one expanded word; a longer one is not expanded (scripts can double a variable in a loop of lines)."""


@dataclass(frozen=True, slots=True)
class Word:
    """One argument as the program would be given it. Line and column count from 1 and point at the text that wrote it
    (the element of an array, say, and not the place where the array is used); 0 where there is no file.

    ``unresolved`` names what of it the file alone does not settle (``$MODEL``, ``$(nproc)``, ``*.gguf``): those parts
    stand in ``text`` as written. ``assumed`` are variables whose default (``${PORT:-8000}``) was taken.
    ``conditional`` means that it is only there in some runs.
    """

    text: str
    line: int = 0
    column: int = 0
    unresolved: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable that the program is given (environment): ``value`` as a word, place of the name included in it.

    ``inherited`` means that only the name is stated (``-e NAME``): the value is the caller's.
    """

    name: str
    value: Word
    inherited: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command line. ``label`` says which it is (``ExecStart``, a compose service, a script's line)."""

    words: tuple[Word, ...]
    env: tuple[Setting, ...] = ()
    label: str = ""
    conditional: bool = False

    @property
    def argv(self) -> tuple[str, ...]:
        """The texts alone."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Unread:
    """Something in a file that was seen and not understood: what stands there, where, and why."""

    text: str
    reason: str
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Script:
    """A shell script: every command that it may run, in order, and what could not be followed."""

    commands: tuple[Command, ...]
    exported: tuple[Setting, ...]
    unread: tuple[Unread, ...]


class Lines:
    """Offsets of a text as line and column, both from 1; ``line`` and ``column`` say where the text itself begins."""

    def __init__(self, text: str, line: int = 1, column: int = 1) -> None:
        self._starts = [0, *(at + 1 for at, char in enumerate(text) if char == "\n")]
        self._line, self._column = line, column

    def at(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        index = bisect_right(self._starts, offset) - 1
        column = offset - self._starts[index] + 1
        return self._line + index, column if index else column + self._column - 1


@dataclass(frozen=True, slots=True)
class Located:
    """Text that was joined from pieces of a file: ``marks`` are (offset, line, column) of each piece, ascending."""

    text: str
    marks: tuple[tuple[int, int, int], ...]

    def at(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset of the joined text."""
        index = bisect_right(self.marks, (offset, 1 << 60, 0)) - 1
        start, line, column = self.marks[max(index, 0)]
        return line, column + offset - start


def unresolved_in(words: Iterable[Word]) -> Sequence[str]:
    """Everything that words leave open, once each, in order."""
    return tuple(dict.fromkeys(name for word in words for name in word.unresolved))
