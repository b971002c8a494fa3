"""Declared knobs as arguments: canonical long form, values as the engine reads them."""

from __future__ import annotations

import re

from archonctl.deployment.schema import KnobValue
from archonctl.engines.knob_values import as_bool, as_int
from archonctl.engines.knobs.bounds import KINDS
from archonctl.engines.knobs.row import Knob
from archonctl.errors import DeclarationError


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
    if knob.type in ("int", "size") and (number := as_int(value)) is not None:
        return str(number)
    if (knob.type == "float" and _NUMBER.fullmatch(text)) or knob.type in ("str", "path", "json"):
        return text
    raise _bad_value(key, knob, value)


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _bad_value(key: str, knob: Knob, value: KnobValue) -> DeclarationError:
    allowed = knob.choices or knob.words
    parts = [KINDS[knob.type]] if knob.type == "list" or not knob.choices else []
    parts += [f"one of {', '.join(allowed)}"] if allowed else []
    return DeclarationError(
        "knob-bad-value",
        f"knob {key} is {value!r}; {knob.option} takes {' or '.join(parts)}",
        where=f"engine.knobs.{key}",
        hint=f"the engine's default is {knob.default}" if knob.default else "",
    )
