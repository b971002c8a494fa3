"""From the options of a source to the rows of a snapshot: the help text is read as ``--help`` is, then what the
handlers do is laid over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from archonctl.engines.knobs.row import KnobType
from archonctl.engines.knobs.snapshot import Seen
from archonctl.engines.llamacpp.harvest import parse_help
from llamacpp_source.cpp import Tokens, closing, split
from llamacpp_source.options import Option, read_options
from llamacpp_source.values import UNKNOWN_TEXT, Expression, World, text_of

_TYPES: dict[str, KnobType] = {"void": "bool", "bool": "switch", "int": "int", "pair": "pair"}
_WHOLE = frozenset({"stoi", "stol", "stoll", "stoul", "stoull", "strtol"})
_BROKEN = frozenset({"stof", "stod", "strtof"})
_PARTS = frozenset(
    {"string_split", "parse_csv_row", "istringstream", "sregex_token_iterator", "stringstream", "find", "getline"}
)
"""What takes a value apart: then a number inside is not the whole value."""


def seen_in(files: Mapping[str, str]) -> tuple[Seen, ...]:
    """Every flag of llama-server in one source tree, ``files`` by path. Raises ValueError for an unknown layout."""
    options, world = read_options(files)
    listed = parse_help("\n".join(_as_help(option) for option in options))
    if len(listed) != len(options):
        raise ValueError(f"{len(options)} options became {len(listed)}")
    return tuple(_overlaid(option, seen, world) for option, seen in zip(options, listed, strict=True))


def _as_help(option: Option) -> str:
    """The option as ``common_arg::to_string`` prints it, without wrapped lines."""
    head = f"{', '.join((*option.names, *option.negatives))} {option.hint}".rstrip()
    text = option.help.strip("\n").replace(UNKNOWN_TEXT, "...")
    return "\n".join([head, *(" " * 40 + line for line in text.split("\n"))])


def _overlaid(option: Option, seen: Seen, world: World) -> Seen:
    if option.handler.kind == "void" and option.hint:
        raise ValueError(f"{option.names[0]} takes nothing but has the hint {option.hint}")
    low, high = _bounds(option, world)
    words = _compared(option, world)
    kind = _type(option, seen)
    number = kind in ("int", "float")
    closed = len(words) > 1 and _refuses(option.handler.body) and not _mentions(option.handler.body, _PARTS)
    choices = () if number else seen.choices or (tuple(words) if closed else ())
    synonyms = tuple(word for word in words if word not in choices) if closed or number else ()
    known = "" if UNKNOWN_TEXT in option.help and "..." in str(seen.default) else seen.default
    return replace(
        seen,
        names=option.names,
        negatives=option.negatives,
        type=kind,
        choices=choices or None,
        words=tuple(word for word in synonyms if not (number and _is_number(word))),
        min=low,
        max=high,
        default=known,
        env=option.env or None,
        hint=option.hint.replace(UNKNOWN_TEXT, "...") or None,
        help=option.help.replace(UNKNOWN_TEXT, "..."),
        deprecated=_deprecated(option),
        refused=_refused(option.handler.body) or None,
    )


def _type(option: Option, seen: Seen) -> KnobType:
    if (plain := _TYPES.get(option.handler.kind)) is not None:
        return plain
    body = option.handler.body
    if _mentions(body, _PARTS):
        return "list" if seen.type == "list" else "str"
    if _mentions(body, _BROKEN):
        return "float"
    if _mentions(body, _WHOLE):
        return "int"
    return "str" if seen.type in ("int", "float", "pair") else seen.type


def _mentions(body: Tokens, words: frozenset[str]) -> bool:
    return any(token.kind == "id" and token.text in words for token in body)


def _refuses(body: Tokens) -> bool:
    return any(token.is_id("throw") for token in body)


def _compared(option: Option, world: World) -> list[str]:
    """The texts that a handler compares its value with, as they come."""
    name, body, found = option.handler.parameter, option.handler.body, list[str]()
    if not name:
        return []
    for at in range(len(body) - 2):
        if body[at].is_id(name) and body[at + 1].is_op("==") and body[at + 2].kind == "str":
            found.append(body[at + 2].text)
        elif body[at].kind == "id" and body[at + 1].is_op("(") and body[at + 2].is_id(name):
            found += world.lists.get(body[at].text, [])
            if body[at].text == "kv_cache_type_from_str":
                found += text_of(world.variables["get_all_kv_cache_types()"]).split(", ")
    return [word for word in dict.fromkeys(found) if word]


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-?\d+", word) is not None


def _bounds(option: Option, world: World) -> tuple[int | float | None, int | float | None]:
    """What ``if (value < a || value > b) { throw ...`` allows."""
    name, body = option.handler.parameter, option.handler.body
    low: int | float | None = None
    high: int | float | None = None
    for at in range(len(body) - 3):
        if not (body[at].is_id("if") and body[at + 1].is_op("(")):
            continue
        end = closing(body, at + 1)
        thrown = body[end + 1 : end + 3]
        if not any(token.is_id("throw") for token in thrown):
            continue
        for part in _alternatives(body[at + 2 : end]):
            if len(part) >= 3 and part[0].is_id(name) and part[1].text in ("<", "<=", ">", ">="):
                value = Expression(world, part[2:]).value()
                limit = world.enumerators.get(getattr(value, "text", ""), value)
                if isinstance(limit, int) and not isinstance(limit, bool):
                    low = {"<": limit, "<=": limit + 1}.get(part[1].text, low)
                    high = {">": limit, ">=": limit - 1}.get(part[1].text, high)
    return low, high


def _alternatives(code: Tokens) -> list[Tokens]:
    """The sides of ``||``."""
    found, start = list[Tokens](), 0
    for at, token in enumerate(code):
        if token.is_op("||"):
            found.append(code[start:at])
            start = at + 1
    return [*found, code[start:]]


def _refused(body: Tokens) -> str:
    """What a handler says that does nothing but refuse."""
    first = next(iter(split(body, ";")), [])
    if len(first) > 2 and first[0].is_id("arg_removed"):
        return f"the argument has been removed. {first[2].text}"
    if first and first[0].is_id("throw"):
        return next((token.text for token in first if token.kind == "str"), "it is refused")
    return ""


def _deprecated(option: Option) -> str:
    """How the help or the handler's first statement says that a flag is on its way out."""
    said = re.search(r"[^\n.]*\bdeprecated\b[^\n]*", option.help, re.IGNORECASE)
    if said:
        return said[0].strip()
    first = next(iter(split(option.handler.body, ";")), [])
    text = " ".join(token.text for token in first if token.kind == "str")
    return re.sub(r"\s+", " ", text).strip() if "deprecated" in text.lower() and first[0].text.startswith("LOG") else ""
