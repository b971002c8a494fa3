"""SGLang's pool as a working: memory of a rank, bytes of a token, tokens in whole pages."""

from __future__ import annotations

from archonctl.deployment.schema import Endpoint
from archonctl.engines.sglang.kv import Rates
from archonctl.engines.sglang.settings import Settings
from archonctl.engines.terms import Term, Working
from archonctl.memory.interval import Interval

_POOL = "srt/mem_cache/memory_pool.py"
_ARGS = "srt/server_args.py"


def explain(
    endpoint: Endpoint,
    settings: Settings,
    each: Rates | None,
    states: bool,
    size: Interval | None,
    tokens: Interval | None,
    method: str,
) -> tuple[Term, ...]:
    """The working of one forecast; empty where the pool is not known. ``states``: the model has recurrent layers."""
    if tokens is None:
        return ()
    work = Working()
    limits = []
    if each is None or size is None:
        limits.append(work.take("seen", int(tokens.best), "tokens", "of the pool", "log", method))
    else:
        limits.append(_pool(work, endpoint, settings, each, states, size, method))
    if settings.cap_tokens:
        key = _key(endpoint, "max-total-tokens")
        limits.append(work.take("cap", settings.cap_tokens, "tokens", "--max-total-tokens", "declared", key=key))
    formula = f"min({', '.join(limits)})" if len(limits) > 1 else limits[0]
    work.estimate("kv_tokens", tokens, "tokens", "of the pool", formula)
    return work.terms()


def _pool(
    work: Working, endpoint: Endpoint, settings: Settings, each: Rates, states: bool, size: Interval, method: str
) -> str:
    """Terms from the memory to the tokens; the name of the last."""
    work.take("page", settings.page, "tokens", "a page", "config", _ARGS, key=_key(endpoint, "page-size"))
    work.estimate("memory", size, "bytes", "of a rank's pools, by the method of the plan", origin=method)
    what = "for keys and values: no less than nothing"
    if states:
        key = _key(endpoint, "mamba-full-memory-ratio")
        work.take(
            "mamba_ratio", settings.mamba_ratio, "", "memory of the state pool to the KV pool", "config", _ARGS, key=key
        )
    formula = "max(0.0, memory) / (1 + mamba_ratio)" if states else "max(0.0, memory)"
    best = max(0.0, size.best)
    pool = best / (1 + settings.mamba_ratio) if states else best
    work.work("kv_memory", pool, "bytes", what, formula)
    work.take("full", each.full, "bytes", "a token, in the full or latent layers of a rank", "header", "config.json")
    if not each.sliding:
        work.take("indexer", each.indexer, "bytes", "a token, keys of indexers", "header", _POOL)
        pages = int(pool // (each.full + each.indexer)) // settings.page * settings.page
        work.work(
            "slots", pages, "tokens", "in whole pages", "floor(kv_memory // (full + indexer)) // page * page", _POOL
        )
        tokens = max(0, pages - settings.page)
        return work.work("pool", tokens, "tokens", "beside the page that is a dummy", "max(0, slots - page)", _POOL)
    work.take("sliding", each.sliding, "bytes", "a token, in the sliding layers of a rank", "header", "config.json")
    key = _key(endpoint, "swa-full-tokens-ratio")
    work.take(
        "swa_ratio", settings.swa_ratio, "", "tokens of the sliding pool for each of the full", "config", _ARGS, key=key
    )
    full = max(0, int(pool / (each.full + settings.swa_ratio * each.sliding)) // settings.page * settings.page)
    formula = "floor(kv_memory / (full + swa_ratio * sliding)) // page * page"
    work.work("full_slots", full, "tokens", "of the full pool", formula, "srt/mem_cache/swa_memory_pool.py")
    sliding = int(full * settings.swa_ratio) // settings.page * settings.page
    formula = "floor(full_slots * swa_ratio) // page * page"
    work.work("sliding_slots", sliding, "tokens", "of the sliding pool", formula, "srt/mem_cache/swa_memory_pool.py")
    return work.work("pool", min(full, sliding), "tokens", "the smaller pool", "min(full_slots, sliding_slots)")


def _key(endpoint: Endpoint, knob: str) -> str:
    return f"engine.knobs.{knob}" if knob in endpoint.engine.knobs else ""
