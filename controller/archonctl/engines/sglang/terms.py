"""SGLang's pool as a working: memory of a rank, bytes of a token, tokens in whole pages."""

from __future__ import annotations

from archonctl.deployment.schema import Endpoint
from archonctl.engines.sglang.kv import Rates, kv_share, swa_tokens
from archonctl.engines.sglang.pool import Pool
from archonctl.engines.sglang.settings import Settings
from archonctl.engines.terms import Term, Working
from archonctl.memory.interval import Interval

_POOL = "srt/mem_cache/memory_pool.py"
_ARGS = "srt/server_args.py"
_SIZES = "srt/model_executor/pool_configurator.py"
_RUNNER = "srt/model_executor/model_runner.py"


def explain(
    endpoint: Endpoint,
    settings: Settings,
    each: Rates | None,
    states: bool,
    windows: int,
    pool: Pool,
) -> tuple[Term, ...]:
    """The working of one forecast; empty where the pool is not known. ``states``: the model has recurrent layers.

    ``windows`` are the tokens of the sliding pool that the contract holds at once.
    """
    tokens, size, method = pool.tokens, pool.bytes, pool.method
    if tokens is None:
        return ()
    work = Working()
    limits = []
    if each is None or size is None:
        limits.append(work.take("seen", int(tokens.best), "tokens", "of the pool", "log", method))
    else:
        _memory(work, endpoint, settings, pool, size)
        limits.append(_pool(work, endpoint, settings, each, states, windows, size))
    if settings.cap_tokens:
        key = _key(endpoint, "max-total-tokens")
        limits.append(work.take("cap", settings.cap_tokens, "tokens", "--max-total-tokens", "declared", key=key))
    formula = f"min({', '.join(limits)})" if len(limits) > 1 else limits[0]
    work.estimate("kv_tokens", tokens, "tokens", "of the pool", formula)
    return work.terms()


def _memory(work: Working, endpoint: Endpoint, settings: Settings, pool: Pool, size: Interval) -> None:
    """Bytes of a rank's pools: of a boot, or what the static share leaves beside the weights."""
    what, share = "of a rank's pools", pool.share
    if share is None:
        work.estimate("memory", size, "bytes", what, origin=pool.method)
        return
    work.take("card", share.card, "bytes", "free of the tightest card before the start", "declared", "host profile")
    of = "of the driver, before the weights"
    work.estimate("context", share.context, "bytes", of, origin="engines/sglang/pool.py")
    work.estimate("weights", share.weights, "bytes", "of a rank, with LoRA slots", origin="safetensors headers")
    key = _key(endpoint, "mem-fraction-static")
    work.take("fraction", settings.fraction, "", "of what is free, for weights and pools", "config", _ARGS, key=key)
    formula = "card - context - weights - (card - context) * (1 - fraction)"
    work.estimate("memory", size, "bytes", what, formula, _SIZES)


def _pool(
    work: Working,
    endpoint: Endpoint,
    settings: Settings,
    each: Rates,
    states: bool,
    windows: int,
    size: Interval,
) -> str:
    """Terms from the memory to the tokens; the name of the last."""
    work.take("page", settings.page, "tokens", "a page", "config", _ARGS, key=_key(endpoint, "page-size"))
    pool = max(0.0, size.best)
    if states:
        pool = _beside_states(work, endpoint, settings, each, pool)
    else:
        work.work("kv_memory", pool, "bytes", "for keys and values: no less than nothing", "max(0.0, memory)")
    work.take("full", each.full, "bytes", "a token, in the full or latent layers of a rank", "header", "config.json")
    work.take("indexer", each.indexer, "bytes", "a token, keys of indexers", "header", _POOL)
    work.take("draft", each.draft, "bytes", "a token, layers of a draft", "config", _SIZES)
    if each.sliding:
        return _double(work, endpoint, settings, each, windows, pool)
    pages = int(pool // each.token) // settings.page * settings.page
    formula = "floor(kv_memory // (full + indexer + draft)) // page * page"
    work.work("slots", pages, "tokens", "in whole pages", formula, _POOL)
    tokens = max(0, pages - settings.page)
    return work.work("pool", tokens, "tokens", "beside the page that is a dummy", "max(0, slots - page)", _POOL)


def _beside_states(work: Working, endpoint: Endpoint, settings: Settings, each: Rates, memory: float) -> float:
    """What recurrent states leave for keys and values."""
    what, held = "for keys and values: no less than nothing", "max(0.0, memory)"
    left = max(0.0, kv_share(memory, settings.mamba_ratio, each.state, settings.states))
    if each.state:
        work.take("state", each.state, "bytes", "a request, all recurrent layers of a rank", "header", "config.json")
    if each.state and settings.states:
        key = _key(endpoint, "max-mamba-cache-size")
        work.take("states", settings.states, "requests", "--max-mamba-cache-size", "declared", key=key)
        work.work("kv_memory", left, "bytes", what, f"max(0.0, {held} - states * state)", _RUNNER)
        return left
    key = _key(endpoint, "mamba-full-memory-ratio")
    ratio, of = settings.mamba_ratio, "memory of the state pool to the KV pool"
    work.take("mamba_ratio", ratio, "", of, "config", _ARGS, key=key)
    share = f"floor({held} * mamba_ratio / (1 + mamba_ratio) // state) * state"
    formula = f"max(0.0, {held} - {share})" if each.state else f"{held} / (1 + mamba_ratio)"
    work.work("kv_memory", left, "bytes", what, formula, _RUNNER)
    return left


def _double(work: Working, endpoint: Endpoint, settings: Settings, each: Rates, windows: int, pool: float) -> str:
    """The full and the sliding pool; the name of the one that counts."""
    work.take("sliding", each.sliding, "bytes", "a token, in the sliding layers of a rank", "header", "config.json")
    full, sliding = swa_tokens(pool, each, settings.page, settings.swa_ratio)
    if not each.full:
        formula = "floor(kv_memory / (sliding + draft)) // page * page"
        return work.work("pool", full, "tokens", "of the only pool", formula, _SIZES)
    key = _key(endpoint, "swa-full-tokens-ratio")
    of = "tokens of the sliding pool for each of the full"
    work.take("swa_ratio", settings.swa_ratio, "", of, "config", _ARGS, key=key)
    formula = "floor(kv_memory / (full + indexer + draft + swa_ratio * sliding)) // page * page"
    work.work("full_slots", full, "tokens", "of the full pool", formula, _SIZES)
    formula = "floor(full_slots * swa_ratio) // page * page"
    work.work("sliding_slots", sliding, "tokens", "of the sliding pool", formula, _SIZES)
    if windows <= sliding:
        what = f"the full pool: the windows of all requests, {windows:,} tokens, fit the other"
        return work.work("pool", full, "tokens", what, "full_slots")
    return work.work("pool", min(full, sliding), "tokens", "the smaller pool", "min(full_slots, sliding_slots)")


def _key(endpoint: Endpoint, knob: str) -> str:
    return f"engine.knobs.{knob}" if knob in endpoint.engine.knobs else ""
