"""What the expressions in llama.cpp's help texts come to, from the initialisers in its own headers.

A value that is only known at run time (the number of threads, the terminal) is ``UNKNOWN`` and prints as U+FFFD.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llamacpp_source.cpp import Token, Tokens, closing, split

UNKNOWN_TEXT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not known before the program runs."""

    def __str__(self) -> str:
        return UNKNOWN_TEXT


@dataclass(frozen=True, slots=True)
class Name:
    """An enumerator or another name without a value of its own."""

    text: str


UNKNOWN = Unknown()
Value = str | int | float | bool | Unknown | Name | list["Value"]
_WORDS = {
    "llama_flash_attn_type_name": {
        f"LLAMA_FLASH_ATTN_TYPE_{one.upper()}": one for one in ("auto", "enabled", "disabled")
    }
}
"""src/llama.cpp, since b6325; the one function of the engine itself that a help text calls."""
_PRINTF = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d*)(?:\.(?P<precision>\d+))?(?:hh|ll|[hlzjt])?(?P<kind>[diufFeEgGsxXc%])"
)


@dataclass
class World:
    """The names that expressions use: structs of the headers, constants, and functions from enumerators to words."""

    structs: Mapping[str, Mapping[str, tuple[str, Tokens]]]
    constants: Mapping[str, Tokens]
    words: Mapping[str, Mapping[str, str]]
    enumerators: dict[str, int] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    variables: dict[str, Value] = field(default_factory=dict)
    """Dotted paths that were assigned before the options are defined, and local names."""

    def member(self, path: Sequence[str]) -> Value:
        """The initial value of ``params.a.b``; UNKNOWN where no header says it."""
        if (assigned := self.variables.get(".".join(path))) is not None:
            return assigned
        kind = "common_params"
        for depth, name in enumerate(path[1:], 1):
            found = self.structs.get(kind, {}).get(name)
            if found is None:
                return UNKNOWN
            kind, initial = found
            if depth == len(path) - 1:
                return self._initial(kind, initial)
        return UNKNOWN

    def _initial(self, kind: str, initial: Tokens) -> Value:
        if initial and initial[0].is_op("{") and kind not in ("vector", "set"):
            initial = initial[1:-1] or [Token("num", "0")]
        if not initial:
            return "" if kind == "string" else UNKNOWN
        value = Expression(self, initial).value()
        if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
            return float(struct.unpack("f", struct.pack("f", value))[0])
        return value


