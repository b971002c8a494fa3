"""Colours by what they are for, light and dark; every pair that is read together is held to WCAG 2.2 AA by a test."""

from __future__ import annotations

from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "panel": "#f5f7f9",
    "text": "#1b1f24",
    "muted": "#56606b",
    "line": "#c9d1d9",
    "edge": "#7d8893",
    "link": "#0b57b0",
    "good": "#116932",
    "bad": "#a8071a",
    "warn": "#7a4d00",
    "weights": "#3c5c99",
    "kv_cache": "#0a7b76",
    "ddr_cache": "#8a5a00",
    "offload": "#7040a3",
    "activation": "#b13b47",
    "scratchpad": "#4d6a1c",
    "unknown": "#5d6670",
}
DARK: Mapping[str, str] = {
    "page": "#0e1318",
    "panel": "#161d24",
    "text": "#e6edf3",
    "muted": "#9ba8b5",
    "line": "#35404b",
    "edge": "#7a8794",
    "link": "#7db9ff",
    "good": "#5bd17a",
    "bad": "#ff8b8b",
    "warn": "#e5b54a",
    "weights": "#86aae8",
    "kv_cache": "#4ecfc6",
    "ddr_cache": "#dfb052",
    "offload": "#c8a2f2",
    "activation": "#f39aa2",
    "scratchpad": "#b3d079",
    "unknown": "#a9b3bd",
}
TEXTS = ("text", "muted", "link", "good", "bad", "warn")
"""Read on the page and on panels: 4.5:1 (success criterion 1.4.3)."""
MARKS = ("edge", "weights", "kv_cache", "ddr_cache", "offload", "activation", "scratchpad", "unknown")
"""Told apart from the page: 3:1 (success criterion 1.4.11)."""


def contrast(one: str, two: str) -> float:
    """Contrast ratio of two colours, 1 to 21. https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    low, high = sorted((_luminance(one), _luminance(two)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
