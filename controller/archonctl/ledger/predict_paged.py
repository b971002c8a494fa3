"""TensorRT-LLM, vllm.rs and mistral.rs: the plain law, bytes of a pool by bytes a token, in whole blocks."""

from __future__ import annotations

from archonctl.engines.sglang.kv import element_bytes, rates
from archonctl.ledger.case import CaseFacts
from archonctl.ledger.predict import Prediction
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import GIB, Interval

DEFAULT_BLOCK = 32
"""tokens_per_block of KvCacheConfig (TensorRT-LLM llmapi/llm_args.py); engines built before 1.0 had 64."""


FREE_FRACTION = 0.9
"""Of the memory that is free (KvCacheConfig.kDefaultGpuMemFraction, kvCacheManager.cpp ``calculateFreeMemBytes``)."""


def predict_case(facts: CaseFacts, ledger: BootLedger) -> Prediction:
    """Tokens of a paged pool. Raises ArchonError for a dtype without a law."""
    pool, how_much = ledger.get("kv_gib") or ledger.get("kv_gb_per_gpu"), ""
    exact = ledger.get("kv_bytes")
    if exact is not None:
        pool = Interval(exact.low / GIB, exact.best / GIB, exact.high / GIB, "log")
    if pool is None and ledger.engine == "tensorrt_llm":
        pool, how_much = _share(facts, ledger)
    if pool is None:
        return Prediction(reason="the log names no size of the KV cache")
    if pool.best <= 0:
        return Prediction(reason="the log names a cache of 0.00 GiB: a manager that allocated nothing")
    printed = ledger.get("bytes_per_token")
    dtype = facts.word("kv_cache_dtype") or ledger.facts.get("kv_dtype", "").lower() or "auto"
    dtype = "fp8" if dtype == "f8e4m3" else dtype  # as mistral.rs calls it
    tp = facts.number("tp") or 1
    if printed is not None:
        rate, how = printed.best, f"{printed.best:,.0f} B a token as printed"
    elif facts.geometry is not None:
        each = rates(facts.geometry, tp=tp, dtype=dtype)
        if each.sliding or not each.full:
            return Prediction(reason="the paged law is plain: windows and states are not covered")
        rate = each.full
        how = f"{rate:,} B a token ({element_bytes(dtype)} B an element, tp {tp}); geometry {facts.geometry_source}"
    elif facts.token_bytes:
        rate, how = facts.token_bytes, f"{facts.token_bytes:,} B a token as the case states it"
    else:
        return Prediction(reason=facts.geometry_reason)
    size = ledger.get("block_size")
    block = facts.number("tokens_per_block", "block_size") or (int(size.best) if size is not None else DEFAULT_BLOCK)
    low, best, high = (int(part * GIB / rate) // block * block for part in (pool.low, pool.best, pool.high))
    if high // block == low // block + 1 and best != high and (pool.high - pool.best) * GIB / rate < block:
        best = round(pool.best * GIB / rate / block) * block  # rounding is finer than a block: the nearest one
    cap = facts.number("max_tokens_in_paged_kv_cache")
    if how_much and cap and cap <= low:
        return Prediction(cap, "bytes", f"max_tokens_in_paged_kv_cache, less than {how_much}", "", cap, cap)
    return Prediction(
        best,
        "bytes",
        f"pool {how_much or f'{pool.best:g} GiB'} / {how}, block {block}",
        low_tokens=low,
        high_tokens=high,
    )


def _share(facts: CaseFacts, ledger: BootLedger) -> tuple[Interval | None, str]:
    """What the batch manager takes of the free memory that it prints with the total of the device.

    The other line with an available size, of the PyTorch executor, is not read: there the share is taken off already
    or not, by version.
    """
    free = ledger.get("available_gib")
    if free is None or ledger.get("total_gib") is None:
        return None, ""
    names = ("kv_cache_free_gpu_mem_fraction", "kv_cache_free_gpu_memory_fraction", "free_gpu_memory_fraction")
    share = next((found for name in names if (found := facts.fraction(name)) is not None), FREE_FRACTION)
    pool = Interval(free.low * share, free.best * share, free.high * share, "log")
    return pool, f"{free.best:g} GiB free x {share:g}"
