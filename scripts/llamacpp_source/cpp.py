"""Just enough C++: tokens, and splitting them at the top level."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["str", "chr", "num", "id", "op"]

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#(?:[^\n\\]|\\.|\\\n)*)
      | R"(?P<mark>[^()\s\\]{0,16})\((?P<raw>.*?)\)(?P=mark)"
      | "(?P<str>(?:[^"\\\n]|\\.)*)"
      | '(?P<chr>(?:[^'\\\n]|\\.)+)'
      | (?P<num>\.?\d(?:[\w.]|'(?=\d)|(?<=[eE])[+-])*)
      | (?P<id>[A-Za-z_]\w*)
      | (?P<op>->|::|\+\+|--|<<=|>>=|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[][(){}<>;:,.?!~+\-*/%&|^=@\\])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]+|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; a string's ``text`` is its value."""

    kind: Kind
    text: str

    def is_op(self, text: str) -> bool:
        """True for this operator, False for a string that merely looks like it."""
        return self.kind == "op" and self.text == text

    def is_id(self, text: str) -> bool:
        """True for this word."""
        return self.kind == "id" and self.text == text


Tokens = Sequence[Token]


@lru_cache(maxsize=32)
def tokens(source: str) -> tuple[Token, ...]:
    """All tokens of a source text; comments and preprocessor lines are left out. Raises ValueError with the place.

    They are kept, since most files stay the same from build to build.
    """
    found = list[Token]()
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise ValueError(f"no C++ token at line {source.count(chr(10), 0, at) + 1}: {source[at : at + 20]!r}")
        at = match.end()
        if match["skip"] is not None:
            continue
        if match["raw"] is not None:
            found.append(Token("str", match["raw"]))
        else:
            found += [
                Token(kind, _unescaped(text) if kind in ("str", "chr") else text)
                for kind in ("str", "chr", "num", "id", "op")
                if (text := match[kind]) is not None
            ]
    return tuple(found)


def _unescaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if code[0] in "ux" and len(code) > 1 else _ESCAPES.get(code, code)

    return _ESCAPE.sub(one, text)


def closing(code: Tokens, start: int) -> int:
    """The index of the bracket that closes the one at ``start``. Raises ValueError where there is none."""
    depth = 0
    for index in range(start, len(code)):
        if code[index].kind == "op":
            depth += (code[index].text in _OPEN) - (code[index].text in _CLOSE)
            if depth == 0:
                return index
    raise ValueError(f"a bracket is never closed: {' '.join(token.text for token in code[start : start + 8])}")


def split(code: Tokens, at: str = ",") -> Iterator[Tokens]:
    """Parts of a list between operators ``at`` outside of all brackets; nothing for an empty list."""
    depth = start = 0
    for index, token in enumerate(code):
        if token.kind != "op":
            continue
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth == 0 and token.text == at:
            yield code[start:index]
            start = index + 1
    if start < len(code):
        yield code[start:]
