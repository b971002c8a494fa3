"""What would make a contract hold: the smallest change of each kind, every one tried against the forward law.

Order: memory first (host pool in the resolver era, the pair before it), then a cheaper KV dtype, then fewer
sequences, then a shorter window. A change that does not make the contract hold is not proposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from archonctl.deployment.schema import Contract, Endpoint, KnobValue
from archonctl.engines.base import Forecast, Lever
from archonctl.engines.change import changed
from archonctl.engines.radiance.cards import slab_notes
from archonctl.engines.radiance.knobtable import find, parse_version
from archonctl.engines.radiance.kv import era_of
from archonctl.host.profile import Host
from archonctl.memory.demand import HEADROOM
from archonctl.memory.interval import MIB

Assess = Callable[[Endpoint], Forecast]

STEP_MIB = 64
"""Grain of a proposed pool; every pool that shipped on the archon host is a multiple of it or of 1 MiB by hand."""
LEN_STEP = 1000
"""Grain of a proposed window, in tokens."""
_OVER_CEILING = "card-over-ceiling"


def levers(endpoint: Endpoint, host: Host, now: Forecast, assess: Assess) -> tuple[Lever, ...]:
    """Changes that turn ``now`` into "holds", smallest first; empty if it holds already or if nothing helps."""
    trial = _Trial(endpoint, host, now, assess)
    if trial.holds(now, endpoint.contract):
        return ()
    found = (
        _limits(trial),
        _slab(trial),
        _host_pool(trial) if _resolver(endpoint) else _pair(trial),
        _dtype(trial),
        _fewer(trial),
        _shorter(trial),
    )
    return tuple(lever for lever in found if lever is not None)


class _Trial:
    """One declaration and the question "would it hold with these changes?"."""

    def __init__(self, endpoint: Endpoint, host: Host, now: Forecast, assess: Assess) -> None:
        self.endpoint, self.host, self.now, self._assess = endpoint, host, now, assess

    def assess(self, changes: Mapping[str, KnobValue]) -> tuple[Forecast, Endpoint]:
        """The forecast with changes of dotted declaration keys."""
        endpoint = changed(self.endpoint, changes)
        return self._assess(endpoint), endpoint

    def works(self, changes: Mapping[str, KnobValue]) -> bool:
        """True if the contract (as changed) would hold, and nothing would be wrong any more."""
        forecast, endpoint = self.assess(changes)
        return self.holds(forecast, endpoint.contract)

    def holds(self, forecast: Forecast, contract: Contract) -> bool:
        """The rule of a plan, applied to a forecast: problems, limits, both ends of the capacity, host memory."""
        tokens = forecast.kv_tokens
        if tokens is None or forecast.problems:
            return False
        limits = (forecast.seqs_limit or contract.seqs) >= contract.seqs
        limits &= (forecast.seq_len_limit or contract.len) >= contract.len
        enough = tokens.low >= contract.tokens and tokens.best >= contract.tokens_with_margin
        return limits and enough and self.room_mib(forecast) >= 0

    def room_mib(self, forecast: Forecast) -> float:
        """Host memory left after the demands and the usual headroom; infinite where the host's size is unknown."""
        known = [m for m in (self.host.ram_mib, self.host.available_mib, self.host.cgroup_limit_mib) if m is not None]
        wanted = sum(d.bytes for d in forecast.demands if d.scope == "host") / MIB
        return min(known) * (1 - HEADROOM) - wanted if known else math.inf

    def least(self, low: int, high: int, works: Callable[[int], bool]) -> int | None:
        """The least number in [low, high] for which ``works``, which must not turn false again above it."""
        if low > high or not works(high):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if works(middle) else (middle + 1, high)
        return low

    def knob_key(self, flag: str) -> str:
        """The declaration's own spelling of a knob, so that a change replaces it."""
        spelled = (key for key in self.endpoint.engine.knobs if (knob := find(key)) and knob.flag == flag)
        return "engine.knobs." + next(spelled, flag)

    def has_knob(self, flag: str) -> bool:
        """True if the declaration sets the knob."""
        return self.knob_key(flag).removeprefix("engine.knobs.") in self.endpoint.engine.knobs

    def value(self, flag: str) -> int:
        """A whole-number knob as declared; 0 if it is not set."""
        value = self.endpoint.engine.knobs.get(self.knob_key(flag).removeprefix("engine.knobs."), 0)
        return int(value) if str(value).isdigit() else 0


