"""What ``--speculative-config`` adds to the cache: layers of a draft, and states for drafted tokens.

Read from vLLM 0.32.0 ``config/speculative.py`` (methods), ``config/vllm.py`` (which of them leave asynchronous
scheduling on) and ``MambaSpec`` (a state more for each drafted token).
"""

from __future__ import annotations

import json
from dataclasses import dataclass

LOOKUPS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Drafts without layers."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """``tokens`` a step and cache layers of the draft; ``known`` is False where the layers are another model's."""

    tokens: int = 0
    layers: int = 0
    known: bool = True
    overlaps: bool = True
    """False where asynchronous scheduling is switched off for it."""


def drafts_of(text: str) -> Drafts:
    """The draft that a speculative-config asks for; what cannot be read is not known."""
    if not text.strip():
        return Drafts()
    try:
        said = json.loads(text)
    except ValueError:
        return Drafts(known=False)
    method = str(said.get("method") or "").lower() if isinstance(said, dict) else ""
    tokens = said.get("num_speculative_tokens") if isinstance(said, dict) else None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1 or "quantization" in said:
        return Drafts(known=False)
    if method in LOOKUPS:
        return Drafts(tokens, overlaps=method == "ngram_gpu")
    if (method == "mtp" or method.endswith("_mtp")) and not said.get("model"):
        return Drafts(tokens, 1)
    return Drafts(known=False)
