"""Reading JSON that may be anything: typed accessors that never raise on a wrong shape."""

from __future__ import annotations

import codecs
import json

from archonctl.probe.faults import Fault

MOST = 2**53
"""No count of tokens or requests is larger; a server may well send a number that no float can hold."""
_DIGITS = 16


def parse_json(body: bytes, evidence: str = "") -> object:
    """The value in ``body``, of which a byte order mark is no part (RFC 8259, 8.1). Raises Fault ``answer-not-utf8``
    or ``answer-not-json``."""
    try:
        text = body.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as err:
        raise Fault(
            "answer-not-utf8",
            f"the answer is not UTF-8: byte {err.start:,} of {len(body):,} is 0x{body[err.start]:02x}",
            evidence=evidence,
        ) from None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as err:
        reason = getattr(err, "msg", None) or type(err).__name__
        raise Fault(
            "answer-not-json", f"the answer of {len(body):,} bytes is not JSON: {reason}", evidence=evidence
        ) from None
    return value


def pick(value: object, *keys: str | int) -> object:
    """``value[k1][k2]...``, or None where a step is not there."""
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value):
            value = value[key]
        else:
            return None
    return value


def as_int(value: object) -> int | None:
    """A whole number from 0 to ``MOST``, or None. ``true`` is no number; a string of digits is (gateways write so)."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        return None
    return int(value) if value == int(value) else None


def as_str(value: object) -> str:
    """A string, or the empty one."""
    return value if isinstance(value, str) else ""


def items(value: object) -> list[object]:
    """A list, or an empty one."""
    return value if isinstance(value, list) else []
