"""vLLM: tokens from the memory that was left for the cache, by the engine's own grouping."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from archonctl.engines.vllm.groups import Group, form_groups
from archonctl.engines.vllm.kv import KvSettings, Meaning, estimate_max_len, plan_kv
from archonctl.engines.vllm.layers import RankSettings, rank_buckets
from archonctl.engines.vllm.rules import (
    ASCEND_BLOCK,
    DEFAULT_BLOCK,
    NEWEST,
    Rules,
    aligned_states,
    batches_in_flight,
    default_block,
    latents,
    rules_for,
    states_kept,
    version_of,
)
from archonctl.ledger.blind import blind_bytes
from archonctl.ledger.case import CaseFacts
from archonctl.ledger.predict import Prediction
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import GIB, Interval
from archonctl.model.geometry import Geometry

_BYTES = ("kv_bytes", "kv_cache_bytes", "available_bytes")
_GIBS = ("reserved_gib", "available_gib", "kv_gib")
_BATCHED_TOKENS = 2048
"""max_num_batched_tokens of a server on cards below 70 GiB (vllm/engine/arg_utils.py); 8,192 on larger ones."""
_KV_SCALES = "nvidia|nemotron"
"""Makers of NVFP4 checkpoints that ask for an fp8 cache, which "auto" obeys (kv_cache_quant_algo of NVIDIA ModelOpt).
"""
_NO_KV_SCALES = "redhatai|neuralmagic"
"""Makers whose NVFP4 checkpoints have no such scheme. Others do one or the other."""
_DRAFTERS = ("mtp", "dflash", "eagle", "dspark")
"""Drafters as people name them beside a model."""


@dataclass(frozen=True, slots=True)
class _Memory:
    size: Interval
    """Bytes."""
    basis: str
    method: str


def predict_case(facts: CaseFacts, ledger: BootLedger) -> Prediction:
    """Tokens as vLLM would print them. Raises ArchonError where the model has no law."""
    memory = _memory(facts, ledger)
    if memory is None:
        return Prediction(reason="the log names no memory for the cache, and card and weights are not both known")
    if memory.size.best <= 0:
        return Prediction(reason=f"no memory is left for the cache: {memory.size.best / GIB:.2f} GiB")
    if facts.geometry is None:
        return _by_rate(facts, ledger, memory)
    drafts = _drafts(facts)
    if reason := _no_law(facts, ledger, drafts):
        return Prediction(reason=reason)
    return _by_dtype(facts, ledger, memory, facts.geometry, drafts or (0, 0))


def _no_law(facts: CaseFacts, ledger: BootLedger, drafts: tuple[int, int] | None) -> str:
    """Why a model of known geometry has no prediction; "" where it has."""
    if _states_mode(facts, ledger) == "all":
        return "with --mamba-cache-mode all a state is kept for each block, of a size not known here"
    return "a draft model shares the cache, and its layers are not known" if drafts is None else ""


def _by_dtype(
    facts: CaseFacts, ledger: BootLedger, memory: _Memory, geometry: Geometry, drafts: tuple[int, int]
) -> Prediction:
    """By the dtype of the cache; where that is not known, only if it makes no difference."""
    dtype = _cache_dtype(facts, ledger)
    if dtype is not None:
        return _by_groups(facts, ledger, memory, geometry, drafts, dtype)
    plain, packed = (_by_groups(facts, ledger, memory, geometry, drafts, each) for each in ("auto", "fp8"))
    if plain.kv_tokens is None or packed.kv_tokens is None or plain.kv_tokens == packed.kv_tokens:
        return plain
    ends = f"{plain.kv_tokens:,} tokens if not, {packed.kv_tokens:,} if so"
    return Prediction(reason=f"whether this NVFP4 checkpoint asks for an fp8 cache is not known: {ends}")


def _by_groups(
    facts: CaseFacts,
    ledger: BootLedger,
    memory: _Memory,
    geometry: Geometry,
    drafts: tuple[int, int],
    dtype: str,
) -> Prediction:
    """By the engine's grouping of the geometry; by the need it states itself where that is something else."""
    rules = rules_for(_version(facts, ledger))
    rank = _rank(facts, ledger, rules, drafts, dtype)
    buckets = rank_buckets(geometry if rules.by_groups else _all_full(geometry), rank)
    managed = _managed(facts, ledger)
    groups = form_groups(buckets, stages=rank.pp, spread=rules.spread, hybrid_manager=managed)
    length = _length(facts, ledger, rules, groups)
    if not length:
        return Prediction(reason="max_model_len is not known, and the printed tokens of a hybrid depend on it")
    settings = _settings(facts, ledger, rules, length, rank)
    plans = [plan_kv(groups, int(each), settings) for each in (memory.size.low, memory.size.best, memory.size.high)]
    low, best, high = (plan.kv_tokens for plan in plans)
    longest = ""
    if ledger.get("needed_gib") is not None and plans[1].max_concurrency < 1:  # refused: no tokens are printed
        low, best, high = (estimate_max_len(groups, plan.blocks, settings, length) for plan in plans)
        longest = ", the longest request that fits"
    if ledger.get("needed_gib") is not None and _plain(groups):
        stated = _by_rate(facts, ledger, memory)
        if not (stated.low_tokens or 0) * 0.99 < best < (stated.high_tokens or 0) * 1.01:
            return replace(
                stated, method=f"{stated.method}; the geometry ({facts.geometry_source}) would give {best:,}"
            )
    names = f"{len(groups)} group{'s' * (len(groups) > 1)} of {groups[0].layers} layers, block {groups[0].block_tokens}"
    law = f"({names}, {rank.kv_dtype} cache, tp {rank.tp}){longest}"
    method = f"{memory.method} / {law}; geometry {facts.geometry_source}"
    return Prediction(best, memory.basis, method, low_tokens=low, high_tokens=high)


