"""Read llama-server's ``--help`` as the flags that it lists.

The layout is that of ``common_arg::to_string`` in common/arg.cpp of llama.cpp b11434: spellings and value hint
from column 0, text from column 40, on the next line where the first part is too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from archonctl.engines.knobs.row import KnobType, first_long
from archonctl.engines.knobs.snapshot import Seen

_TEXT_COLUMN = 40
_NAMES = re.compile(r"(-{1,2}[A-Za-z][\w.-]*)((?:,\s+-{1,2}[A-Za-z][\w.-]*)*)(?:\s+(.*))?$")
_ENV = re.compile(r"\(env: (\w+)\)")
_ALLOWED = re.compile(r"allowed values: ([\w., ]+?)(?= \(|$)")
_BULLET = re.compile(r"^\s*- ([\w+-]+):", re.MULTILINE)
_WORDS_BESIDE_NUMBER = re.compile(r"an exact number, '(\w+)', or '(\w+)'")
_LISTS = re.compile(r"comma-separated|,\.\.\.|,\.\.>")

_NUMBER_HINTS = frozenset({"N", "P", "L", "SEED", "SECONDS", "INDEX", "SIMILARITY", "PORT"})

FLOATS = frozenset({"rope-scale", "rope-freq-base", "rope-freq-scale", "defrag-thold"})
"""Numbers whose help text shows no decimals; common/arg.cpp reads them with std::stof (or ignores them)."""
TEXTS = frozenset({"reverse-prompt", "logit-bias"})
"""Text although the hint or the help could be taken for something else."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One option of the help text before it is understood."""

    head: str
    text: str


def entries(help_text: str) -> Iterator[Entry]:
    """Split a help text into its options."""
    head, lines = "", list[str]()
    for line in help_text.splitlines():
        if line.startswith("-") and not line.startswith("-----"):
            if head:
                yield Entry(head, "\n".join(lines))
            head, rest = _split_head(line)
            lines = [rest] if rest else []
        elif head and (line.startswith(" " * _TEXT_COLUMN) or not line.strip()):
            lines.append(line[_TEXT_COLUMN:])
        elif head:
            yield Entry(head, "\n".join(lines))
            head, lines = "", []
    if head:
        yield Entry(head, "\n".join(lines))


def _split_head(line: str) -> tuple[str, str]:
    """Head and text of an option's first line; the head is alone where it reaches past column 37."""
    if len(line) > _TEXT_COLUMN and line[_TEXT_COLUMN - 3 : _TEXT_COLUMN] == "   ":
        return line[:_TEXT_COLUMN].rstrip(), line[_TEXT_COLUMN:]
    return line.rstrip(), ""


def parse_help(help_text: str) -> tuple[Seen, ...]:
    """Every option, in the order of the help text.

    Raises ValueError naming the line that cannot be read, and where nothing at all was found.
    """
    knobs = tuple(_knob(entry) for entry in entries(help_text))
    if not knobs:
        raise ValueError("no option found: this is no llama-server help text")
    return knobs


def _knob(entry: Entry) -> Seen:
    found = _NAMES.match(entry.head)
    if found is None:
        raise ValueError(f"no option in {entry.head!r}")
    names = (found[1], *(name.strip() for name in found[2].split(",") if name.strip()))
    hint = (found[3] or "").strip()
    text = re.sub(r"\s+", " ", _ENV.sub("", entry.text)).strip()
    positive, negative = _split_negatives(names)
    env = _ENV.search(entry.text)
    flag = first_long(positive).lstrip("-")
    default = _default(text)
    choices = _choices(hint, entry.text, text)
    if choices and default.isidentifier() and default not in choices and not all(c.isdigit() for c in choices):
        choices += (default,)
    words = _WORDS_BESIDE_NUMBER.search(text)
    refused = re.match(r"the argument has been removed\.?\s*", text)
    return Seen(
        names=positive,
        negatives=negative,
        type=_type(flag, hint, negative, default, choices),
        env=env[1] if env else "",
        choices=choices,
        words=tuple(words.groups()) if words else (),
        default=default,
        hint=hint,
        help=text,
        refused=text[refused.end() :] if refused else None,
    )


def _split_negatives(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Negative spellings follow the positive ones: from the first ``--no-x``, or the short form right before it."""
    for index, name in enumerate(names):
        if name.startswith("--no-") and any(n.startswith("--") for n in names[:index]):
            start = index - 1 if not names[index - 1].startswith("--") else index
            return names[:start], names[start:]
    return names, ()


def _type(flag: str, hint: str, negative: tuple[str, ...], default: str, choices: tuple[str, ...]) -> KnobType:
    if not hint:
        return "switch" if negative else "bool"
    number = default.partition(",")[0].split(" ")[0]
    kind: KnobType = "str"
    if flag in TEXTS:
        kind = "str"
    elif hint.count(" ") == 1 and hint.replace(" ", "").isupper():
        kind = "pair"
    elif _LISTS.search(hint) or (hint.count(",") > 1 and not hint.startswith("{")):
        kind = "list"
    elif hint in _NUMBER_HINTS or re.fullmatch(r"<\d+\.\.\.\d+>", hint):
        kind = "float" if flag in FLOATS or "." in number or hint in ("P", "L") else "int"
    elif choices and all(choice.isdigit() for choice in choices):
        kind = "int"
    return kind


def _choices(hint: str, lines: str, text: str) -> tuple[str, ...]:
    if found := re.fullmatch(r"[\[{<]([\w|,]+)[\]}>]", hint):
        parts = tuple(re.split(r"[|,]", found[1]))
        return parts if len(parts) > 1 and "dev1" not in parts else ()
    if allowed := _ALLOWED.search(text):
        return tuple(word.strip() for word in allowed[1].split(",") if word.strip())
    if hint in ("MODE", "TYPE", "FORMAT"):
        return tuple(_BULLET.findall(lines))
    if hint.startswith("none,"):
        return tuple(hint.split(","))
    return ()


def _default(text: str) -> str:
    """What the help calls the default, as printed: the content of ``(default: ...)`` with brackets balanced."""
    start = text.find("(default: ")
    if start < 0:
        bare = re.search(r"default: ([^\s,)]+)", text) or re.search(r"(\w+) \(default\)", text)
        return bare[1].strip("'") if bare else ""
    depth, begin = 1, start + len("(default: ")
    for index in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return text[begin:index].strip().strip("'\"")
    return text[begin:].strip()
