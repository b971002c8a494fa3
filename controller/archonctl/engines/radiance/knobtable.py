"""The knob table of radiance (``knobs.toml``): which flags a version knows, and which values they take.

The engine reads most numbers with ``atoi`` and takes garbage as 0 without a word, and it refuses to boot on a
flag that it does not know. So both are checked here, by version, before anything is rendered.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from functools import cache

from archonctl.deployment.schema import KnobValue
from archonctl.engines.base import Problem
from archonctl.engines.knob_values import as_bool, as_int, spelled
from archonctl.engines.knobs import Knob, Managed, load_table
from archonctl.engines.knobs.bounds import expects, in_range
from archonctl.errors import DeclarationError

Version = tuple[int, int, int]


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
    """The newest form of every flag, in the order in which they are rendered."""
    return {knob.flag: knob for knob in load_table("radiance").knobs}


def find(key: str) -> Knob | None:
    """The newest form of a flag (dashes or underscores, an alias too) or of an env key; None if there is none."""
    return next(reversed([*load_table("radiance").forms(key)]), None)


def known(knob: Knob, version: Version) -> bool:
    """True if this version of the engine takes the flag."""
    return _form(knob, version) is not None


def _form(knob: Knob, version: Version) -> Knob | None:
    """The form of a flag that a version takes."""
    forms = (row for row in load_table("radiance").knobs if row.flag == knob.flag)
    return next((row for row in forms if _since(row) <= version and not _gone(row, version)), None)


def _since(knob: Knob) -> Version:
    return parse_version(knob.since) if knob.since else (0, 0, 0)


def _gone(knob: Knob, version: Version) -> bool:
    return bool(knob.removed) and version >= parse_version(knob.removed)


def managed(knob: Knob) -> Managed | None:
    """Why a flag is not the declaration's to set as a knob, if so."""
    return next((row for row in load_table("radiance").managed if knob.flag in row.flags), None)


def check_knob(key: str, value: KnobValue, version: Version) -> Problem | None:
    """What is wrong with one declared knob: ``knob-unknown``, ``knob-retired``, ``knob-bad-value``, or nothing."""
    newest, shown = find(key), ".".join(map(str, version))
    if newest is None:
        close = difflib.get_close_matches(spelled(key), table(), n=1)
        hint = f"did you mean {close[0]}?" if close else "radiance refuses to boot on a flag that it does not know"
        return Problem("knob-unknown", f"radiance {shown} has no knob {key[:60]!r}", hint)
    knob = _form(newest, version)
    if knob is None and _gone(newest, version):
        by = "never implemented" if newest.removed == "1.0.0" else f"refused since {newest.removed}"
        hint = f"use {newest.renamed_to}" if newest.renamed_to else "take it out"
        return Problem("knob-retired", f"knob {newest.flag} is {by}, {shown} is declared: {newest.effect}", hint)
    if knob is None:
        message = f"knob {newest.flag} came with {newest.since}, {shown} is declared"
        return Problem("knob-unknown", message, "take it out")
    rule = managed(knob)
    if rule is not None and rule.code == "knob-secret":
        return Problem("knob-secret", f"knob {knob.flag}: {rule.reason}", rule.instead)
    if not accepts(knob, value):
        return Problem("knob-bad-value", f"knob {knob.flag} is {value!r:.60}, expected {expects(knob)}")
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
    return number is not None and in_range(knob, number)


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
