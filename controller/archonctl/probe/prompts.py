"""Prompts of a wanted number of tokens, that share no beginning with each other.

Words in random order, so that neither a prefix cache nor anything cleverer can serve one from another. The number of
tokens is always what the engine's own tokenizer counts; merging tokenizers are met by searching, not by assuming.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random

from archonctl.probe.faults import unseen

Count = Callable[[str], Awaitable[int]]

TOLERANCE = 16
"""How many tokens a prompt may stay under its target; the answer's budget makes up for it, so the height is exact."""
REQUEST = "\n\nRepeat all of the words above in the same order, then begin again, and do not stop."
"""Keeps a model that cannot be told to ignore its end-of-text token busy for long."""
_LEAST_FOR_REQUEST = 1024
_HEAD_WORDS = 3
"""Words that are the prompt's number: 64 to the third is more than ``contract.seqs`` may be."""
_ROUNDS = 40
_WORDS_PER_TOKEN = 4
"""No tokenizer makes one token of more random words than that: a count that says so is no count."""

_TEXT = (
    "apple river stone cloud paper green table light north water field sound horse metal glass sugar bread train "
    "house plant tower music ocean flame brick chair cable wheel honey lemon pearl tiger grape amber cedar delta "
    "eagle frost giant hotel index joker knife llama mango noble olive piano queen radar salad torch uncle vivid "
    "whale xenon yacht zebra basin coral dwarf ember ivory jelly"
)
WORDS = tuple(_TEXT.split())
"""64 words of 5 letters."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text and its tokens as the engine's tokenizer counts them (no chat template)."""

    text: str
    tokens: int


class PromptSource:
    """Texts for one probe run. Prompt ``i`` begins unlike every other prompt of this run."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = secrets.randbits(64) if seed is None else seed
        self._shift = self._seed % len(WORDS)

    def text(self, index: int, words: int) -> str:
        """The first ``words`` words of prompt ``index``; a longer one begins with every shorter one."""
        if words <= 0:
            return ""
        digits = [index // len(WORDS) ** place % len(WORDS) for place in range(_HEAD_WORDS)]
        head = [WORDS[(digit + self._shift) % len(WORDS)] for digit in digits]
        rng = Random(f"{self._seed}/{index}")
        body = rng.choices(WORDS, k=max(0, words - len(head)))
        return " ".join([*head, *body][:words])

    async def sized(self, index: int, target: int, count: Count, tokens_per_word: float = 0.0) -> Prompt:
        """A prompt of ``target`` tokens, or up to :data:`TOLERANCE` fewer; ``tokens_per_word`` is a first guess.

        Raises Fault ``prompt-not-sizable`` if the tokenizer's counts lead nowhere.
        """
        ending = REQUEST if target >= _LEAST_FOR_REQUEST else ""
        low, low_tokens, high = 0, 0, 0
        words = max(1, int(target / tokens_per_word)) if tokens_per_word else max(1, target // 2)
        for _ in range(_ROUNDS):
            text = self.text(index, words) + ending
            tokens = await count(text)
            if target - TOLERANCE <= tokens <= target:
                return Prompt(text, tokens)
            if tokens <= target:
                low, low_tokens = words, tokens
            else:
                high = words
            if (high and high - low <= 1) or words > _WORDS_PER_TOKEN * target + TOLERANCE:
                break
            rate = max(tokens / words, 1e-3)
            words = self._next(words + (target - TOLERANCE // 2 - tokens) / rate, low, high, words)
        raise unseen(
            "prompt-not-sizable",
            f"no prompt of {target:,} tokens could be made: {low:,} words are {low_tokens:,} tokens"
            + (f", {high:,} words are more than {target:,}" if high else ""),
            expected=f"{target - TOLERANCE:,} to {target:,} tokens",
            actual=f"{low_tokens:,} tokens",
        )

    @staticmethod
    def _next(guess: float, low: int, high: int, now: int) -> int:
        """The next number of words: the guess, kept strictly between what is known to be too few and too many."""
        if not high:
            return max(low + 1, min(round(guess), now * 4))
        wanted = round(guess)
        return wanted if low < wanted < high else (low + high) // 2 or 1
