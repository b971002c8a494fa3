"""exllamav2 and exllamav3: the cache is as long as it is asked to be; nothing of it is printed."""

from __future__ import annotations

from archonctl.ledger.case import CaseFacts
from archonctl.ledger.predict import Prediction
from archonctl.ledger.values import BootLedger

PAGE = 256
"""Tokens a page (PAGE_SIZE in exllamav2/generator/dynamic.py and exllamav3/constants.py)."""


def predict_case(facts: CaseFacts, ledger: BootLedger) -> Prediction:
    """Tokens asked for, in whole pages, if memory allows them. ``ledger`` says nothing of the cache."""
    asked = facts.number("cache_size", "max_seq_len", "max_num_tokens")
    if not asked:
        return Prediction(
            reason=f"{ledger.engine} allocates the cache that it is asked for, and cache_size is not stated"
        )
    tokens = -(-asked // PAGE) * PAGE
    return Prediction(tokens, "blind", f"cache_size in pages of {PAGE} tokens", low_tokens=tokens, high_tokens=tokens)
