"""Where things are said: stdout is the answer, stderr is talk, colour only for a terminal that wants it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, TextIO

from archonctl.errors import ArchonError

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
    def plain(cls) -> Output:
        """Before the arguments are known."""
        return cls(json="--json" in sys.argv, quiet=False, colour=False, unicode=False, width=80)

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
        """The answer, for people."""
        print(text)

    def value(self, value: dict[str, Any]) -> None:
        """The answer, for tools."""
        text = json.dumps(value, indent=2, ensure_ascii=not self.unicode, allow_nan=False)
        # A file name need not be UTF-8, JSON must be: such a byte goes out as the escape of its surrogate.
        print(_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text))

    def talk(self, text: str) -> None:
        """What a person wants to know on the way; silent with ``--quiet``."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def error(self, err: ArchonError) -> None:
        """One error: a sentence on stderr, and its object on stdout where JSON was asked for."""
        for line in str(err).splitlines():
            print(f"archonctl: {line}", file=sys.stderr)
        for line in err.tail:
            print(f"  | {line}", file=sys.stderr)
        print(f"  more: archonctl explain {err.code}", file=sys.stderr)
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
