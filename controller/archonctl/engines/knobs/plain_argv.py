"""Parsers that walk argv by hand: llama-server (common/arg.cpp) and radiance (core/config.cpp).

Both take ``--flag value`` only, never ``--flag=value``, end at the first word that is no flag, and let the last one
of two win. llama-server reads underscores in a long flag as dashes.
"""

from __future__ import annotations

import shlex

from archonctl.engines.knobs.reading import Misread
from archonctl.engines.knobs.table import Found
from archonctl.engines.knobs.verdict import ArgvFinding, Judge

DASHES = ("\u2010", "\u2011", "\u2012", "\u2013", "\u2014", "\u2212")
"""What text processors make of a dash."""


def walk(judge: Judge, misread: Misread, *, underscores: bool) -> None:
    """Judge every word of ``judge.argv``."""
    index, bare = 0, ""
    while index < len(judge.argv):
        name = spelling(judge.argv[index], underscores=underscores)
        found = judge.edition.options.get(name)
        if found is None or found.knob.refused:
            index += _unknown(judge, index, name, bare)
            bare = ""
            continue
        judge.use(index, name, found)
        taken = _values(judge, index, name, found, misread)
        bare = name if found.knob.takes == 0 else ""
        index += 1 + taken


def spelling(word: str, *, underscores: bool) -> str:
    """A word as the parser compares it."""
    return word.replace("_", "-") if underscores and word.startswith("--") else word


def _values(judge: Judge, index: int, name: str, found: Found, misread: Misread) -> int:
    """How many words an option takes with it; its values are judged."""
    takes = found.knob.takes
    wanted = takes if isinstance(takes, int) else 1
    for offset in range(1, wanted + 1):
        at = index + offset
        if at >= len(judge.argv):
            if not any(kind == "words" for kind in judge.open_words.values()):
                judge.lacks_value(index, name, found.knob)
            return wanted
        value = judge.argv[at]
        if judge.is_open(at):
            continue
        if value in judge.edition.options and value not in (*found.knob.choices, *found.knob.words):
            judge.lacks_value(index, name, found.knob)
            return offset - 1
        if reason := "" if wanted > 1 else misread(found.knob, value):
            judge.bad_value(at, name, found, value, reason)
    return wanted


def _unknown(judge: Judge, index: int, name: str, bare: str) -> int:
    """Say what is wrong with a word that is no option; the number of words that it spoils."""
    word = judge.argv[index]
    if judge.is_open(index):
        return 1
    if glued(judge, index):
        return 1
    head, equals, value = name.partition("=")
    if equals and head in judge.edition.options:
        written = word.partition("=")[0]
        message = f"{judge.engine} takes {written} and its value as two words, not {word[:80]!r}"
        replacement = (written, value)
        finding = ArgvFinding("knob-form", "error", message, f"write {written} {value}", index, replacement=replacement)
        judge.add(finding)
        return 1
    if not word.startswith("-"):
        _stray(judge, index, bare)
        return 1
    judge.unknown_option(index, head if equals else name, span=1)
    return 1 + _spoilt(judge, index, head if equals else name, equals)


def _spoilt(judge: Judge, index: int, name: str, equals: str) -> int:
    """How many values an option that is not known takes with it: as its older form did, else one that is no flag."""
    rows = judge.edition.table.by_option.get(name, ())
    takes = rows[-1].takes if rows else 1
    wanted = 0 if equals else takes if isinstance(takes, int) else 1
    count = 0
    while count < wanted and index + count + 1 < len(judge.argv):
        after = judge.argv[index + count + 1]
        if after.startswith("-") and not after[1:2].isdigit():
            break
        count += 1
    return count


def _stray(judge: Judge, index: int, bare: str) -> None:
    word = judge.argv[index]
    if word.startswith(DASHES):
        plain = "--" + word.lstrip("".join(DASHES) + "-")
        message = f"{word[:60]!r} begins with a character that only looks like a dash"
        replacement = (plain,) if plain in judge.edition.options else None
        finding = ArgvFinding("argument-stray", "error", message, f"write {plain}", index, replacement=replacement)
        judge.add(finding)
    elif bare:
        judge.takes_no_value(index, bare, judge.edition.options[bare], word)
    else:
        judge.stray(index, f"{word[:80]!r} belongs to no flag, and {judge.engine} takes no other arguments")


def glued(judge: Judge, index: int) -> bool:
    """True, and said, where one word holds an option and its value, or the quotes of a shell."""
    word = judge.argv[index]
    bare = word.strip("'\" \t\n\\")
    if not (bare.startswith("-") and (bare != word or any(c.isspace() for c in bare))):
        return False
    try:
        parts = tuple(shlex.split(bare))
    except ValueError:
        parts = tuple(bare.split())
    head = parts[0].partition("=")[0].replace("_", "-") if parts else ""
    if head not in judge.edition.options and head not in judge.edition.table.by_option:
        return False
    what = f"{len(parts)} arguments in one word" if len(parts) > 1 else "an argument with its quotes or blanks"
    message = f"{word[:80]!r} is {what}: {judge.engine} takes it for one argument that it does not know"
    fix = f"write {' '.join(parts)} as {len(parts)} words" if len(parts) > 1 else f"write {parts[0]}"
    judge.add(ArgvFinding("knob-glued", "error", message, fix, index, replacement=parts))
    return True
