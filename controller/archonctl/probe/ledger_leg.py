"""The ledger leg: what the engine's own boot log says, against the contract. Pure."""

from __future__ import annotations

import math

from archonctl.deployment.schema import Contract
from archonctl.ledger.values import BootLedger, Reading
from archonctl.probe.values import Leg

LEG = "ledger"
_LIMITS = (
    ("kv_tokens", "kv-tokens-short", "KV tokens"),
    ("n_ctx_slot", "window-short", "tokens a sequence"),
    ("n_slots", "slots-short", "sequences"),
)


def ledger_leg(ledger: BootLedger | None, contract: Contract, engine_kind: str) -> Leg:
    """Judge a boot ledger.

    "pass" only if every figure surely suffices (the low end of its rounding), "fail" if one surely does not (the high
    end); no ledger, no KV line, or a rounding that straddles the contract is "no evidence".
    """
    if ledger is None:
        return _unseen("ledger-missing", "no boot log was read", f"{contract.tokens:,} KV tokens")
    if ledger.engine and ledger.engine != engine_kind:
        return _unseen(
            "ledger-foreign", f"the boot log is of {ledger.engine}, the endpoint runs {engine_kind}", engine_kind
        )
    return (
        _short(contract, ledger) or _missing(contract, ledger) or _unsure(contract, ledger) or _pass(contract, ledger)
    )


def _short(contract: Contract, ledger: BootLedger) -> Leg | None:
    for name, code, what in _LIMITS:
        reading, wanted = ledger.figures.get(name), _wanted(contract, name)
        if reading is not None and reading.value.high < wanted:
            return Leg(
                LEG,
                "fail",
                f"the boot log says {_span(reading)} {what}, the contract needs {wanted:,}: "
                f"{math.ceil(wanted - reading.value.high):,} short",
                code=code,
                expected=f"{wanted:,} {what}",
                actual=f"{_span(reading)} {what}",
                evidence=_line(reading),
            )
    return None


def _missing(contract: Contract, ledger: BootLedger) -> Leg | None:
    expected = [name for name, _, _ in _LIMITS if name == "kv_tokens" or name in ledger.missing]
    missing = [name for name in expected if name not in ledger.figures]
    if not missing:
        return None
    seen = [f"{name} {_span(ledger.figures[name])}" for name, _, _ in _LIMITS if name in ledger.figures]
    return _unseen(
        "ledger-missing",
        f"the boot log of {ledger.lines_read:,} lines does not print {', '.join(missing)}"
        + (f" (it does print {', '.join(seen)})" if seen else "")
        + ("; llama-server prints its KV lines only with -lv 4 or higher" if ledger.engine == "llamacpp" else ""),
        f"{contract.tokens:,} KV tokens",
    )


def _unsure(contract: Contract, ledger: BootLedger) -> Leg | None:
    for name, _, what in _LIMITS:
        reading, wanted = ledger.figures.get(name), _wanted(contract, name)
        if reading is not None and reading.value.low < wanted:
            return _unseen(
                "ledger-rounded",
                f"the boot log's {what} are {_span(reading)}: too rounded to tell whether {wanted:,} are held",
                f"{wanted:,} {what}",
                _line(reading),
            )
    refusal = next((remark for remark in ledger.remarks if remark.severity == "refusal"), None)
    if refusal is None:
        return None
    text = f"line {refusal.line_no}: {refusal.text}"
    return _unseen("ledger-refusal", f"the boot log also holds a refusal ({refusal.code}), {text}", "no refusal", text)


def _pass(contract: Contract, ledger: BootLedger) -> Leg:
    reading = ledger.figures["kv_tokens"]
    spare = int(reading.value.low) - contract.tokens
    wanted_spare = contract.tokens_with_margin - contract.tokens
    below = f", less than the declared margin of {wanted_spare:,}" if spare < wanted_spare else ""
    return Leg(
        LEG,
        "pass",
        f"{_span(reading)} KV tokens for {contract.seqs:,} x {contract.len:,} = {contract.tokens:,}: "
        f"{spare:,} to spare{below}",
        expected=f"{contract.tokens:,} KV tokens",
        actual=f"{_span(reading)} KV tokens",
        evidence=_line(reading),
    )


def _wanted(contract: Contract, name: str) -> int:
    return {"kv_tokens": contract.tokens, "n_ctx_slot": contract.len, "n_slots": contract.seqs}[name]


def _unseen(code: str, message: str, expected: str, evidence: str = "") -> Leg:
    return Leg(LEG, "no evidence", message, code=code, expected=expected, actual="not seen", evidence=evidence)


def _span(reading: Reading) -> str:
    value = reading.value
    return f"{value.low:,.0f}" if value.is_exact else f"{value.low:,.0f} to {value.high:,.0f}"


def _line(reading: Reading) -> str:
    return f"line {reading.line_no}: {reading.text}"
