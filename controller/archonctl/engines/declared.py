"""Typed reading of declared knobs, under any spelling that an engine knows."""

from __future__ import annotations

import math
from collections.abc import Mapping

from archonctl.deployment.schema import KnobValue
from archonctl.engines.knob_values import as_bool, as_int, spelled
from archonctl.errors import DeclarationError


class DeclaredKnobs:
    """Declared knobs by canonical name (``aliases`` maps other spellings to it), read as numbers, switches and words.

    ``values`` holds what was declared, ``keys`` the spelling it was declared under. Raises DeclarationError
    ``knob-twice`` for two spellings of one flag; every reader raises ``knob-bad-value``.
    """

    def __init__(self, declared: Mapping[str, KnobValue], aliases: Mapping[str, str]) -> None:
        self.values: dict[str, KnobValue] = {}
        self.keys: dict[str, str] = {}
        for key, value in declared.items():
            name = aliases.get(spelled(key), spelled(key))
            if name in self.values:
                raise DeclarationError(
                    "knob-twice",
                    f"knobs {self.keys[name]!r} and {key!r} are the same flag, with values "
                    f"{self.values[name]!r} and {value!r}",
                    where=f"engine.knobs.{key}",
                    hint="keep one of them",
                )
            self.values[name], self.keys[name] = value, key

    def number(self, name: str, default: int, minimum: int = 0) -> int:
        """A whole number of at least ``minimum``, or ``default``."""
        if name not in self.values:
            return default
        found = as_int(self.values[name])
        if found is None or found < minimum:
            raise self._bad(name, f"a whole number of at least {minimum}")
        return found

    def decimal(self, name: str, *, zero: bool = False) -> float:
        """A number above 0, with ``zero`` also 0; 0.0 where the knob is not declared."""
        if name not in self.values:
            return 0.0
        value = self.values[name]
        try:
            found = math.nan if isinstance(value, bool) else float(value)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and (found > 0 or (zero and found == 0))):
            raise self._bad(name, "a number of at least 0" if zero else "a number above 0")
        return found

    def switch(self, name: str, default: bool) -> bool:
        """True or false, or ``default``."""
        if name not in self.values:
            return default
        found = as_bool(self.values[name])
        if found is None:
            raise self._bad(name, "true or false")
        return found

    def word(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of ``choices``, or ``default``; true and false stand for on and off."""
        if name not in self.values:
            return default
        value = self.values[name]
        found = {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value).strip()
        if found not in choices:
            raise self._bad(name, f"one of {', '.join(choices)}")
        return found

    def text(self, name: str) -> str:
        """The value as it stands; empty where the knob is not declared."""
        return str(self.values.get(name, ""))

    def _bad(self, name: str, wanted: str) -> DeclarationError:
        key = self.keys[name]
        return DeclarationError(
            "knob-bad-value",
            f"knob {key} is {self.values[name]!r}; --{name} takes {wanted}",
            where=f"engine.knobs.{key}",
        )
