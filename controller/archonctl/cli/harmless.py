"""Text for a terminal: what an engine or a file wrote must not command it."""

from __future__ import annotations

import re

_OBEYED = re.compile(
    r"(?P<ours>\x1b\[(?:0|[12]|3[1-6])(?:;(?:[12]|3[1-6]))*m)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
"""What a terminal obeys: C0 and C1 controls but tab and newline (ECMA-48), and the marks that turn the direction of
writing round (UAX 9). ``ours`` are the colours that ``Output.paint`` uses: a foreign one of them changes no meaning."""


def harmless(text: str) -> str:
    """The text with everything that a terminal would obey shown as an escape; colours stay."""
    return _OBEYED.sub(lambda found: found["ours"] or _shown(found[0]), text)


def _shown(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
