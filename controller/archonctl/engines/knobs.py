"""Knob tables: which flags an engine version knows, read from ``engines/<name>/knobs.toml`` and ``rules.toml``.

``knobs.toml`` is harvested from the engine itself and never edited by hand; ``rules.toml`` beside it holds what
no help text says: retired flags, flags that the declaration owns, types. Loaded when something is rendered or
gated, never for a plan.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter

from archonctl.deployment.schema import KnobValue
from archonctl.engines.knob_values import as_bool, as_int, spelled
from archonctl.errors import DeclarationError

KnobType = Literal["bool", "switch", "int", "float", "str", "list", "pair"]
"""``bool`` can only be given, ``switch`` has a negative form, ``list`` is comma-separated, ``pair`` is two values."""

_ROW = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Knob:
    """One flag as the engine prints it.

    ``flag`` is the canonical name without dashes; ``names`` and ``negatives`` are all spellings, with dashes;
    ``choices`` are the only values, ``words`` may stand in place of a number; ``default`` is the engine's text.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    flag: str
    names: tuple[str, ...]
    type: KnobType
    effect: str
    source: str
    negatives: tuple[str, ...] = ()
    env_key: str = ""
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    default: str = ""
    hint: str = ""

    @property
    def option(self) -> str:
        """The canonical spelling on a command line."""
        return first_long(self.names)

    @property
    def negative_option(self) -> str:
        """The canonical negative spelling; empty where there is none."""
        return first_long(self.negatives) if self.negatives else ""


@dataclass(frozen=True, slots=True)
class Retired:
    """A flag that an older build knew. ``removed`` is a build without it, ``last_seen`` one that still had it."""

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    names: tuple[str, ...]
    removed: int
    effect: str
    source: str
    env_keys: tuple[str, ...] = ()
    last_seen: int | None = None
    replaced_by: str = ""


