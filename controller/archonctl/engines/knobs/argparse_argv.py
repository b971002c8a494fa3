"""Python's argparse as vLLM and SGLang use it, over a knob table: which word is an option, what it takes with it.

Follows ``ArgumentParser._parse_optional`` and ``consume_optional`` of CPython's Lib/argparse.py: unique beginnings of
an option are taken for it, ``--flag=value`` is one, negative numbers and words with blanks are values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.engines.knobs.plain_argv import DASHES, glued
from archonctl.engines.knobs.reading import Misread
from archonctl.engines.knobs.table import Found
from archonctl.engines.knobs.verdict import ArgvFinding, Judge

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Word:
    """One word as argparse gets it. ``index`` is its place in argv, ``whole`` False for a part of that word."""

    text: str
    index: int
    dotted: bool = False


@dataclass(frozen=True, slots=True)
class _Option:
    """What a word that looks like an option is."""

    name: str
    found: Found | None
    explicit: str | None = None
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Positional:
    """The positional argument of a parser: there is none, or one; ``required`` if argparse insists on it."""

    present: bool
    required: bool = False


class ArgparseWalk:
    """Judges words in order, as ``parse_known_args`` consumes them."""

    def __init__(self, judge: Judge, words: Sequence[Word], misread: Misread, positional: Positional) -> None:
        self.judge = judge
        self.words = words
        self.misread = misread
        self.slot = positional.present
        self.model: Word | None = None
        self.swallowed = ""
        self.options = list(map(self._classify, words))
        self._end_of_options()

    def _end_of_options(self) -> None:
        """After ``--`` everything is a value."""
        for at, word in enumerate(self.words):
            if word.text == "--":
                self.options[at:] = [None] * (len(self.words) - at)
                return

    def _classify(self, word: Word) -> _Option | None:
        """The option that a word is, or None for a value (``_parse_optional``)."""
        text, known = word.text, self.judge.edition.options
        if not text.startswith("-") or text == "-" or self.judge.is_open(word.index):
            return None
        head, equals, value = text.partition("=")
        if text in known:
            return _Option(text, known[text])
        if equals and head in known:
            return _Option(head, known[head], value)
        if option := self._begun(text):
            return option
        plain = _NEGATIVE.fullmatch(text) or " " in text
        return None if plain else _Option(head if equals else text, None, value if equals else None)

    def _begun(self, text: str) -> _Option | None:
        """An option that is written as a unique beginning, or a short one with its value (``_get_option_tuples``)."""
        known = self.judge.edition.options
        head, equals, value = text.partition("=")
        if text.startswith("--"):
            near = [name for name in known if name.startswith(head)]
            explicit = value if equals else None
        else:
            if text[:2] in known:
                return _Option(text[:2], known[text[:2]], text[2:])
            near = [name for name in known if name.startswith(text)]
            explicit = None
        if not near:
            return None
        if len(near) > 1:
            return _Option(head, None, explicit, tuple(near))
        return _Option(near[0], known[near[0]], explicit)

    def run(self) -> None:
        """Judge all words."""
        at, bare = 0, ("", -1)
        while at < len(self.words):
            option = self.options[at]
            if option is None:
                self._value(self.words[at], bare)
                at, bare = at + 1, ("", -1)
                continue
            found = option.found
            if found is None or found.knob.refused:
                at += self._no_option(at, option)
                bare = ("", -1)
                continue
            at = self._option(at, option, found)
            bare = (option.name, at) if found.knob.takes == 0 and option.explicit is None else ("", -1)

    def _value(self, word: Word, bare: tuple[str, int]) -> None:
        """A word that no option takes."""
        judge = self.judge
        if judge.is_open(word.index) or word.text == "--":
            self.slot = self.slot and judge.open_words.get(word.index) == "words"
            return
        if glued(judge, word.index):
            return
        name = bare[0]
        if name and _like_bool(word.text):
            judge.takes_no_value(word.index, name, judge.edition.options[name], word.text)
        elif self.slot and not word.text.startswith(DASHES):
            self.slot, self.model = False, word
        elif name:
            judge.takes_no_value(word.index, name, judge.edition.options[name], word.text)
        elif word.text.startswith(DASHES):
            plain = "--" + word.text.lstrip("".join(DASHES) + "-")
            judge.stray(
                word.index, f"{word.text[:60]!r} begins with a character that only looks like a dash", f"write {plain}"
            )
        else:
            why = f" ({self.model.text[:60]!r} is taken for the model)" if self.model else ""
            message = f"{word.text[:80]!r} belongs to no option{why}"
            judge.stray(word.index, message)

    def _no_option(self, at: int, option: _Option) -> int:
        """A word that looks like an option and is none; how many words it spoils."""
        word, judge = self.words[at], self.judge
        if option.rivals:
            rivals = ", ".join(option.rivals[:6])
            message = f"{judge.retired(option.name)}{option.name} is short for several options: {rivals}"
            finding = ArgvFinding("knob-abbreviated", "error", message, "write one of them out", word.index)
            judge.add(finding, certain=judge.read)
            return 1 + self._spoilt(at, 1 if option.explicit is None else 0)
        if glued(judge, word.index):
            return 1
        judge.unknown_option(word.index, option.name)
        rows = judge.edition.table.by_option.get(option.name, ())
        takes = rows[-1].takes if rows else 1
        wanted = 0 if option.explicit is not None else takes if isinstance(takes, int) else len(self.words)
        return 1 + self._spoilt(at, wanted)

    def _spoilt(self, at: int, wanted: int) -> int:
        """Values that an option would take, so that they are not told of as strays."""
        count = 0
        while count < wanted and at + count + 1 < len(self.words) and self.options[at + count + 1] is None:
            count += 1
        return count

    def _option(self, at: int, option: _Option, found: Found) -> int:
        """An option that is known: judge it with its values, and say where the next word is."""
        word, judge = self.words[at], self.judge
        written = word.text.partition("=")[0]
        if option.name != written and not (len(option.name) == 2 and word.text.startswith(option.name)):
            self._abbreviated(word, written, option.name)
        if not word.dotted or found.knob.flag not in judge.seen:
            judge.use(word.index, option.name, found)
        takes = found.knob.takes
        if option.explicit is not None:
            self._explicit(word, option, found)
            return at + 1
        values = self._follow(at, takes)
        if (isinstance(takes, int) and len(values) < takes) or (takes == "+" and not values):
            judge.lacks_value(word.index, option.name, found.knob)
        for value in values:
            self._judge_value(value, option.name, found)
        if takes in ("+", "*") and len(values) > 1:
            self.swallowed = option.name
        return at + 1 + len(values)

    def _abbreviated(self, word: Word, written: str, name: str) -> None:
        """A unique beginning of an option: fine for now, but not where it was an option of its own that went away."""
        gone = self.judge.retired(written)
        if gone and not self.judge.replaced(written, name):
            message = f"{gone}It is taken for the beginning of {name} now, which is another option"
            finding = ArgvFinding("knob-retired", "error", message, f"take it out, or write {name}", word.index)
            self.judge.add(finding, certain=self.judge.read)
            return
        message = f"{written} is short for {name}, until a version has another such option"
        self.judge.add(ArgvFinding("knob-abbreviated", "note", message, f"write {name}", word.index))

    def _follow(self, at: int, takes: int | str) -> list[Word]:
        """The values after an option that its ``nargs`` takes."""
        most = takes if isinstance(takes, int) else 1 if takes == "?" else len(self.words)
        values = list[Word]()
        for index in range(at + 1, len(self.words)):
            if len(values) == most or self.options[index] is not None or self.words[index].text == "--":
                break
            values.append(self.words[index])
        return values

    def _explicit(self, word: Word, option: _Option, found: Found) -> None:
        value = option.explicit or ""
        if found.knob.takes == 0:
            self.judge.takes_no_value(word.index, option.name, found, value)
        elif isinstance(found.knob.takes, int) and found.knob.takes > 1:
            self.judge.lacks_value(word.index, option.name, found.knob)
        elif not self.judge.is_open(word.index):
            self._judge_text(word, option.name, found, value)

    def _judge_value(self, value: Word, name: str, found: Found) -> None:
        if self.judge.is_open(value.index) or glued(self.judge, value.index):
            return
        self._judge_text(value, name, found, value.text)

    def _judge_text(self, word: Word, name: str, found: Found, text: str) -> None:
        if reason := self.misread(found.knob, text):
            self.judge.bad_value(word.index, name, found, text, reason)


def _like_bool(text: str) -> bool:
    return text.lower() in ("true", "false", "1", "0", "on", "off", "yes", "no")
