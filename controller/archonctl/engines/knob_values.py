"""How a knob's name and value are read, whatever the engine. Apart from the tables, since a plan needs only this."""

from __future__ import annotations

import re

from archonctl.deployment.schema import KnobValue, parse_count

TRUTHY = frozenset({"on", "enabled", "true", "1", "yes"})
FALSY = frozenset({"off", "disabled", "false", "0", "no"})


def spelled(key: str) -> str:
    """A knob name as tables compare it: no leading dashes, underscores as dashes."""
    return key.strip().lstrip("-").replace("_", "-")


def as_bool(value: KnobValue) -> bool | None:
    """A switch's value, in the spellings that engines and environments use; None if it is none of them."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return True if word in TRUTHY else False if word in FALSY else None


def as_int(value: KnobValue) -> int | None:
    """A whole number, also as text with ``_`` or a binary suffix ("128k"); None if it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = parse_count(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        return int(value)
    return value if isinstance(value, int) else None
