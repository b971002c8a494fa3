"""The ledger leg: what the engine's own boot log says, against the contract. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from archonctl.deployment.schema import Contract, Endpoint
from archonctl.ledger.values import BootLedger, Reading
from archonctl.probe.values import Leg, Proof

LEG = "ledger"
_WINDOW, _SLOTS = "tokens a sequence", "sequences"
_LIMITS = {
    "n_ctx_slot": ("window-short", _WINDOW),
    "context_len": ("window-short", _WINDOW),
    "max_model_len": ("window-short", _WINDOW),
    # radiance boots and is healthy although no request longer than this can ever fit
    "request_limit_tokens": ("window-short", "tokens of one request"),
    "n_slots": ("slots-short", _SLOTS),
    "max_running_requests": ("slots-short", _SLOTS),
    "max_num_seqs": ("slots-short", _SLOTS),
}
_RADIANCE_LIMITS = {"n_seqs": ("slots-short", _SLOTS), "n_ctx_seq": ("window-short", _WINDOW)}
"""llama.cpp says n_ctx_seq of each context, a draft's among them; what binds there is n_ctx_slot."""
_REPLICAS = ("data-parallel-size", "dp-size", "dp")
_HYBRID = ("attention_block_size", "padding_layers", "mamba_blocks")


def replicas_of(endpoint: Endpoint) -> int:
    """Engine replicas behind one address, each with a cache of its own (``--data-parallel-size``); 1 if none is set."""
    found = [endpoint.engine.knobs[name] for name in _REPLICAS if name in endpoint.engine.knobs]
    sizes = [value for value in found if isinstance(value, int) and not isinstance(value, bool) and value > 1]
    return max(sizes, default=1)


def ledger_leg(
    ledger: BootLedger | None,
    contract: Contract,
    engine_kind: str,
    where: str = "the boot log",
    replicas: int = 1,
    blocks: tuple[int, int] | None = None,
) -> Leg:
    """Judge a boot ledger.

    "pass" only if every figure surely suffices (the low end of its rounding), "fail" if one surely does not (the high
    end); no ledger, no KV line, or a rounding that straddles the contract is "no evidence". ``where`` names the log.
    Of ``replicas`` each must hold its share of the sequences. ``blocks``: how many blocks of how many tokens vLLM
    says over HTTP that its pool has; they settle what its log alone leaves to chance.
    """
    if ledger is None:
        return _unseen("ledger-missing", "no boot log was read", f"{contract.tokens:,} KV tokens")
    if ledger.engine and ledger.engine != engine_kind:
        return _unseen(
            "ledger-foreign", f"the boot log is of {ledger.engine}, the endpoint runs {engine_kind}", engine_kind
        )
    return _Judge(ledger, contract, where, replicas, blocks).leg()


