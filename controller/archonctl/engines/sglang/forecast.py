"""SGLang's pool in tokens for one declaration: from a boot that was seen, else from the card less the weights.

``--mem-fraction-static`` is the share, of what the tightest card has free before the load, for weights and pools
together; what it leaves is the pools' (``_profile_available_bytes`` in srt/model_executor, 0.5.12). Without one SGLang
chooses a share by itself, which is not known here: then only a boot tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from archonctl.deployment.schema import Boot, Endpoint
from archonctl.engines.base import CardRule, CardShare, Forecast, Problem
from archonctl.engines.beside import beside_demands, lora_bytes, unknown_parts
from archonctl.engines.host_cache import cache_demands
from archonctl.engines.sglang.kv import (
    Rates,
    in_one_pool,
    kv_share,
    pool_tokens,
    rates,
    static_bytes,
    swa_tokens,
    two_pools,
)
from archonctl.engines.sglang.pool import CONTEXT_GIB, Pool, Share
from archonctl.engines.sglang.settings import Settings, boot_endpoint, settings_of, shape_of
from archonctl.engines.sglang.stages import Stage, stages_of
from archonctl.engines.sglang.terms import explain
from archonctl.host.profile import Card, Host
from archonctl.memory.demand import Demand
from archonctl.memory.interval import GIB, MIB, Interval
from archonctl.model.geometry import Geometry, ModelFacts


def forecast(endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = True) -> Forecast:
    """Apply the law, with its working if ``detail``.

    Raises DeclarationError for knobs that cannot be understood (see ``settings_of``).
    """
    settings = settings_of(endpoint)
    stages = stages_of(model, settings)
    used, shape = host.cards[: settings.ranks], shape_of(endpoint, settings)
    slots = lora_bytes(model, shape.lora, settings.tp) if shape.lora and model else 0
    stage, each, pool = _binding(endpoint, settings, host, stages, slots)
    weights = stage.weights
    return Forecast(
        method=pool.method if pool.tokens else f"unknown: {pool.method}",
        kv_tokens=pool.tokens,
        seqs_limit=settings.running,
        seq_len_limit=settings.context_tokens,
        cards=tuple(_cards(endpoint, settings, host, each, weights, pool)),
        demands=(
            *_demands(settings, weights, pool, used),
            *_offloaded(settings, stages),
            *cache_demands(endpoint, settings.ranks, int(pool.bytes.best) * settings.ranks if pool.bytes else None),
            *(demand for card in used for demand in beside_demands(card, shape, model)),
        ),
        card_rule=CardRule(headroom=0.0),
        notes=tuple(_notes(endpoint, settings)),
        not_modelled=(*_not_modelled(settings, model), *unknown_parts(used, shape, model)),
        problems=tuple(_problems(endpoint, settings, model)),
        terms=explain(endpoint, settings, each, _states(stage.model), windows(settings, stage.model), pool)
        if detail
        else (),
    )


def _binding(
    endpoint: Endpoint, settings: Settings, host: Host, stages: tuple[Stage, ...], slots: int | None
) -> tuple[Stage, Rates | None, Pool]:
    """The stage with the fewest tokens, which all others follow, of those that keep any; its rates and its pool.

    ``slots`` are bytes of LoRA slots, which are there before the pools are sized (srt/model_executor/model_runner.py);
    None where no law covers them.
    """
    found = []
    for stage in stages:
        geometry = stage.model.geometry if stage.model else None
        each = _rates(geometry, settings, endpoint.engine.version) if geometry else None
        pool = _capped(_pool(endpoint, settings, host, stage.model, each, _with(stage.weights, slots)), settings)
        found.append((stage, each, pool))
    keeping = [one for one in found if one[1] is None or one[1].token or one[1].sliding] or found
    return min(keeping, key=lambda one: one[2].tokens.best if one[2].tokens else -1)


def _with(weights: Interval | None, slots: int | None) -> Interval | None:
    if weights is None or slots is None:
        return None
    return Interval(weights.low + slots, weights.best + slots, weights.high + slots, weights.source)


def _rates(geometry: Geometry, settings: Settings, version: str) -> Rates:
    draft = (geometry.nextn_layers or 1) if settings.drafts else 0
    each = rates(geometry, tp=settings.tp, dtype=settings.kv_dtype, draft_layers=draft)
    return each if settings.window_pool and two_pools(geometry.architecture, version) else in_one_pool(each)


def _states(model: ModelFacts | None) -> bool:
    """True if some layers keep a recurrent state instead of keys and values."""
    layers = model.geometry.layers if model and model.geometry else ()
    return any(layer.attention == "recurrent" for layer in layers)


def _pool(
    endpoint: Endpoint,
    settings: Settings,
    host: Host,
    model: ModelFacts | None,
    each: Rates | None,
    weights: Interval | None,
) -> Pool:
    reasons = []
    sharing = model.geometry.sharing_layers if model and model.geometry else 0
    each = None if sharing else each
    for boot in endpoint.boot:
        pool, why = _seen(endpoint, settings, boot, each, model)
        if pool:
            return pool
        reasons.append(why)
    cards = host.cards[: settings.ranks]
    if sharing:
        reasons.append(f"{sharing} layers read the rows of others; SGLang keeps rows for them too, by no law here")
    elif each is None:
        reasons.append(model.geometry_reason if model else "the model was not read")
    elif not each.token and not each.sliding:
        reasons.append("no layer keeps keys and values, and what bounds requests of states alone has no law here")
    elif not settings.fraction:
        reasons.append("mem-fraction-static is not set, and the share that SGLang takes by itself is not known here")
    elif len(cards) < settings.ranks:
        reasons.append(f"{settings.ranks} ranks on {len(host.cards)} known cards")
    elif weights is None and model and model.tensor_bytes:
        reasons.append("no law for LoRA slots of this kind of layer")
    elif weights is None:
        reasons.append("the weights are not there to count")
    else:
        return _blind(settings, min(map(_free_mib, cards)), weights, each, model)
    return Pool(None, "; ".join(reasons))


def _seen(
    endpoint: Endpoint, settings: Settings, boot: Boot, each: Rates | None, model: ModelFacts | None
) -> tuple[Pool | None, str]:
    if boot.engine_version != endpoint.engine.version:
        return None, f"the boot of {boot.source} was of version {boot.engine_version}"
    then = settings_of(boot_endpoint(endpoint, boot))
    shape = ("tp", "pp", "partition", "offload_gib", "page", "fraction", "swa_ratio", "mamba_ratio", "extras")
    if differing := [name for name in shape if getattr(then, name) != getattr(settings, name)]:
        return None, f"the boot of {boot.source} had another {' and '.join(differing)}"
    tokens = Interval.exact(boot.kv_tokens)
    if then.kv_dtype == settings.kv_dtype and then.running == settings.running:
        return Pool(tokens, f"the boot of {boot.source}"), ""
    if not (boot.kv_gib and each):
        return None, f"the boot of {boot.source} had another dtype or number of requests, and names no kv_gib"
    size = Interval.rounded(boot.kv_gib, GIB, "log")
    return Pool(_tokens(size, settings, each, model), f"the {boot.kv_gib} GiB of the boot of {boot.source}", size), ""


def _free_mib(card: Card) -> int:
    """What is free of a card before SGLang starts: all but what the host profile says where that is not known."""
    free = card.total_mib - card.outside_mib if card.free_mib is None else card.free_mib
    return max(0, min(free, card.total_mib))


def _blind(settings: Settings, card_mib: int, weights: Interval, each: Rates, model: ModelFacts | None) -> Pool:
    total = card_mib * MIB
    ends = [
        static_bytes(total - context * GIB, total - context * GIB - size, settings.fraction)
        for context, size in zip(CONTEXT_GIB[::-1], (weights.high, weights.best, weights.low), strict=True)
    ]
    size = Interval(ends[0], ends[1], ends[2], "assumed")
    method = (
        f"blind: {total / GIB:.2f} GiB x {settings.fraction:g} - weights {weights.best / GIB:.2f} GiB, with "
        f"{CONTEXT_GIB[1]} GiB ({CONTEXT_GIB[0]} to {CONTEXT_GIB[2]}) of the driver's own"
    )
    if size.high <= 0:
        return Pool(Interval(0, 0, 0, "assumed"), f"{method}: the weights leave nothing", size)
    return Pool(_tokens(size, settings, each, model), method, size, Share(total, weights))


def _tokens(size: Interval, settings: Settings, each: Rates, model: ModelFacts | None) -> Interval:
    low, best, high = (_count(max(0.0, end), settings, each, model) for end in (size.low, size.best, size.high))
    return Interval(low, best, high, size.source)


def _count(size: float, settings: Settings, each: Rates, model: ModelFacts | None) -> int:
    if _states(model):
        size = max(0.0, kv_share(size, settings.mamba_ratio, each.state, settings.states))
    if each.sliding:
        full, sliding = swa_tokens(size, each, settings.page, settings.swa_ratio)
        return full if windows(settings, model) <= sliding else min(full, sliding)
    token_bytes = each.token
    # one page more than there are tokens: the first one is a dummy (memory_pool.py)
    return max(0, pool_tokens(size, token_bytes, settings.page) - settings.page) if token_bytes else 0


def windows(settings: Settings, model: ModelFacts | None) -> int:
    """Tokens of the sliding pool that all requests of the contract hold at once: a window and a page each."""
    layers = model.geometry.layers if model and model.geometry else ()
    window = max((layer.window for layer in layers if layer.attention == "sliding"), default=0)
    return settings.running * min(settings.context_tokens, window + settings.page)


def _capped(pool: Pool, settings: Settings) -> Pool:
    cap = settings.cap_tokens
    if not cap or pool.tokens is None:
        return pool
    low, best, high = (min(cap, end) for end in (pool.tokens.low, pool.tokens.best, pool.tokens.high))
    said = f"{pool.method}; at most max-total-tokens {cap:,}" if best == cap else pool.method
    return replace(pool, tokens=Interval(low, best, high, pool.tokens.source), method=said)


def _offloaded(settings: Settings, stages: tuple[Stage, ...]) -> Iterator[Demand]:
    """What --cpu-offload-gb keeps in RAM, locked where it can be (``pin_memory`` in srt/utils/offloader.py)."""
    sizes = [stage.in_ram for stage in stages if stage.in_ram and stage.in_ram.best]
    if sizes:
        ends = (sum(size.low for size in sizes), sum(size.best for size in sizes), sum(size.high for size in sizes))
        low, best, high = (int(end) * settings.tp for end in ends)
        what = f"weights in RAM, of {settings.ranks} rank{'s' * (settings.ranks > 1)}"
        yield Demand("offload", "host", "", best, what, "header", None, low, high, pinned=True)


def _problems(endpoint: Endpoint, settings: Settings, model: ModelFacts | None) -> Iterator[Problem]:
    contract = endpoint.contract
    if settings.cap_tokens and settings.cap_tokens < contract.tokens_with_margin:
        yield Problem(
            "kv-tokens-short",
            f"max-total-tokens caps the pool at {settings.cap_tokens:,} tokens, {contract.tokens_with_margin:,} are "
            "needed",
            "take it out, or raise it",
        )
    geometry = model.geometry if model else None
    if geometry and 0 < geometry.trained_context < settings.context_tokens:
        yield Problem(
            "len-over-trained-context",
            f"context-length {settings.context_tokens:,} is over the model's trained {geometry.trained_context:,}",
            "SGLang refuses it unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN is set",
        )
    if geometry and _heads(geometry) % settings.tp and settings.tp % max(1, _heads(geometry)):
        yield Problem("tp-unservable", f"{_heads(geometry)} KV heads do not divide over {settings.tp} ranks")


def _heads(geometry: Geometry) -> int:
    return max((layer.kv_heads for layer in geometry.layers if layer.attention not in ("mla", "recurrent")), default=0)


def _demands(settings: Settings, weights: Interval | None, pool: Pool, used: tuple[Card, ...]) -> Iterator[Demand]:
    for rank in [card.index for card in used] or range(settings.ranks):
        if weights:
            ends = (int(weights.low), int(weights.high))
            yield Demand("weights", "device", "", int(weights.best), "weights of a rank", weights.source, rank, *ends)
        if pool.bytes and pool.bytes.best > 0:
            size = int(pool.bytes.best)
            ends = (max(0, int(pool.bytes.low)), int(pool.bytes.high))
            yield Demand("kv_cache", "device", settings.kv_dtype, size, "pools", pool.bytes.source, rank, *ends)


def _cards(
    endpoint: Endpoint, settings: Settings, host: Host, each: Rates | None, weights: Interval | None, pool: Pool
) -> Iterator[CardShare]:
    needed = None
    if each and not each.sliding:
        needed = endpoint.contract.tokens_with_margin * each.token / MIB
    held = max(0.0, pool.bytes.best) / MIB if pool.bytes else None
    for card in host.cards:
        if card.index not in [used.index for used in host.cards[: settings.ranks]]:
            yield CardShare(card.index, card.name, card.total_mib, None, None, None, None, None)
            continue
        yield CardShare(
            card.index,
            card.name,
            card.total_mib,
            _free_mib(card) * settings.fraction if settings.fraction else None,
            weights.best / MIB if weights else None,
            held,
            needed,
            held - needed if held is not None and needed is not None else None,
        )


def _notes(endpoint: Endpoint, settings: Settings) -> Iterator[str]:
    yield "SGLang: plan and render; starting it under archonctl is not verified in this release"
    if settings.kv_dtype != endpoint.contract.kv_dtype:
        yield f"kv_dtype {endpoint.contract.kv_dtype} is served as --kv-cache-dtype {settings.kv_dtype}"
    if not settings.fraction:
        yield "mem-fraction-static is left to SGLang, which derives it from the card: state it, and the plan can count"


def _not_modelled(settings: Settings, model: ModelFacts | None) -> Iterator[str]:
    if model is None or model.geometry is None:
        yield f"the pool: {model.geometry_reason if model else 'the model was not read'}"
    yield "what activations and graphs take exactly: their demands are estimates, and SGLang's log has the figures"
    if settings.extras:
        yield f"memory that {', '.join(settings.extras)} take"