class Expression:
    """A recursive-descent reader of one expression."""

    def __init__(self, world: World, code: Tokens) -> None:
        self.world = world
        self.code = code
        self.at = 0

    def value(self) -> Value:
        """What it comes to."""
        return self._ternary()

    def _op(self, *texts: str) -> str:
        if self.at < len(self.code) and self.code[self.at].kind == "op" and self.code[self.at].text in texts:
            self.at += 1
            return self.code[self.at - 1].text
        return ""

    def _ternary(self) -> Value:
        condition = self._or()
        if not self._op("?"):
            return condition
        yes = self._ternary()
        self._op(":")
        no = self._ternary()
        truth = _truth(condition)
        return UNKNOWN if truth is None else yes if truth else no

    def _or(self) -> Value:
        left = self._comparison()
        while operator := self._op("||", "&&"):
            one, two = _truth(left), _truth(self._comparison())
            known = [side for side in (one, two) if side is not None]
            if operator == "||":
                left = True if True in known else False if len(known) == 2 else UNKNOWN
            else:
                left = False if False in known else True if len(known) == 2 else UNKNOWN
        return left

    def _comparison(self) -> Value:
        left = self._sum()
        while operator := self._op("==", "!=", "<", ">", "<=", ">="):
            right = self._sum()
            if UNKNOWN in (left, right):
                left = UNKNOWN
            elif operator in ("==", "!="):
                left = (left == right) == (operator == "==")
            else:
                one, two = float(str(left)), float(str(right))
                left = {"<": one < two, ">": one > two, "<=": one <= two, ">=": one >= two}[operator]
        return left

    def _sum(self) -> Value:
        left = self._product()
        while operator := self._op("+", "-"):
            right = self._product()
            if isinstance(left, str) or isinstance(right, str):
                left = text_of(left) + text_of(right)
            elif isinstance(left, int | float) and isinstance(right, int | float):
                left = left + right if operator == "+" else left - right
            else:
                left = UNKNOWN
        return left

    def _product(self) -> Value:
        left = self._unary()
        while operator := self._op("*", "/", "%"):
            right = self._unary()
            if not (isinstance(left, int | float) and isinstance(right, int | float)) or (
                operator != "*" and not right
            ):
                left = UNKNOWN
            elif operator == "*":
                left = left * right
            else:
                whole = isinstance(left, int) and isinstance(right, int)
                left = (left // right if whole else left / right) if operator == "/" else left % right
        return left

    def _unary(self) -> Value:
        if operator := self._op("!", "-", "+"):
            inner = self._unary()
            truth = _truth(inner)
            if operator == "!":
                return UNKNOWN if truth is None else not truth
            return (-inner if operator == "-" else inner) if isinstance(inner, int | float) else UNKNOWN
        if self._cast():
            return self._unary()
        return self._postfix()

    def _cast(self) -> bool:
        """Step over ``(unsigned)`` and the like."""
        if self.at < len(self.code) and self.code[self.at].is_op("("):
            end = closing(self.code, self.at)
            inner = self.code[self.at + 1 : end]
            if inner and end + 1 < len(self.code) and all(t.kind == "id" or t.text in "*&::" for t in inner):
                follows = self.code[end + 1]
                if follows.kind in ("id", "num", "str") or follows.is_op("("):
                    self.at = end + 1
                    return True
        return False

    def _postfix(self) -> Value:
        value = self._primary()
        while self.at < len(self.code):
            if self._op(".", "->"):
                method = self.code[self.at].text
                self.at += 1
                arguments = self._arguments() if self.at < len(self.code) and self.code[self.at].is_op("(") else []
                value = _method(value, method, arguments)
            elif self.code[self.at].is_op("["):
                end = closing(self.code, self.at)
                index = Expression(self.world, self.code[self.at + 1 : end]).value()
                self.at = end + 1
                value = (
                    value[index]
                    if isinstance(value, list) and isinstance(index, int) and index < len(value)
                    else UNKNOWN
                )
            else:
                break
        return value

    def _arguments(self) -> list[Value]:
        end = closing(self.code, self.at)
        parts = list(split(self.code[self.at + 1 : end]))
        self.at = end + 1
        return [Expression(self.world, part).value() for part in parts]

    def _primary(self) -> Value:
        if self.at >= len(self.code):
            return UNKNOWN
        token = self.code[self.at]
        self.at += 1
        if token.kind in ("str", "chr"):
            text = token.text
            while self.at < len(self.code) and (
                self.code[self.at].kind == "str" or self.code[self.at].text.startswith("PRI")
            ):
                text += self.code[self.at].text.removeprefix("PRI")
                self.at += 1
            return re.sub(r"%([diu])(?:32|64)", r"%\1", text)
        if token.kind == "num":
            return _number(token.text)
        if token.is_op("(") or token.is_op("{"):
            end = closing(self.code, self.at - 1)
            parts = [Expression(self.world, part).value() for part in split(self.code[self.at : end])]
            self.at = end + 1
            return parts if token.text == "{" else parts[0] if parts else UNKNOWN
        return self._name(token.text) if token.kind == "id" else UNKNOWN

    def _name(self, first: str) -> Value:
        path = [first]
        while self.at + 1 < len(self.code) and self.code[self.at].text in (".", "::", "<"):
            if self.code[self.at].is_op("<"):  # static_cast<int>(x), std::vector<size_t>(...)
                if first not in ("static_cast", "vector", "std"):
                    break
                self.at = next(i for i in range(self.at, len(self.code)) if self.code[i].is_op(">")) + 1
                continue
            if (
                self.code[self.at].is_op(".")
                and self.code[self.at + 2 : self.at + 3]
                and self.code[self.at + 2].is_op("(")
            ):
                break
            path.append(self.code[self.at + 1].text)
            self.at += 2
        if self.at < len(self.code) and self.code[self.at].is_op("("):
            return self._call(path[-1], self._arguments())
        if first == "params":
            return self.world.member(path)
        name = path[-1]
        if name in ("true", "false"):
            return name == "true"
        if name in self.world.variables:
            return self.world.variables[name]
        if name in self.world.constants:
            return Expression(self.world, self.world.constants[name]).value()
        return Name(name) if name.isupper() else UNKNOWN

    def _call(self, name: str, arguments: list[Value]) -> Value:
        first = arguments[0] if arguments else UNKNOWN
        if name == "string_format":
            return printf(self.world, text_of(first), arguments[1:])
        if name in ("string", "to_string") and arguments:
            return text_of(first)
        if name == "static_cast":
            return first
        if name == "vector" and len(arguments) == 2:  # std::vector<size_t>(count, value)
            return [arguments[1]]
        return self._named(name, first)

    def _named(self, name: str, first: Value) -> Value:
        """Functions from enumerators to words."""
        if name == "common_speculative_type_name_str" and isinstance(first, list):
            kinds = [text_of(one).removeprefix("COMMON_SPECULATIVE_TYPE_") for one in first]
            return ",".join(kinds).lower().replace("_", "-")
        if not isinstance(first, Name):
            return self.world.variables.get(f"{name}()", UNKNOWN)
        if name == "ggml_type_name":
            return first.text.removeprefix("GGML_TYPE_").lower()
        return self.world.words.get(name, _WORDS.get(name, {})).get(first.text, UNKNOWN)


def _method(value: Value, method: str, arguments: list[Value]) -> Value:
    if method in ("c_str", "data", "str"):
        return value
    if method == "empty" and isinstance(value, str | list):
        return not value
    if method == "size" and isinstance(value, str | list):
        return len(value)
    if method in ("front", "at") and isinstance(value, list) and value:
        return value[arguments[0] if arguments and isinstance(arguments[0], int) else 0]
    return UNKNOWN


def _number(text: str) -> Value:
    plain = text.replace("'", "").rstrip("uUlLzZ")
    if plain[:2].lower() == "0x":
        return int(plain, 16)
    plain = plain.rstrip("fF")
    return float(plain) if any(mark in plain for mark in ".eE") else int(plain)


def _truth(value: Value) -> bool | None:
    return None if isinstance(value, Unknown | Name) else bool(value)


def text_of(value: Value) -> str:
    """A value as a stream would print it."""
    return value.text if isinstance(value, Name) else str(int(value)) if isinstance(value, bool) else str(value)


def printf(world: World, form: str, arguments: Sequence[Value]) -> str:
    """C's formatting, for the conversions that help texts use."""
    left = list(arguments)

    def one(match: re.Match[str]) -> str:
        if match["kind"] == "%":
            return "%"
        value = left.pop(0) if left else UNKNOWN
        if isinstance(value, Name) and match["kind"] in "diu":
            value = world.enumerators.get(value.text, UNKNOWN)
        if isinstance(value, Unknown):
            return UNKNOWN_TEXT
        if match["kind"] in "sc":
            return text_of(value)
        if not isinstance(value, int | float):
            return UNKNOWN_TEXT
        return _formatted(match, value)

    return _PRINTF.sub(one, form)


def _formatted(match: re.Match[str], value: int | float) -> str:
    kind = match["kind"]
    if kind in "diu":
        whole = int(value)
        return str(whole - 2**32 if kind in "di" and 2**31 <= whole < 2**32 else whole)
    precision = f".{match['precision']}" if match["precision"] else ""
    return f"%{match['flags']}{match['width']}{precision}{kind}" % value
