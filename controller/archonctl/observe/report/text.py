"""Words and numbers of the page. What an engine wrote can neither command the browser nor turn the writing round."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufdd0-\ufdef\ufff9-\ufffb]"
    "|[\ufffe\uffff\U0001fffe\U0001ffff\U0010fffe\U0010ffff\U000e0000-\U000e007f]"
)
"""Controls, marks that turn the direction of writing (UAX 9), what has no shape, and what HTML forbids
(https://html.spec.whatwg.org/multipage/parsing.html#parse-error-noncharacter-in-input-stream)."""


_MOST = 1 << 63
"""No figure of ours is larger: what is, or is no number at all, comes from a damaged file."""


def visible(value: object) -> object:
    """A text with everything unseen shown as an escape; markup and numbers as they are."""
    if value is None:
        return "unknown"
    return _UNSEEN.sub(_shown, value) if type(value) is str else value


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def number(value: float | None, digits: int = 0) -> str:
    """With separators; what nobody knows is said so."""
    if value is None or not -_MOST < value < _MOST:
        return "unknown"
    return f"{value:,.0f}" if value == int(value) else f"{value:,.{digits}f}" if digits else f"{value:,.6g}"


def percent(value: object, *, sign: bool = False) -> str:
    """A share as percent."""
    if not isinstance(value, int | float) or not -_MOST < value < _MOST:
        return "unknown"
    return f"{value:+.1%}" if sign else f"{value:.1%}"


def moment(at: float | None) -> str:
    """A time in UTC, to the minute."""
    return "unknown" if at is None else _time(at).strftime("%Y-%m-%d %H:%M UTC")


def iso(at: float) -> str:
    """The same for machines."""
    return _time(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(seconds: float) -> str:
    """How long ago, in one unit."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now" if seconds >= -60 else "in the future, by this clock"


def _time(at: float) -> datetime:
    """A clock that was wrong by ages is shown at the end of what can be said."""
    return datetime.fromtimestamp(min(max(at, 0.0), 253_402_300_799.0), UTC)
