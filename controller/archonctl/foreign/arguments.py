"""An engine's own arguments as flags and values, by the knob table of its version."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.deployment.schema import KnobValue
from archonctl.engines.knobs import Edition, Knob, edition, load_table
from archonctl.errors import UsageError
from archonctl.foreign.words import Unread, Word

_ARGPARSE = ("vllm", "sglang")


@dataclass(frozen=True, slots=True)
class Argument:
    """One flag: its canonical name without dashes, its value (True for a flag that stands alone), and where.

    ``word`` is the word of the value, or of the flag where it takes none. ``known`` is False where no table has it.
    """

    flag: str
    value: KnobValue
    word: Word
    known: bool = True


def flags_of(kind: str, version: str) -> Edition | None:
    """The flags of a version; of the newest where it is not known; None for an engine without a table."""
    try:
        table = load_table(kind)
    except UsageError:
        return None
    try:
        return edition(table, version or table.newest)
    except UsageError:
        return edition(table, table.newest)


def read_arguments(kind: str, words: Sequence[Word], known: Edition | None) -> tuple[list[Argument], list[Unread]]:
    """The arguments in order, and words that belong to none."""
    found: list[Argument] = []
    unread: list[Unread] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not re.match(r"--?[A-Za-z]", word.text):
            unread.append(Unread(word.text[:80], "belongs to no flag", word.line, word.column))
            continue
        name, equals, joined = word.text.partition("=") if kind in _ARGPARSE else (word.text, "", "")
        knob, positive = _find(name, known, prefixes=kind in _ARGPARSE)
        values, at = _values(words, at, knob, joined if equals else None, word)
        if len(values) > 1 and (knob is None or knob.type != "pair"):
            unread.append(
                Unread(word.text[:80], "more than one value, which a knob cannot hold", word.line, word.column)
            )
            continue
        found.append(_argument(name, knob, positive, values, word))
    return found, unread


def _argument(name: str, knob: Knob | None, positive: bool, values: list[Word], word: Word) -> Argument:
    flag = knob.flag if knob else name.lstrip("-").replace("_", "-")
    if not values:
        return Argument(flag, positive, word, knob is not None)
    text = " ".join(value.text for value in values)
    return Argument(flag, typed(text, knob), values[0], knob is not None)


def _find(name: str, known: Edition | None, *, prefixes: bool) -> tuple[Knob | None, bool]:
    if known is None:
        return None, True
    spelling = name.replace("_", "-") if name.startswith("--") else name
    found = known.options.get(name) or known.options.get(spelling)
    if found is None and prefixes and spelling.startswith("--"):
        near = {entry.knob.flag: entry for option, entry in known.options.items() if option.startswith(spelling)}
        found = next(iter(near.values())) if len(near) == 1 else None
    return (found.knob, found.positive) if found else (None, True)


def _values(
    words: Sequence[Word], at: int, knob: Knob | None, joined: str | None, word: Word
) -> tuple[list[Word], int]:
    """The values of a flag, and the index after them."""
    if joined is not None:
        text = Word(joined, word.line, word.column, word.unresolved, word.assumed, word.conditional)
        return [text], at
    takes = knob.takes if knob else "?"
    if isinstance(takes, int):
        return list(words[at : at + takes]), min(at + takes, len(words))
    end = at
    while end < len(words) and not re.match(r"--?[A-Za-z]", words[end].text) and (takes != "?" or end == at):
        end += 1
    return list(words[at:end]), end


def typed(text: str, knob: Knob | None) -> KnobValue:
    """A value as TOML would hold it: a number where the flag takes one, else text."""
    if knob is not None and knob.type in ("str", "path", "list", "json", "pair"):
        return text
    if re.fullmatch(r"[+-]?(0|[1-9][0-9]{0,17})", text):
        return int(text)
    if re.fullmatch(r"[+-]?(0|[1-9][0-9]*)\.[0-9]+", text):
        return float(text)
    return {"true": True, "false": False}.get(text.lower(), text) if knob is None else text
