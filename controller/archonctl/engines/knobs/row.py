"""One row of a knob table, and the rows of the rules beside it. The columns are explained in docs/knobs.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import ConfigDict

KnobType = Literal["bool", "switch", "int", "float", "size", "str", "path", "list", "pair", "json"]
"""``bool`` can only be given, ``switch`` has a negative form, ``size`` is a whole number or one such as ``1k`` and
``1.5M``, ``list`` is comma-separated in one argument, ``pair`` is two arguments."""

Stale = Literal["refusal", "ignored", "changes-meaning", "swallows-next"]
"""What the engine does with the flag where it is no longer known; empty: what its parser does with any such flag."""

_ROW = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Knob:
    """One form of one flag, from version ``since`` up to, not including, version ``removed``.

    ``flag`` is the canonical name without dashes; ``names`` and ``negatives`` are all spellings, with dashes (none
    where only a variable sets it). ``nargs`` is how many arguments it takes (0, 1, 2, ``?``, ``*``, ``+``).
    ``choices`` are the only values, ``words`` may stand in place of a number. ``default`` is the engine's text,
    ``defaults`` holds by version where it changed. ``refused`` is what the parser says where it knows the name only
    to refuse it. ``since`` is empty where it is older than the oldest version that was read.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    flag: str
    type: KnobType
    effect: str
    source: str
    names: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()
    env_key: str = ""
    nargs: int | str = ""
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    min: int | float | None = None
    max: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    default: str = ""
    defaults: dict[str, str] = field(default_factory=dict)
    hint: str = ""
    since: str = ""
    removed: str = ""
    last_seen: str = ""
    renamed_to: str = ""
    stale: Stale | Literal[""] = ""
    deprecated: str = ""
    deprecated_since: str = ""
    refused: str = ""
    hidden: bool = False
    omit_when: int | float | str | None = None

    @property
    def option(self) -> str:
        """The canonical spelling on a command line; empty where only a variable sets it."""
        return first_long(self.names)

    @property
    def negative_option(self) -> str:
        """The canonical negative spelling; empty where there is none."""
        return first_long(self.negatives)

    @property
    def takes(self) -> int | str:
        """How many arguments follow."""
        if self.nargs != "":
            return self.nargs
        return {"bool": 0, "switch": 0, "pair": 2}.get(self.type, 1)


@dataclass(frozen=True, slots=True)
class Retired:
    """What a table of flags cannot say about one that went away: why, what replaces it, what a stale one does.

    ``removed`` is the first version without it (empty: the table knows), ``last_seen`` the last that had it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    effect: str
    source: str
    names: tuple[str, ...] = ()
    env_keys: tuple[str, ...] = ()
    removed: str = ""
    last_seen: str = ""
    replaced_by: str = ""
    stale: Stale | Literal[""] = ""


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
    """A flag that is still accepted and does nothing, or soon will be gone. ``since`` is the first such version."""

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    flag: str
    effect: str
    source: str
    since: str = ""


@dataclass(frozen=True, slots=True)
class Amendment:
    """What the engine's own list does not say about a flag, at every version: bounds, a narrower type, words."""

    __pydantic_config__: ClassVar[ConfigDict] = _ROW

    flag: str
    source: str
    type: KnobType | Literal[""] = ""
    nargs: int | str = ""
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    min: int | float | None = None
    max: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    env_key: str = ""
    effect: str = ""
    stale: Stale | Literal[""] = ""


def first_long(names: tuple[str, ...]) -> str:
    """The first spelling with two dashes, else the first; empty where there is none."""
    return next((name for name in names if name.startswith("--")), names[0] if names else "")
