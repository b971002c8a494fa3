"""What llama-server says at the end of an answer: how much of the prompt it had, and how much it computed, how fast.

``timings`` of tools/server/server-task.cpp (``server_slot_stats::to_json``): in every whole answer and in the last
event of a stream. Text of a model cannot pass for it: inside of a JSON string each quote has a backslash before it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TIMINGS = re.compile(
    rb'[,{]"timings":\{"cache_n":(\d{1,12}),"prompt_n":(\d{1,12}),"prompt_ms":(\d{1,12}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?),'
)


@dataclass(frozen=True, slots=True)
class Served:
    """Of one prompt: tokens that lay in the slot, tokens that were prefilled, and the seconds that this took."""

    cached_tokens: int
    prefilled_tokens: int
    prefill_s: float

    @property
    def prompt_tokens(self) -> int:
        """All of the prompt."""
        return self.cached_tokens + self.prefilled_tokens


def served(tail: bytes) -> Served | None:
    """From the last bytes of an answer; ``None`` where it does not say (cancelled, refused, another engine)."""
    last = next(reversed(list(_TIMINGS.finditer(tail))), None)
    return None if last is None else Served(int(last[1]), int(last[2]), float(last[3]) / 1000)