@dataclass(frozen=True, slots=True)
class Managed:
    """A flag that is not the declaration's to set as a knob: ``reason``, and what to do ``instead``.

    ``code`` is ``knob-secret`` where the value would be one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    flags: tuple[str, ...]
    reason: str
    instead: str
    source: str
    code: Literal["knob-reserved", "knob-secret"] = "knob-reserved"


@dataclass(frozen=True, slots=True)
class Deprecated:
    """A flag that is still accepted and does nothing, or soon will be gone."""

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    flag: str
    effect: str
    source: str


@dataclass(frozen=True, slots=True)
class KnobTable:
    """Every flag of one engine build."""

    engine: str
    build: int
    knobs: tuple[Knob, ...]
    retired: tuple[Retired, ...] = ()
    managed: tuple[Managed, ...] = ()
    deprecated: tuple[Deprecated, ...] = ()
    _by_name: dict[str, tuple[Knob, bool]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for knob in self.knobs:
            self._by_name.update({spelled(name): (knob, True) for name in knob.names})
            self._by_name.update({spelled(name): (knob, False) for name in knob.negatives})

    def find(self, key: str) -> tuple[Knob, bool] | None:
        """The knob of a declared key (any alias, dashes or underscores) and False if the key is its negative form."""
        return self._by_name.get(spelled(key))

    def find_env(self, variable: str) -> Knob | None:
        """The knob that an environment variable sets (also in the ``LLAMA_ARG_NO_`` form that negatives have)."""
        for knob in self.knobs:
            negative = knob.env_key.replace("_ARG_", "_ARG_NO_") if knob.negatives else ""
            if knob.env_key and variable in {knob.env_key, negative}:
                return knob
        return None

    def find_retired(self, key: str) -> Retired | None:
        """The retired flag or environment variable that ``key`` names."""
        wanted = spelled(key)
        return next((row for row in self.retired if key in row.env_keys or wanted in map(spelled, row.names)), None)

    def find_managed(self, knob: Knob) -> Managed | None:
        """Why a knob may not be set as one, if so."""
        return next((row for row in self.managed if knob.flag in row.flags), None)

    def find_deprecated(self, knob: Knob) -> Deprecated | None:
        """What a knob that is on its way out still does, if so."""
        return next((row for row in self.deprecated if row.flag == knob.flag), None)

    def suggest(self, key: str) -> str:
        """The closest known spelling, without dashes, or an empty string."""
        import difflib  # only where a mistake is explained

        close = difflib.get_close_matches(spelled(key), self._by_name, n=1, cutoff=0.6)
        return close[0] if close else ""


def first_long(names: tuple[str, ...]) -> str:
    """The first spelling with two dashes, else the first."""
    return next((name for name in names if name.startswith("--")), names[0])


@cache
def load_table(folder: Path) -> KnobTable:
    """Read ``knobs.toml`` and, where it exists, ``rules.toml`` of one engine folder.

    Raises pydantic.ValidationError for a row that is none: the tables are ours, so that is a fault of ours.
    """
    table = tomllib.loads((folder / "knobs.toml").read_text(encoding="utf-8"))
    path = folder / "rules.toml"
    rules = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return KnobTable(
        engine=table["engine"],
        build=table["build"],
        knobs=TypeAdapter(tuple[Knob, ...]).validate_python(table["knob"]),
        retired=TypeAdapter(tuple[Retired, ...]).validate_python(rules.get("retired", [])),
        managed=TypeAdapter(tuple[Managed, ...]).validate_python(rules.get("managed", [])),
        deprecated=TypeAdapter(tuple[Deprecated, ...]).validate_python(rules.get("deprecated", [])),
    )


def render(key: str, knob: Knob, positive: bool, value: KnobValue) -> tuple[str, ...]:
    """The arguments for one declared knob, in canonical long form.

    Empty where there is nothing to say (a ``bool`` that is false). Raises DeclarationError ``knob-bad-value``.
    """
    if knob.type in ("bool", "switch"):
        wanted = as_bool(value)
        if wanted is None:
            raise _bad_value(key, knob, value)
        if wanted == positive:
            return (knob.option,)
        return (knob.negative_option,) if knob.negatives else ()
    if knob.type == "pair":
        parts = str(value).split(" ")
        if len(parts) != 2 or not all(part.isprintable() and part for part in parts):
            raise _bad_value(key, knob, value)
        return (knob.option, *parts)
    return (knob.option, _argument(key, knob, value))


def _argument(key: str, knob: Knob, value: KnobValue) -> str:
    text = str(value).strip() if not isinstance(value, bool) else ("on" if value else "off")
    if text in knob.choices or text in knob.words:
        return text
    plain = not isinstance(value, bool) and text != "" and "\n" not in text and "\0" not in text
    if not plain or (knob.choices and knob.type != "list"):
        raise _bad_value(key, knob, value)
    if knob.type == "list" and (not knob.choices or set(text.split(",")) <= set(knob.choices)):
        return text
    if knob.type == "int" and (number := as_int(value)) is not None:
        return str(number)
    if (knob.type == "float" and _NUMBER.fullmatch(text)) or knob.type == "str":
        return text
    raise _bad_value(key, knob, value)


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_KINDS: dict[KnobType, str] = {
    "bool": "true or false",
    "switch": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "one line of text",
    "list": "a comma-separated list",
    "pair": "two values",
}


def _bad_value(key: str, knob: Knob, value: KnobValue) -> DeclarationError:
    allowed = knob.choices or knob.words
    parts = [_KINDS[knob.type]] if knob.type == "list" or not knob.choices else []
    parts += [f"one of {', '.join(allowed)}"] if allowed else []
    return DeclarationError(
        "knob-bad-value",
        f"knob {key} is {value!r}; {knob.option} takes {' or '.join(parts)}",
        where=f"engine.knobs.{key}",
        hint=f"the engine's default is {knob.default}" if knob.default else "",
    )
