"""Predict the KV tokens of a case from its model geometry and the memory that its log names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.ledger.values import BootLedger


@dataclass(frozen=True, slots=True)
class Prediction:
    """Tokens by a law, or None and the reason.

    ``basis`` is "bytes" where printed available bytes went in, "blind" where card and model alone did.
    """

    kv_tokens: int | None = None
    basis: str = ""
    method: str = ""
    reason: str = ""


def predict(record: Mapping[str, object], ledger: BootLedger) -> Prediction:
    """What the laws say about one case."""
    del record
    return Prediction(reason=f"no KV law for {ledger.engine} is applied to a case yet")
