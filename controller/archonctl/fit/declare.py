"""The declaration that a candidate is: what is judged here is what ``archonctl plan`` would judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Literal

from archonctl.deployment.schema import Contract, Endpoint, Engine, EngineKind, HostRef, KnobValue, ModelRef
from archonctl.fit.kv_served import KvServed
from archonctl.host.profile import Card, Host
from archonctl.host.visible import visible_environment

STATIC_SHARE = 0.85
"""mem-fraction-static of SGLang: the rest is for activations and graphs (its own choice lies around it)."""
Maker = Literal["", "nvidia", "amd", "intel"]
DEFAULT_SHARE = 0.92
"""gpu-memory-utilization of vLLM where nobody says, since 0.20.0 (0.90 before; vllm/config/cache.py)."""
KINDS: Mapping[str, EngineKind] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One quant under one engine over ``tp`` cards (0: in RAM). ``expert_layers`` leave their experts in RAM."""

    path: str
    engine: str
    seqs: int
    len: int
    kv: KvServed
    tp: int
    maker: Maker = ""
    expert_layers: int = 0


@dataclass(frozen=True, slots=True)
class Declared:
    """A candidate with all that its declaration says; most are never asked for it."""

    candidate: Candidate
    host: Host
    stated_kv_bytes: int = 0
    cards: tuple[Card, ...] = ()

    @property
    def endpoint(self) -> Endpoint:
        """The declaration: on ``cards`` of the host alone."""
        env = visible_environment(self.cards, self.host)
        return endpoint_of(self.candidate, self.stated_kv_bytes, self.cards, env)


def endpoint_of(
    one: Candidate, stated_kv_bytes: int = 0, cards: Sequence[Card] = (), env: Mapping[str, str] | None = None
) -> Endpoint:
    """The declaration. With ``stated_kv_bytes`` vLLM is told its cache exactly, instead of a share of the card."""
    return Endpoint(
        contract=Contract(seqs=one.seqs, len=one.len, kv_dtype=one.kv.dtype),
        engine=Engine(
            kind=KINDS[one.engine], knobs=_knobs(one, stated_kv_bytes) | _share(one, cards), env=dict(env or {})
        ),
        model=ModelRef(path=one.path),
        host=HostRef(),
    )


def _knobs(one: Candidate, stated_kv_bytes: int) -> dict[str, KnobValue]:
    if one.engine == "vllm":
        knobs: dict[str, KnobValue] = {"tensor-parallel-size": one.tp} if one.tp > 1 else {}
        return knobs | ({"kv-cache-memory-bytes": stated_kv_bytes} if stated_kv_bytes else {})
    if one.engine == "sglang":
        share: dict[str, KnobValue] = {"mem-fraction-static": STATIC_SHARE}
        return share | ({"tp-size": one.tp} if one.tp > 1 else {})
    # What llama-server may grow to in RAM is a comfort and no part of the question.
    found: dict[str, KnobValue] = {"cache-ram": 0, "ctx-checkpoints": 0}
    found["gpu-layers"] = "all" if one.tp else 0
    if one.tp > 1:
        found["tensor-split"] = ",".join(["1"] * one.tp)
    if one.expert_layers:
        found["n-cpu-moe"] = one.expert_layers
    return found


def _share(one: Candidate, cards: Sequence[Card]) -> dict[str, KnobValue]:
    """vLLM refuses to start where less is free than its share of the card, even if its cache is stated
    (v1/worker/utils.py ``request_memory``): on a card that others use too, the share is what is free."""
    shares = [card.free_mib / card.total_mib for card in cards if card.free_mib is not None]
    least = floor(min(shares, default=1.0) * 100) / 100
    return {"gpu-memory-utilization": least} if one.engine == "vllm" and 0 < least < DEFAULT_SHARE else {}
