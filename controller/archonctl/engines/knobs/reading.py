"""How engines read the text of a value: what they refuse, and what they take for something else without a word."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace

from archonctl.engines.knobs.bounds import expects, in_range
from archonctl.engines.knobs.row import Knob

Misread = Callable[[Knob, str], str]
"""Why a value is refused or misread by an engine; empty where it is read as it is meant."""

_NUMBERS = frozenset({"int", "float", "size"})
_HUMAN = re.compile(r"\d+(?:\.\d+)?[kmgt]|\d+[KMGT]", re.ASCII)
_SI_IEC = re.compile(r"\d+(?:\.\d+)?[kMGT]|\d+[KMGT]i", re.ASCII)
_STOI = re.compile(r"\s*([+-]?\d+)(.*)", re.DOTALL | re.ASCII)
_STOF = re.compile(
    r"\s*([+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan))(.*)", re.DOTALL | re.IGNORECASE | re.ASCII
)
_LEAST, _MOST = -(2**31), 2**32
"""What fits into 32 bits, signed or not: seeds are read as unsigned."""


def python(knob: Knob, text: str) -> str:
    """argparse: ``int`` and ``float`` of Python, exact choices, JSON where the type is one."""
    if knob.type in ("bool", "switch"):
        return "" if text.lower() in ("true", "false") else "it takes true or false"
    if knob.type == "json" and text not in knob.words:
        return _json(text)
    return _read(knob, text, _python_number)


def sglang(knob: Knob, text: str) -> str:
    """argparse, with SGLang's suffixes: 1k is 1,000 and may have decimals, 1Ki is 1,024 and may not."""
    if knob.type != "size":
        return python(knob, text)
    return "" if _SI_IEC.fullmatch(text.strip()) else python(replace(knob, type="int"), text)


def llama(knob: Knob, text: str) -> str:
    """common/arg.cpp: ``std::stoi`` and ``std::stof`` take what leads and drop the rest, words are exact."""
    return _json(text) if knob.type == "json" else _read(knob, text, _leading_number)


def strict(knob: Knob, text: str) -> str:
    """radiance: ``atoi`` makes 0 of garbage, so only what is plainly a number is one."""
    return _read(knob, text, _plain_number)


def _read(knob: Knob, text: str, number_of: Callable[[Knob, str], float | str]) -> str:
    """A value against the row's words, type, bounds and choices; ``number_of`` says why a text is no number."""
    if text in knob.words or (text in knob.choices and knob.type != "list"):
        return ""
    if knob.type in _NUMBERS:
        number = number_of(knob, text)
        if isinstance(number, str):
            return number
        among = not knob.choices or any(_number(choice) == number for choice in knob.choices)
        return "" if among and in_range(knob, number) else f"it takes {expects(knob)}"
    if knob.type == "list":
        wrong = [part for part in text.split(",") if knob.choices and part.strip() not in knob.choices]
        return f"{wrong[0][:40]!r} is not among {', '.join(knob.choices)}" if wrong else ""
    return f"it takes {expects(knob)}" if knob.choices else ""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _python_number(knob: Knob, text: str) -> float | str:
    try:
        if knob.type == "size":
            return _size(knob, text.strip())
        return int(text) if knob.type == "int" else float(text)
    except (ValueError, OverflowError):
        return f"it takes {expects(knob)}"


def _size(knob: Knob, text: str) -> float:
    """``human_readable_int`` of vLLM: decimal suffixes in lower case, binary ones in upper case."""
    if text.lower() in knob.words:
        return knob.min if knob.min is not None else 1
    if not _HUMAN.fullmatch(text):
        return int(text)
    base = 1000 if text[-1].islower() else 1024
    return int(float(text[:-1]) * base ** ("kmgt".index(text[-1].lower()) + 1))


def _json(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError as err:
        return f"it takes JSON, and this is none ({err})"
    except RecursionError:
        return "it takes JSON, and this is nested too deeply"
    return "" if isinstance(value, dict | list) else "it takes a JSON object or list, and this is neither"


def _leading_number(knob: Knob, text: str) -> float | str:
    found = (_STOF if knob.type == "float" else _STOI).fullmatch(text)
    if found is None:
        return f"it takes {expects(knob)}"
    if found[2].strip():
        return f"the engine reads {found[1][:40]} and drops {found[2][:20]!r}; it takes {expects(knob)}"
    number = float(found[1])
    if knob.type != "float" and not _LEAST <= number < _MOST:
        return "it does not fit into 32 bits"
    return number


def _plain_number(knob: Knob, text: str) -> float | str:
    found = (_STOF if knob.type == "float" else _STOI).fullmatch(text)
    if found is None or found[2] or not math.isfinite(number := float(found[1])):
        return f"the engine reads garbage as 0; it takes {expects(knob)}"
    return number
