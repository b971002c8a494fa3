"""What a knob takes, in words, and whether a number lies within its bounds."""

from __future__ import annotations

from archonctl.engines.knobs.row import Knob, KnobType

KINDS: dict[KnobType, str] = {
    "bool": "true or false",
    "switch": "true or false",
    "int": "a whole number",
    "float": "a number",
    "size": "a whole number (1k and 1.5M too)",
    "str": "text",
    "path": "a path",
    "list": "a comma-separated list",
    "pair": "two values",
    "json": "JSON",
}


def in_range(knob: Knob, number: float) -> bool:
    """True if a number lies within the bounds of the row."""
    return (
        (knob.min is None or number >= knob.min)
        and (knob.max is None or number <= knob.max)
        and (knob.above is None or number > knob.above)
        and (knob.below is None or number < knob.below)
    )


def expects(knob: Knob) -> str:
    """What it takes, in words."""
    if knob.choices:
        return "one of " + ", ".join(knob.choices)
    low, high = "", ""
    if knob.min is not None or knob.above is not None:
        low = f" from {knob.min:,}" if knob.min is not None else f" above {knob.above:,}"
    if knob.max is not None or knob.below is not None:
        high = f" to {knob.max:,}" if knob.max is not None else f" below {knob.below:,}"
    return " or ".join([*knob.words, KINDS[knob.type] + low + high])