def _resolver(endpoint: Endpoint) -> bool:
    return era_of(parse_version(endpoint.engine.version)) == "resolver"


def _limits(trial: _Trial) -> Lever | None:
    """Knobs that stand under the contract."""
    contract, now = trial.endpoint.contract, trial.now
    changes: dict[str, KnobValue] = {}
    if now.seqs_limit is not None and now.seqs_limit < contract.seqs:
        changes[trial.knob_key("max-num-seqs")] = contract.seqs
    if now.seq_len_limit is not None and now.seq_len_limit < contract.len and trial.has_knob("max-model-len"):
        changes[trial.knob_key("max-model-len")] = contract.len
    if not changes or not trial.works(changes):
        return None
    return Lever("raise the knobs that stand under the contract", changes)


def _host_pool(trial: _Trial) -> Lever | None:
    """Resolver era: more pinned host memory takes expert demand off the card, and the cache wins it."""
    now, tokens = trial.now, trial.now.kv_tokens
    if tokens is None or not now.host_need.ttm_floor_mib:
        return None
    key, pool = trial.knob_key("host-pool-mib"), trial.value("host-pool-mib")
    slab = min((card.slab_mib for card in now.cards if card.slab_mib), default=None)
    most = int(min(_room_a_rank(trial), slab if slab is not None else math.inf, 2**20) // STEP_MIB)
    while most > 0 and trial.assess({key: pool + most * STEP_MIB})[0].kv_tokens is None:
        most = most * 9 // 10  # past the reach of every boot that was seen nothing is known
    steps = trial.least(1, most, lambda n: trial.works({key: pool + n * STEP_MIB}))
    if steps is None:
        return None
    more = steps * STEP_MIB
    after, _ = trial.assess({key: pool + more})
    if after.kv_tokens is None:
        return None
    low, high = int(after.kv_tokens.low - tokens.low), int(after.kv_tokens.high - tokens.high)
    floor, new_floor = now.host_need.ttm_floor_mib, after.host_need.ttm_floor_mib
    text = (
        f"host pool +{more:,} MiB a rank ({pool:,} -> {pool + more:,}): wins {low:,} to {high:,} tokens by method; "
        f"the TTM floor moves from {floor:,} to {new_floor:,} MiB"
    )
    share = f"about {more / slab:.1%} of the slab (of about {slab:,.0f} MiB), " if slab else ""
    cost = f"{share.replace('%', ' %')}{more * len(now.cards):,} MiB of host memory"
    left = slab - more if slab is not None else None
    return Lever(text, {key: pool + more}, low, cost, _lost(slab, left), throughput=_prefill(left))


def _room_a_rank(trial: _Trial) -> float:
    """Host memory that a rank's pool may still take: by RAM and by the TTM target."""
    floor, target = trial.now.host_need.ttm_floor_mib, trial.host.ttm_target_mib
    pinned = target - floor if floor is not None and target is not None else math.inf
    return max(0.0, min(trial.room_mib(trial.now), pinned)) / max(1, len(trial.now.cards))


def _slab(trial: _Trial) -> Lever | None:
    """Pair era: a pool that is large enough beside a slab that is too large for the card."""
    pool, slab, key = trial.value("vram-kv-mib"), trial.value("vram-weights-mib"), trial.knob_key("vram-weights-mib")
    ceiling = min((card.ceiling_mib for card in trial.now.cards if card.ceiling_mib is not None), default=None)
    if ceiling is None or not any(problem.code == _OVER_CEILING for problem in trial.now.problems):
        return None
    left = int(ceiling) - pool
    if not 0 < left < slab or not trial.works({key: left}):
        return None
    share = f"{(slab - left) / slab:.1%}".replace("%", " %")
    cost = f"{share} of the slab; its experts need that much more host pool"
    text = f"slab {slab - left:,} MiB less a card ({slab:,} -> {left:,})"
    return Lever(text, {key: left}, None, cost, _lost(slab, left), throughput=_prefill(left))


def _pair(trial: _Trial) -> Lever | None:
    """Pair era: a larger pool, and a smaller slab where the card is full."""
    pool, slab = trial.value("vram-kv-mib"), trial.value("vram-weights-mib")
    pool_key, slab_key = trial.knob_key("vram-kv-mib"), trial.knob_key("vram-weights-mib")
    if not pool or not slab:
        return None
    ceiling = min((card.ceiling_mib for card in trial.now.cards if card.ceiling_mib is not None), default=None)
    limit = int(ceiling) if ceiling is not None else pool + slab

    def pair(steps: int) -> dict[str, KnobValue]:
        wanted = pool + steps * STEP_MIB
        return {pool_key: wanted, slab_key: max(0, min(slab, limit - wanted))}

    steps = trial.least(1, (limit - pool - 1) // STEP_MIB, lambda n: trial.works(pair(n)))
    if steps is None:
        return None
    changes = pair(steps)
    less = slab - int(changes[slab_key])
    if not less:
        changes.pop(slab_key)
    before, after = trial.now.kv_tokens, trial.assess(changes)[0].kv_tokens
    wins = int(after.best - before.best) if before is not None and after is not None else None
    text = f"pool +{steps * STEP_MIB:,} MiB a card ({pool:,} -> {pool + steps * STEP_MIB:,})"
    text += f", slab {slab:,} -> {slab - less:,} to stay under the ceiling" if less else ""
    cost = f"{less / slab:.1%} of the slab; its experts need that much more host pool" if less else ""
    price = (cost.replace("%", " %", 1), _lost(slab, slab - less) if less else 0.0)
    return Lever(text, changes, wins, *price, throughput=_prefill(slab - less) if less else "")


def _dtype(trial: _Trial) -> Lever | None:
    """bf16 to fp8: 1.89 times the tokens, at the price of a quantised cache."""
    if trial.endpoint.contract.kv_dtype != "bf16":
        return None
    changes: dict[str, KnobValue] = {"contract.kv_dtype": "fp8"}
    if trial.has_knob("kv-cache-dtype"):
        changes[trial.knob_key("kv-cache-dtype")] = "fp8"
    if not trial.works(changes):
        return None
    before, after = trial.now.kv_tokens, trial.assess(changes)[0].kv_tokens
    wins = int(after.best - before.best) if before is not None and after is not None else None
    cost = "a quantised cache: the model computes a little else"
    return Lever("KV dtype fp8 in place of bf16", changes, wins, cost, quality="an fp8 cache: answers may differ")


def _lost(slab: float | None, left: float | None) -> float | None:
    """MiB of slab that one card gives up; None where the slab is not known."""
    return None if slab is None or left is None else round(slab - left, 2)


def _prefill(slab: float | None) -> str:
    """What is known of prefill at a slab, from measured points; empty where nothing is."""
    return "; ".join(slab_notes(slab)) if slab is not None else ""


def _fewer(trial: _Trial) -> Lever | None:
    contract = trial.endpoint.contract
    own = trial.has_knob("max-num-seqs")

    def fewer(less: int) -> dict[str, KnobValue]:
        seqs = contract.seqs - less
        return {"contract.seqs": seqs, **({trial.knob_key("max-num-seqs"): seqs} if own else {})}

    less = trial.least(1, contract.seqs - 1, lambda n: trial.works(fewer(n)))
    if less is None:
        return None
    seqs = contract.seqs - less
    text = f"promise {seqs:,} x {contract.len:,} in place of {contract.seqs:,}"
    return Lever(text, fewer(less), None, f"{less:,} of {contract.seqs:,} conversations at once")


def _shorter(trial: _Trial) -> Lever | None:
    contract = trial.endpoint.contract
    most = (contract.len - 1) // LEN_STEP
    steps = trial.least(1, most, lambda n: trial.works({"contract.len": (most + 1 - n) * LEN_STEP}))
    if steps is None:
        return None
    length = (most + 1 - steps) * LEN_STEP
    return Lever(
        f"promise {contract.seqs:,} x {length:,} in place of {contract.len:,}",
        {"contract.len": length},
        None,
        f"{contract.len - length:,} tokens of every conversation",
    )
