"""The knob table of radiance (``knobs.toml``): which flags a version knows, and which values they take.

The engine reads most numbers with ``atoi`` and takes garbage as 0 without a word, and it refuses to boot on a
flag that it does not know. So both are checked here, by version, before anything is rendered.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from archonctl.deployment.schema import KnobValue
from archonctl.engines.base import Problem
from archonctl.engines.knob_values import as_bool, as_int, spelled
from archonctl.errors import DeclarationError

Version = tuple[int, int, int]
KnobType = Literal["int", "float", "str", "path", "bool"]


@dataclass(frozen=True, slots=True)
class Knob:
    """One row of ``knobs.toml``; the columns are explained there."""

    flag: str
    type: KnobType
    effect: str
    source: str
    env_key: str = ""
    default: KnobValue | None = None
    min: float | None = None
    max: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    since: str = ""
    removed: str = ""
    renamed_to: str = ""
    alias_of: str = ""
    managed: str = ""
    omit_when: KnobValue | None = None
    secret: bool = False

    @property
    def expects(self) -> str:
        """What it takes, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = {"int": "a whole number", "float": "a number", "bool": "true or false"}.get(self.type, "text")
        low = (
            f" from {self.min:,}"
            if self.min is not None
            else f" above {self.above:,}"
            if self.above is not None
            else ""
        )
        high = (
            f" to {self.max:,}" if self.max is not None else f" below {self.below:,}" if self.below is not None else ""
        )
        return " or ".join([*self.words, kind + low + high])


def parse_version(text: str, where: str = "") -> Version:
    """``"1.8.1"`` as numbers; a suffix after ``-`` or ``+`` is ignored.

    Raises DeclarationError ``engine-version-missing`` or ``engine-version-invalid``: flags and laws depend on it.
    """
    if not text:
        raise DeclarationError(
            "engine-version-missing",
            "radiance's flags and its capacity law depend on the version, and none is declared",
            where=where,
            hint='set [engine] version, such as "1.8.1"',
        )
    found = re.fullmatch(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:[-+].*)?", text, re.ASCII)
    if not found:
        raise DeclarationError(
            "engine-version-invalid",
            f"{text[:40]!r} is no version of radiance",
            where=where,
            hint='three numbers, such as "1.8.1"',
        )
    return int(found[1]), int(found[2]), int(found[3] or 0)


@cache
def table() -> Mapping[str, Knob]:
    """All rows by flag, in the order in which they are rendered."""
    data = tomllib.loads(Path(__file__).with_name("knobs.toml").read_text(encoding="utf-8"))
    return {row["flag"]: _row(row) for row in data["knob"]}


def _row(row: Mapping[str, Any]) -> Knob:
    columns: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Knob(**columns)


def find(key: str) -> Knob | None:
    """The row of a flag (dashes or underscores, an alias too) or of an env key; None if there is none."""
    knob = table().get(spelled(key))
    if knob is None:
        return next((row for row in table().values() if row.env_key and row.env_key == key), None)
    return table()[knob.alias_of] if knob.alias_of else knob


def known(knob: Knob, version: Version) -> bool:
    """True if this version of the engine takes the flag."""
    since = parse_version(knob.since) if knob.since else (0, 0, 0)
    return since <= version and not (knob.removed and version >= parse_version(knob.removed))


def check_knob(key: str, value: KnobValue, version: Version) -> Problem | None:
    """What is wrong with one declared knob: ``knob-unknown``, ``knob-retired``, ``knob-bad-value``, or nothing."""
    knob, shown = find(key), ".".join(map(str, version))
    if knob is None:
        close = difflib.get_close_matches(spelled(key), table(), n=1)
        hint = f"did you mean {close[0]}?" if close else "radiance refuses to boot on a flag that it does not know"
        return Problem("knob-unknown", f"radiance {shown} has no knob {key[:60]!r}", hint)
    if knob.removed and version >= parse_version(knob.removed):
        by = "never implemented" if knob.removed == "1.0.0" else f"refused since {knob.removed}"
        hint = f"use {knob.renamed_to}" if knob.renamed_to else "take it out"
        return Problem("knob-retired", f"knob {knob.flag} is {by}, {shown} is declared: {knob.effect}", hint)
    if not known(knob, version):
        return Problem("knob-unknown", f"knob {knob.flag} came with {knob.since}, {shown} is declared", "take it out")
    if knob.secret:
        return Problem("knob-secret", f"knob {knob.flag}: {knob.effect}", "put a proxy that checks the key in front")
    if not accepts(knob, value):
        return Problem("knob-bad-value", f"knob {knob.flag} is {value!r:.60}, expected {knob.expects}")
    return None


def accepts(knob: Knob, value: KnobValue) -> bool:
    """True if the engine would read the value as it is meant."""
    if knob.type == "bool":
        return as_bool(value) is not None
    if isinstance(value, bool):
        return False
    if isinstance(value, str) and value in (knob.choices or knob.words):
        return True
    if knob.type in ("str", "path"):
        return not knob.choices and isinstance(value, str) and value != "" and not re.search(r"[\x00-\x1f]", value)
    number = number_of(knob, value)
    return number is not None and _within(knob, number)


def number_of(knob: Knob, value: KnobValue) -> float | None:
    """A numeric knob's value as a number; None for words and for what is no number."""
    if isinstance(value, bool):
        return None
    if knob.type == "int":
        return as_int(value)
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _within(knob: Knob, number: float) -> bool:
    return (
        (knob.min is None or number >= knob.min)
        and (knob.max is None or number <= knob.max)
        and (knob.above is None or number > knob.above)
        and (knob.below is None or number < knob.below)
    )


def arguments(knob: Knob, value: KnobValue) -> tuple[str, ...]:
    """The flag as separate words; empty for a false bool and for a value at which it is not rendered.

    ``value`` must have passed ``check_knob``.
    """
    if knob.type == "bool":
        return (f"--{knob.flag}",) if as_bool(value) else ()
    number = number_of(knob, value) if knob.type in ("int", "float") else None
    if knob.omit_when is not None and knob.omit_when in (value, number):
        return ()
    return (f"--{knob.flag}", str(value) if number is None else f"{number}")
