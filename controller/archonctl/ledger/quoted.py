"""Figures of a boot that somebody wrote down instead of pasting the log: a row of a table, a sentence.

This is hearsay: it serves to compare collected cases with laws, and never a verdict about an endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
_IN_ROW = {
    "available_gib": re.compile(_NUMBER + r" ?GiB\b"),
    "kv_tokens": re.compile(_NUMBER + r" tokens\b"),
    "max_concurrency": re.compile(r"(?<![\w.])" + _NUMBER + r" ?x(?![\w])"),
}
_SENTENCES = {
    "available_gib.": re.compile(r"available KV cache memory: " + _NUMBER + r" ?GiB", re.IGNORECASE),
    "kv_tokens.": re.compile(r"KV cache(?: size)?: " + _NUMBER + r" tokens", re.IGNORECASE),
    "available_gib": re.compile(_NUMBER + r" ?GiB (?:\w+ ){0,2}(?:for|of) (?:the )?KV cache", re.IGNORECASE),
    "kv_tokens": re.compile(r"KV cache (?:size )?(?:of|is|=|holds) " + _NUMBER + r" tokens", re.IGNORECASE),
}
_ROW_LIMIT = 2000


def quoted_figures(lines: Iterable[str]) -> dict[str, int | float]:
    """Figures named in prose or table rows; empty where there are none. A row counts with two figures or more."""
    found: dict[str, int | float] = {}
    for line in lines:
        text = line[:_ROW_LIMIT].replace("**", "").replace("`", "").strip()
        if text.startswith("|"):
            row = {name: match.group(1) for name, pattern in _IN_ROW.items() if (match := pattern.search(text))}
            found |= {name: _number(value) for name, value in row.items() if len(row) > 1}
            continue
        for name, pattern in _SENTENCES.items():
            if match := pattern.search(text):
                found.setdefault(name.rstrip("."), _number(match.group(1)))
    return found


def _number(text: str) -> int | float:
    plain = text.replace(",", "")
    return float(plain) if "." in plain else int(plain)