def _version(facts: CaseFacts, ledger: BootLedger) -> tuple[int, ...]:
    for text in (ledger.engine_version, facts.version, ledger.facts.get("version_hint", "")):
        if text and (version := version_of(text)):
            return version
    return NEWEST


def _memory(facts: CaseFacts, ledger: BootLedger) -> _Memory | None:
    for name in _BYTES:
        if (size := ledger.get(name)) is not None:
            return _Memory(size, "bytes", f"{name} {size.best:,.0f}")
    for name in _GIBS:
        if (size := ledger.get(name)) is not None:
            scaled = Interval(size.low * GIB, size.best * GIB, size.high * GIB, "log")
            return _Memory(scaled, "bytes", f"{name} {size.best:g} GiB as printed")
    blind = blind_bytes(facts, ledger, cpu=_is_cpu(facts, ledger), version=_version(facts, ledger))
    return None if blind is None else _Memory(blind.size, "blind", blind.method)


def _by_rate(facts: CaseFacts, ledger: BootLedger, memory: _Memory) -> Prediction:
    """Without a geometry: a rate that the case states, or the need that the engine itself states for a length."""
    needed, length = ledger.get("needed_gib"), ledger.get("max_model_len") or ledger.get("asked_max_model_len")
    if facts.token_bytes:
        rate = Interval.exact(facts.token_bytes)
        how = f"{facts.token_bytes:,} B a token as the case states it"
    elif needed is not None and length is not None and needed.best > 0 and length.best > 0:
        ends = (needed.low * GIB / length.best, needed.best * GIB / length.best, needed.high * GIB / length.best)
        rate = Interval(*ends, "log")
        how = f"{needed.best:g} GiB for {length.best:,.0f} tokens as the engine states it (linear: true without states)"
    else:
        return Prediction(reason=facts.geometry_reason)
    tokens = (memory.size.low / rate.high, memory.size.best / rate.best, memory.size.high / rate.low)
    low, best, high = (int(each) // DEFAULT_BLOCK * DEFAULT_BLOCK for each in tokens)
    return Prediction(best, memory.basis, f"{memory.method} / {how}", low_tokens=low, high_tokens=high)


def _drafts(facts: CaseFacts) -> tuple[int, int] | None:
    """Drafted tokens and cache layers of the drafter; None where it is another model than the target's own MTP."""
    said = facts.flags.get("speculative", facts.flags.get("speculative_config"))
    if isinstance(said, dict):
        method, count = str(said.get("method", "")).lower(), said.get("num_speculative_tokens")
        tokens = count if isinstance(count, int) else 0
    else:
        method = str(said or "").lower()
        digits = "".join(c for c in method if c.isdigit())
        tokens = int(digits) if digits and len(digits) < 3 else 0
    if not said or method in ("none", "off", "false", "ngram"):
        method = facts.model.lower()
        if not any(word in method for word in _DRAFTERS):
            return (0, 0)
    if "mtp" in method:
        return (tokens or 1, 1)
    return None


def _cache_dtype(facts: CaseFacts, ledger: BootLedger) -> str | None:
    """As asked for or as the log says; None where the checkpoint decides and what it asks for is not known."""
    dtype = facts.word("kv_cache_dtype") or "auto"
    if dtype == "auto":
        dtype = ledger.facts.get("kv_dtype", "auto").lower()
    name = facts.model.lower()
    if dtype != "auto" or "nvfp4" not in name or re.search(_NO_KV_SCALES, name):
        return dtype.removeprefix("torch.")
    return "fp8" if re.search(_KV_SCALES, name) else None


def _rank(facts: CaseFacts, ledger: BootLedger, rules: Rules, drafts: tuple[int, int], dtype: str) -> RankSettings:
    if dtype == "auto" and facts.geometry is not None and facts.geometry.indexer_dim and rules.packed_latents:
        dtype = "fp8_ds_mla"
    half = facts.word("dtype") in ("float32", "float")
    hybrid_block = ledger.get("attention_block_size")
    return RankSettings(
        tp=facts.number("tp") or (max(facts.workers, facts.cards) if facts.workers else 1),
        pp=facts.number("pp") or 1,
        kv_dtype=dtype,
        model_bytes=4 if half else 2,
        block_tokens=_block(facts, ledger, rules),
        kernel_tokens=DEFAULT_BLOCK,
        hybrid_block_tokens=0 if hybrid_block is None else int(hybrid_block.best),
        spec_tokens=drafts[0],
        draft_layers=drafts[1],
        mla=latents(rules, facts.geometry.architecture if facts.geometry else ""),
        latent_step=rules.latent_step,
    )


def _is_cpu(facts: CaseFacts, ledger: BootLedger) -> bool:
    said = f"{ledger.engine_version} {facts.version}".lower()
    return facts.card.strip().lower() == "cpu" or bool(re.search(r"\bcpu\b", said))


def _block(facts: CaseFacts, ledger: BootLedger, rules: Rules) -> int:
    if stated := facts.number("block_size"):
        return stated
    if (printed := ledger.get("block_size")) is not None and 0 < printed.best < 4096:
        return int(printed.best)
    said = f"{ledger.engine_version} {facts.version} {facts.card}".lower()
    if "ascend" in said:
        return ASCEND_BLOCK
    geometry = facts.geometry
    latent = geometry is not None and any(layer.attention == "mla" for layer in geometry.layers)
    indexer = geometry is not None and bool(geometry.indexer_dim) and not re.search(r"rocm|\bmi\d{3}|amd", said)
    backend = facts.word("attention_backend")
    cpu = _is_cpu(facts, ledger)
    return default_block(rules.version, cpu=cpu, latent=latent, indexer=indexer, backend=backend)


def _managed(facts: CaseFacts, ledger: BootLedger) -> bool:
    """False where the hybrid cache manager is off, by flag or as the log says."""
    return not (facts.switch("disable_hybrid_kv_cache_manager") or ledger.has("hybrid-kv-manager-off"))


def _all_full(geometry: Geometry) -> Geometry:
    return replace(
        geometry,
        layers=tuple(
            replace(each, attention="full") if each.attention == "sliding" else each for each in geometry.layers
        ),
    )


def _plain(groups: Sequence[Group]) -> bool:
    """One table without windows or states: tokens and bytes go in proportion."""
    return len(groups) == 1 and groups[0].specs[0].kind in ("full", "mla")


def _meaning(ledger: BootLedger, rules: Rules) -> Meaning:
    """What the printed tokens count: as the log shows it, else by version."""
    said = ledger.facts.get("kv_tokens_meaning", "")
    if said == "blocks":
        return "blocks"
    return "concurrency" if said else rules.meaning


def _length(facts: CaseFacts, ledger: BootLedger, rules: Rules, groups: Sequence[Group]) -> int:
    printed = ledger.get("max_model_len")
    length = int(printed.best) if printed is not None else facts.number("max_model_len")
    if not length and (_plain(groups) or _meaning(ledger, rules) == "blocks"):
        return 1 << 17  # any length gives the same tokens, but for the last block
    return length


def _settings(facts: CaseFacts, ledger: BootLedger, rules: Rules, length: int, rank: RankSettings) -> KvSettings:
    batched = facts.number("max_num_batched_tokens")
    large = facts.card_gib >= 70 and "a100" not in facts.card.lower()
    shards = max(1, facts.number("dcp"), _count(ledger, "dcp"), _count(ledger, "cp")) * max(
        1, facts.number("pcp") if rules.prefill_shards else 1, _count(ledger, "pcp")
    )
    asked, mode = facts.switch("enable_prefix_caching"), _states_mode(facts, ledger)
    state = facts.geometry.recurrent if facts.geometry is not None else None
    aligned = aligned_states(rules, asked, mode, facts.geometry)
    return KvSettings(
        max_model_len=length,
        in_flight_tokens=(batched or (8192 if large else _BATCHED_TOKENS))
        * batches_in_flight(rules, rank.pp, overlapped=not _is_cpu(facts, ledger)),
        context_shards=shards,
        mamba_states=states_kept(rules, aligned, state.kind if state else ""),
        spec_tokens=rank.spec_tokens,
        meaning=_meaning(ledger, rules),
        null_block=rules.null_block,
        blocks_override=facts.number("num_gpu_blocks_override"),
    )


def _states_mode(facts: CaseFacts, ledger: BootLedger) -> str:
    """--mamba-cache-mode: what came of it as the log says, else as asked for."""
    if ledger.has("prefix-caching-disabled"):
        return "none"
    return ledger.facts.get("mamba_cache_mode", "").lower() or facts.word("mamba_cache_mode")


def _count(ledger: BootLedger, name: str) -> int:
    value = ledger.get(name)
    return 0 if value is None else int(value.best)
