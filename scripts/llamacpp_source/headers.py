"""What headers and sources of llama.cpp say that help texts use: structs, constants, enumerators, words for them."""

from __future__ import annotations

import re
from collections.abc import Callable

from llamacpp_source.cpp import Tokens, closing, split
from llamacpp_source.values import Expression, World

_CONSTANT = re.compile(
    r"^\s*(?:#define|(?:static )?constexpr \w+(?:_t)?|const \w+)\s+([A-Z]\w+)\s*=?\s*([^;\n/]+)", re.M
)


def read_structs(code: Tokens) -> dict[str, dict[str, tuple[str, Tokens]]]:
    """Members of every struct: their type's last word and their initialiser."""
    found: dict[str, dict[str, tuple[str, Tokens]]] = {}
    for index in range(len(code) - 2):
        if code[index].is_id("struct") and code[index + 1].kind == "id":
            start = next((i for i in range(index + 2, len(code)) if code[i].text in ("{", ";", ")", "(", ",")), index)
            if code[start].is_op("{"):
                found.setdefault(code[index + 1].text, _members(code[start + 1 : closing(code, start)]))
    return found


def _members(body: Tokens) -> dict[str, tuple[str, Tokens]]:
    members: dict[str, tuple[str, Tokens]] = {}
    for statement in split(body, ";"):
        head, *rest = split(statement, "=")
        if not head or any(token.is_op("(") for token in head):
            continue
        brace = next((i for i, token in enumerate(head) if token.is_op("{")), None)
        initial = rest[0] if rest else head[brace:] if brace is not None else []
        names = [token.text for token in (head[:brace] if brace is not None else head) if token.kind == "id"]
        if any(token.is_op("[") for token in head):
            names = [
                token.text
                for token in head[: next(i for i, t in enumerate(head) if t.is_op("["))]
                if token.kind == "id"
            ]
        if len(names) > 1:
            kind = next((name for name in names if name in ("vector", "set", "map")), names[-2])
            members[names[-1]] = (kind, initial)
    return members


def read_constants(text: str, tokenise: Callable[[str], Tokens]) -> dict[str, Tokens]:
    """``#define`` and ``constexpr`` names that stand for a single expression."""
    found: dict[str, Tokens] = {}
    for name, body in _CONSTANT.findall(text):
        try:
            found[name] = tokenise(body.strip())
        except ValueError:
            continue
    return found


def read_words(code: Tokens) -> dict[str, dict[str, str]]:
    """Functions that are one ``switch`` from enumerators to words, by name."""
    found: dict[str, dict[str, str]] = {}
    for index, token in enumerate(code):
        if not token.is_id("switch"):
            continue
        start = next(i for i in range(index, len(code)) if code[i].is_op("{"))
        body = code[start : closing(code, start)]
        cases = {
            body[i + 1].text: body[i + 4].text
            for i in range(len(body) - 4)
            if body[i].is_id("case")
            and body[i + 2].is_op(":")
            and body[i + 3].is_id("return")
            and body[i + 4].kind in ("str", "chr")
        }
        before = [
            i
            for i in range(index)
            if code[i].is_op("(") and code[i - 1].kind == "id" and not code[i - 1].is_id("switch")
        ]
        if cases and before:
            found[code[before[-1] - 1].text] = cases
    return found


def read_enumerators(code: Tokens) -> dict[str, int]:
    """The numbers of all enumerators whose value is a plain number or follows the one before."""
    found: dict[str, int] = {}
    for index, token in enumerate(code):
        if not token.is_id("enum"):
            continue
        start = next((i for i in range(index + 1, len(code)) if code[i].text in ("{", ";", ")", ",", "=")), index)
        if not code[start].is_op("{"):
            continue
        number: int | None = -1
        for part in split(code[start + 1 : closing(code, start)]):
            if len(part) == 1:
                number = None if number is None else number + 1
            else:
                value = Expression(World({}, {}, {}), part[2:]).value()
                number = value if isinstance(value, int) else None
            if number is not None:
                found[part[0].text] = number
    return found
