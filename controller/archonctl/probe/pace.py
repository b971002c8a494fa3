"""What a smaller request measured. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Measured on a smaller request: ``tokens`` were prefilled in ``prefill_s``, one answer token takes ``step_s``.

    ``steps_per_token``: answer tokens that another sequence generates while one prompt token is prefilled; None where
    it could not be seen. ``overhead_tokens``: what the engine adds to a prompt (BOS, chat template). ``in_one_piece``:
    the answer came whole, as from a proxy that buffers: ``step_s`` is an upper bound then, and nothing comes before
    the end.
    """

    tokens: int
    prefill_s: float
    step_s: float
    steps_per_token: float | None
    overhead_tokens: int
    in_one_piece: bool = False

    def prefill_bound_s(self, tokens: int) -> float:
        """Seconds that prefilling ``tokens`` may take: attention makes the cost grow with the square at worst."""
        return 2 * self.prefill_s * max(1.0, tokens / self.tokens) ** 2
