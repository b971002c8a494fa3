"""Predict the KV tokens of a case from its model geometry and the memory that its log names.

The tokens that the log prints never go in: a prediction is made from bytes and checked against them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import cast

from archonctl.errors import ArchonError
from archonctl.ledger.case import CaseFacts, case_facts
from archonctl.ledger.quoted import quoted_figures
from archonctl.ledger.values import BootLedger, Reading
from archonctl.memory.interval import Interval


@dataclass(frozen=True, slots=True)
class Prediction:
    """Tokens by a law, or None and the reason.

    ``basis`` is "bytes" where printed available bytes went in, "blind" where card, model and flags alone did.
    ``low_tokens`` and ``high_tokens`` are what the rounding of the printed figures (or a stated error) allows.
    """

    kv_tokens: int | None = None
    basis: str = ""
    method: str = ""
    reason: str = ""
    low_tokens: int | None = None
    high_tokens: int | None = None


Predictor = Callable[[CaseFacts, BootLedger], Prediction]

_LAWS = {
    "vllm": "archonctl.ledger.predict_vllm",
    "sglang": "archonctl.ledger.predict_sglang",
    "llamacpp": "archonctl.ledger.predict_llamacpp",
    "ollama": "archonctl.ledger.predict_llamacpp",
    "tensorrt_llm": "archonctl.ledger.predict_paged",
    "vllm_rs": "archonctl.ledger.predict_paged",
    "mistral_rs": "archonctl.ledger.predict_paged",
    "exllama": "archonctl.ledger.predict_exllama",
}


def predict(record: Mapping[str, object], ledger: BootLedger) -> Prediction:
    """What the laws say about one case; a reason where none of them applies."""
    law = _LAWS.get(ledger.engine)
    if law is None:
        stated = record.get("engine")
        name = stated if ledger.engine in ("", "unknown") and isinstance(stated, str) else ledger.engine
        return Prediction(reason=f"no KV law for {name[:40] or 'an unknown engine'}")
    predictor = cast(Predictor, import_module(law).predict_case)
    if not ledger.figures:
        ledger = replace(ledger, figures=_quoted(record))
    try:
        return predictor(case_facts(record), ledger)
    except ArchonError as err:
        return Prediction(reason=err.message)


def _quoted(record: Mapping[str, object]) -> Mapping[str, Reading]:
    """Figures that a report quotes in prose or in a table, where no line is the engine's own."""
    lines = record.get("log_lines")
    words = [line for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    return {
        name: Reading(
            Interval.rounded(f"{value:.2f}") if isinstance(value, float) else Interval.exact(value, "log"), 0, ""
        )
        for name, value in quoted_figures(words).items()
    }
