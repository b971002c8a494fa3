"""SGLang: tokens from the printed sizes of its pools, or from what was free after loading."""

from __future__ import annotations

import re
from dataclasses import replace

from archonctl.engines.sglang.kv import (
    Rates,
    element_bytes,
    in_one_pool,
    kv_share,
    pool_tokens,
    rates,
    static_bytes,
    swa_tokens,
    two_pools,
)
from archonctl.engines.sglang.settings import DRAFTS
from archonctl.ledger.case import CaseFacts
from archonctl.ledger.predict import Prediction
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import GIB, Interval

INDEXER_PRINTED_SINCE = (0, 5, 4)
"""From here the printed size of a pool of latents has the keys of its indexer in it (sglang pull request 11309)."""
COARSE = 0.02
"""A pool printed more coarsely than this says less than the cap that was asked for."""


def predict_case(facts: CaseFacts, ledger: BootLedger) -> Prediction:
    """Tokens of the target's pool on one rank. Raises ArchonError for a dtype without a law.

    A layer that reads the rows of another has rows in SGLang's pools all the same, as a boot of Gemma 4 E4B shows.
    """
    facts = replace(facts, geometry=facts.unshared or facts.geometry)
    dtype = facts.word("kv_cache_dtype")
    dtype = ledger.facts.get("kv_dtype", "") if dtype in ("", "auto") else dtype
    dtype = dtype or "auto"
    tp = max(1, (facts.number("tp") or 1) // (facts.number("dp") if facts.switch("enable_dp_attention") else 1))
    cap, page = facts.number("max_total_tokens"), facts.number("page_size") or 1
    if facts.geometry is None and not facts.token_bytes:
        return Prediction(reason=facts.geometry_reason)
    if facts.geometry is not None:
        draft = (facts.geometry.nextn_layers or 1) if facts.word("speculative_algorithm").upper() in DRAFTS else 0
        each = rates(facts.geometry, tp=tp, dtype=dtype, draft_layers=draft)
        rate = (
            f"{each.full:,} B a token ({element_bytes(dtype)} B an element, tp {tp}); geometry {facts.geometry_source}"
        )
    else:
        each, rate = Rates(facts.token_bytes, 0), f"{facts.token_bytes:,} B a token as the case states it"
    if each.sliding and ledger.get("swa_kv_gib") is None:
        version = f"{ledger.engine_version} {facts.version}"
        if two_pools(f"{facts.model} {facts.geometry.architecture if facts.geometry else ''}", version):
            if ledger.get("kv_gib") is not None or ledger.get("k_gib") is not None:
                return Prediction(
                    reason="the model has two pools, and which of them the printed size is of is not told"
                )
        else:
            each = in_one_pool(each)
            rate = f"{each.full:,} B a token with windows kept in full; {rate}"
    found = _from_pools(facts, ledger, each, page, rate) or _from_free(facts, ledger, each, page, rate)
    if found is None:
        if cap:
            return Prediction(cap, "blind", "--max-total-tokens, if memory allows it")
        return Prediction(reason="the log names neither the size of a pool nor the memory before and after loading")
    if cap and found.high_tokens is not None and cap <= found.high_tokens:
        return Prediction(cap, found.basis, f"--max-total-tokens, less than {found.method}", "", cap, cap)
    return found


def _from_pools(facts: CaseFacts, ledger: BootLedger, each: Rates, page: int, rate: str) -> Prediction | None:
    each = replace(each, draft=0)  # the draft's pool is printed on a line of its own
    swa = ledger.get("swa_kv_gib")
    if swa is not None and each.sliding:
        tokens = [swa_tokens(part * GIB, each, page)[0] for part in (swa.low, swa.best, swa.high)]
        method = f"both pools {swa.best:g} GiB / (full + 0.8 x sliding bytes a token); {rate}"
        return Prediction(tokens[1], "bytes", method, low_tokens=tokens[0], high_tokens=tokens[2])
    pool = ledger.get("kv_gib")
    keys, values = ledger.get("k_gib"), ledger.get("v_gib")
    if pool is None and keys is not None and values is not None:
        pool = Interval(keys.low + values.low, keys.best + values.best, keys.high + values.high, "log")
    if pool is None or pool.best <= 0 or not each.full:
        return None
    printed = each.full + (each.indexer if _indexer_printed(facts, ledger) else 0)
    tokens = [pool_tokens(part * GIB, printed, page) for part in (pool.low, pool.best, pool.high)]
    # A pool has one page more than it has tokens (memory_pool.py: the first page is a dummy).
    tokens = [max(0, count - page) for count in tokens]
    if printed != each.full:
        rate = f"{rate}, with {each.indexer:,} B of the indexer"
    return Prediction(
        tokens[1], "bytes", f"pool {pool.best:g} GiB / {rate}", low_tokens=tokens[0], high_tokens=tokens[2]
    )


def _indexer_printed(facts: CaseFacts, ledger: BootLedger) -> bool:
    """By version; one that cannot be read is taken for a newer one."""
    for text in (ledger.engine_version, facts.version):
        if match := re.search(r"(?<![\d.])v?0\.(\d{1,2})\.(\d{1,3})(?!\.?dev)", text):
            return (0, int(match[1]), int(match[2])) >= INDEXER_PRINTED_SINCE
    return True


def _from_free(facts: CaseFacts, ledger: BootLedger, each: Rates, page: int, rate: str) -> Prediction | None:
    before, after = ledger.get("avail_before_load"), ledger.get("avail_after_load")
    fraction = facts.fraction("mem_fraction_static")
    if before is None or after is None or fraction is None or not each.full:
        return None
    left = static_bytes(before.best, after.best, fraction) * GIB
    geometry = facts.geometry
    if geometry is not None and any(layer.attention == "recurrent" for layer in geometry.layers):
        if draft := facts.word("speculative_algorithm"):
            return Prediction(
                reason=f"states that {draft} keeps beside the pools depend on requests that are not known"
            )
        left = kv_share(left, state=each.state, states=facts.number("max_mamba_cache_size"))
    tokens = swa_tokens(left, each, page)[0] if each.sliding else pool_tokens(left, each.token, page)
    if not tokens:
        return Prediction(
            reason=f"weights leave nothing under --mem-fraction-static {fraction:g}: {left / GIB:.2f} GiB"
        )
    method = f"({after.best:g} - {before.best:g} x (1 - {fraction:g})) GiB / {rate}"
    return Prediction(tokens, "bytes", method)