class _Judge:
    """One ledger against one contract."""

    def __init__(
        self, ledger: BootLedger, contract: Contract, where: str, replicas: int, blocks: tuple[int, int] | None
    ) -> None:
        self._ledger, self._where, self._replicas, self._blocks = ledger, where, replicas, blocks
        share = math.ceil(contract.seqs / replicas)
        self._contract = contract if replicas == 1 else contract.model_copy(update={"seqs": share})
        self._each = "" if replicas == 1 else f" of each of {replicas} replicas"

    def leg(self) -> Leg:
        """The leg."""
        return self._short() or self._missing() or self._unsure() or self._pass()

    def _limits(self) -> Iterator[tuple[Reading, int, str, str]]:
        """Every figure that can fall short: the reading, what is wanted of it, the code, the words."""
        contract, figures = self._contract, self._ledger.figures
        pool = pool_reading(self._ledger)
        if pool is not None:
            yield pool, contract.tokens, "kv-tokens-short", "KV tokens"
        limits = _LIMITS | (_RADIANCE_LIMITS if self._ledger.engine == "radiance" else {})
        for name, (code, what) in limits.items():
            if name in figures:
                yield figures[name], contract.seqs if code == "slots-short" else contract.len, code, what

    def _short(self) -> Leg | None:
        for reading, wanted, code, what in self._limits():
            if reading.value.high < wanted:
                return Leg(
                    LEG,
                    "fail",
                    f"the boot log says {_span(reading)} {what}{self._each}, the contract needs {wanted:,}: "
                    f"{math.ceil(wanted - reading.value.high):,} short",
                    code=code,
                    expected=f"{wanted:,} {what}",
                    actual=f"{_span(reading)} {what}",
                    evidence=_line(reading),
                    proof=(self._proof(reading),),
                )
        return None

    def _missing(self) -> Leg | None:
        ledger = self._ledger
        names = ("kv_tokens", "n_ctx_slot", "n_slots")
        expected = [name for name in names if name == "kv_tokens" or name in ledger.missing]
        missing = [name for name in expected if name not in ledger.figures]
        if not missing or (missing == ["kv_tokens"] and pool_reading(ledger) is not None):
            return None
        seen = [f"{name} {_span(ledger.figures[name])}" for name in names if name in ledger.figures]
        return _unseen(
            "ledger-missing",
            f"the boot log of {ledger.lines_read:,} lines does not print {', '.join(missing)}"
            + (f" (it does print {', '.join(seen)})" if seen else "")
            + ("; llama-server prints its KV lines only with -lv 4 or higher" if ledger.engine == "llamacpp" else ""),
            f"{self._contract.tokens:,} KV tokens",
        )

    def _unsure(self) -> Leg | None:
        for reading, wanted, _, what in self._limits():
            if reading.value.low < wanted:
                return _unseen(
                    "ledger-rounded",
                    f"the boot log's {what} are {_span(reading)}: too rounded to tell whether {wanted:,} are held",
                    f"{wanted:,} {what}",
                    _line(reading),
                    (self._proof(reading),),
                )
        return self._shorter_on_a_hybrid() or self._refusal()

    def _shorter_on_a_hybrid(self) -> Leg | None:
        """vLLM's tokens are for requests of max_model_len; a state or a sliding window costs a shorter one as much."""
        contract, alike = self._contract, self._layers_alike()
        length, many = self._ledger.figures.get("max_model_len"), self._ledger.figures.get("max_concurrency")
        if alike == "yes" or length is None or many is None or length.value.best <= contract.len:
            return None
        if math.floor(many.value.low) >= contract.seqs:
            return None
        whose = "whose layers differ" if alike == "no" else "whose layers may differ (its log does not tell)"
        return _unseen(
            "ledger-other-length",
            f"the boot log says {many.value.best:g} requests of {length.value.best:,.0f} tokens of a model {whose}: "
            f"that does not tell whether {contract.seqs:,} of {contract.len:,} are held",
            f"{contract.seqs:,} x {contract.len:,} tokens",
            _line(many),
            (self._proof(many),),
        )

    def _layers_alike(self) -> str:
        """The log's own word; where that is a guess, what the engine says of its blocks beside it."""
        figures, facts = self._ledger.figures, self._ledger.facts
        hybrid = any(name in figures for name in _HYBRID) or facts.get("kv_tokens_meaning") == "blocks"
        said = facts.get("layers_alike", "no" if hybrid else "yes")
        return "yes" if said == "likely" and self._is_one_group() else said

    def _is_one_group(self) -> bool:
        """True if a request takes as many of the engine's blocks as one group of layers needs for its length: with
        more groups it takes more of them, with a window alone fewer (vllm/v1/core/kv_cache_utils.py)."""
        tokens, length = self._ledger.get("kv_tokens"), self._ledger.get("max_model_len")
        if self._blocks is None or tokens is None or length is None or min(self._blocks) < 1:
            return False
        count, size = self._blocks
        return abs(int(count / math.ceil(length.best / size) * length.best) - tokens.best) <= 1

    def _refusal(self) -> Leg | None:
        refusal = next((remark for remark in self._ledger.remarks if remark.severity == "refusal"), None)
        if refusal is None:
            return None
        text = f"line {refusal.line_no}: {refusal.text}"
        proof = Proof("log", self._where, refusal.text, line=refusal.line_no)
        said = f"the boot log also holds a refusal ({refusal.code}), {text}"
        return _unseen("ledger-refusal", said, "no refusal", text, (proof,))

    def _pass(self) -> Leg:
        reading, contract = pool_reading(self._ledger), self._contract
        assert reading is not None
        spare = int(reading.value.low) - contract.tokens
        wanted_spare = contract.tokens_with_margin - contract.tokens
        below = f", less than the declared margin of {wanted_spare:,}" if spare < wanted_spare else ""
        return Leg(
            LEG,
            "pass",
            f"{_span(reading)} KV tokens{self._each} for {contract.seqs:,} x {contract.len:,} = {contract.tokens:,}: "
            f"{spare:,} to spare{below}",
            expected=f"{contract.tokens:,} KV tokens",
            actual=f"{_span(reading)} KV tokens",
            evidence=_line(reading),
            proof=tuple(dict.fromkeys(self._proof(each) for each, *_ in self._limits())),
            numbers={"kv_tokens": int(reading.value.low), "spare_tokens": spare},
        )

    def _proof(self, reading: Reading) -> Proof:
        return Proof("log", self._where, reading.text, line=reading.line_no or None)


def pool_reading(ledger: BootLedger) -> Reading | None:
    """The tokens that all sequences share.

    vLLM up to 0.20.0 prints blocks // groups x block size for a hybrid, several times less than it serves: there the
    printed concurrency decides. Where both agree, the tokens are the exact ones of the two.
    """
    tokens, served = ledger.figures.get("kv_tokens"), ledger.figures.get("concurrent_tokens")
    if tokens is None or (served is not None and ledger.facts.get("kv_tokens_meaning") == "blocks"):
        return served
    return tokens


def _unseen(code: str, message: str, expected: str, evidence: str = "", proof: tuple[Proof, ...] = ()) -> Leg:
    return Leg(
        LEG,
        "no evidence",
        message,
        code=code,
        expected=expected,
        actual="not seen",
        evidence=evidence,
        proof=proof,
    )


def _span(reading: Reading) -> str:
    value = reading.value
    return f"{value.low:,.0f}" if value.is_exact else f"{value.low:,.0f} to {value.high:,.0f}"


def _line(reading: Reading) -> str:
    return f"line {reading.line_no}: {reading.text}"
