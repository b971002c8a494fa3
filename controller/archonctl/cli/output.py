"""Where things are said: stdout is the answer, stderr is talk, colour only for a terminal that wants it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO

from archonctl.cli.harmless import harmless
from archonctl.errors import ArchonError, HostRefusal

_SGR = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}

_SURROGATE = re.compile("[\ud800-\udfff]")


class AnswerLostError(HostRefusal):
    """The answer did not reach stdout (a full disk, say), so no verdict may be read from the exit code."""


@contextmanager
def written() -> Iterator[None]:
    """A failed write to stdout as ``answer-not-written``; a reader that went away stays a BrokenPipeError."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as err:
        raise AnswerLostError(
            "answer-not-written",
            f"stdout takes no more: {err.strerror or err}",
            hint="the answer is not complete; free the disk or write it elsewhere, and ask again",
        ) from err


def say(text: str) -> None:
    """One line on stderr."""
    # Where stderr itself cannot be written there is nowhere left to say so, and the answer is what counts.
    with suppress(OSError):
        print(harmless(text), file=sys.stderr, flush=True)


def wants_colour(stream: TextIO, choice: str) -> bool:
    """``always`` and ``never`` decide; ``auto`` asks NO_COLOR, TERM and the stream."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@dataclass(frozen=True)
class Output:
    """How this run speaks."""

    json: bool
    quiet: bool
    colour: bool
    unicode: bool
    width: int

    @classmethod
    def plain(cls, *, json: bool) -> Output:
        """Before the arguments are known."""
        return cls(json=json, quiet=False, colour=False, unicode=False, width=80)

    @classmethod
    def of(cls, args: Namespace) -> Output:
        """As the arguments and the terminal ask."""
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
        return cls(
            json=getattr(args, "json", False),
            quiet=getattr(args, "quiet", False),
            colour=wants_colour(sys.stdout, getattr(args, "color", "auto")),
            unicode=encoding.startswith("utf"),
            width=max(60, min(shutil.get_terminal_size((100, 24)).columns, 120)),
        )

    def paint(self, text: str, *styles: str) -> str:
        """The text in a style, where colour is on."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_SGR[s] for s in styles)}m{text}\x1b[0m"

    def answer(self, text: str) -> None:
        """The answer, for people; raises AnswerLostError."""
        with written():
            print(harmless(text))

    def value(self, value: dict[str, Any]) -> None:
        """The answer, for tools; raises AnswerLostError."""
        text = json.dumps(value, indent=2, ensure_ascii=not self.unicode, allow_nan=False)
        # A file name need not be UTF-8, JSON must be: such a byte goes out as the escape of its surrogate.
        with written():
            print(_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)

    def talk(self, text: str) -> None:
        """What a person wants to know on the way; silent with ``--quiet``."""
        if not self.quiet:
            say(text)

    def error(self, err: ArchonError) -> None:
        """One error: a sentence on stderr, and its object on stdout where JSON was asked for."""
        for line in str(err).splitlines():
            say(f"archonctl: {line}")
        for line in err.tail:
            say(f"  | {line}")
        say(f"  more: archonctl explain {err.code}")
        if self.json:
            self.value(error_json(err))


def error_json(err: ArchonError) -> dict[str, Any]:
    """An error under its published schema, ``docs/schemas/error-1.json``; ``also`` has the others of the same file."""
    also = getattr(err, "problems", ())[1:]
    return {
        "schema": "archonctl.error/1",
        "exit_code": err.exit_code,
        "error": _said(err),
        "also": [_said(problem) for problem in also],
    }


def _said(err: ArchonError) -> dict[str, str | None]:
    return {name: value or None for name, value in err.as_dict().items()}
