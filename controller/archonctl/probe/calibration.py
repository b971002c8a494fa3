"""The size of the calibration request. Pure, and apart from what sends it, so that a cost can be told without HTTP."""

from __future__ import annotations

LARGEST = 16_384
"""Tokens of the largest calibration prompt."""


def calibration_tokens(length: int) -> int:
    """Prompt tokens of the calibration request for a contract of ``length`` tokens a sequence."""
    return max(1, min(length // 2, max(128, min(LARGEST, length // 8))))
