"""The KV law of vLLM: groups and memory in; blocks, concurrency, printed tokens and refusals out.

Pure arithmetic, read from vLLM 0.32.0 ``v1/core/kv_cache_utils.py`` (``get_kv_cache_configs``,
``get_max_concurrency_for_kv_cache_config``, ``get_kv_cache_capacity``, ``_estimate_max_model_len_from_groups``,
``_check_enough_kv_cache_memory``) and ``v1/kv_cache_interface.py`` (``max_memory_usage_bytes`` of each spec).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from archonctl.engines.vllm.groups import Group, LayerSpec

Meaning = Literal["concurrency", "blocks"]
"""What "KV cache size" counts: concurrency x length, or blocks // groups x block."""


@dataclass(frozen=True, slots=True)
class KvSettings:
    """What a request needs, as vLLM counts it (tokens or blocks).

    ``in_flight_tokens`` is max-num-batched-tokens times the batches under way at once (2 with asynchronous
    scheduling, pp stages otherwise); blocks behind a window are freed only once these tokens are processed.
    ``mamba_states`` is 1, or 2 (Mamba2: 3) where prefix caching keeps aligned states; ``spec_tokens`` adds one each.
    ``context_shards`` is decode x prefill context parallel size. ``meaning`` and ``null_block`` go by version.
    """

    max_model_len: int
    in_flight_tokens: int = 2048
    context_shards: int = 1
    mamba_states: int = 1
    spec_tokens: int = 0
    retained_tokens: int = 0
    meaning: Meaning = "concurrency"
    null_block: bool = True
    blocks_override: int = 0
    max_num_seqs: int = 0


@dataclass(frozen=True, slots=True)
class KvPlan:
    """What vLLM prints after profiling. ``kv_tokens`` is the printed figure, ``served_tokens`` concurrency x length.

    ``block_bytes`` is of the stage that binds. ``refusal`` is a stable code, "" where the engine boots. It is of the
    first stage that is short: ``refused_blocks`` and ``refused_block_bytes`` are what its message is about.
    """

    blocks: int
    block_bytes: int
    request_blocks: int
    kv_tokens: int
    served_tokens: int
    refusal: str = ""
    refused_blocks: int = 0
    refused_block_bytes: int = 0

    @property
    def max_concurrency(self) -> float:
        """Requests of full length at once."""
        return self.blocks / self.request_blocks

    @property
    def request_bytes(self) -> int:
        """Memory of one request of full length, on the stage that binds."""
        return self.request_blocks * self.block_bytes

    @property
    def needed_bytes(self) -> int:
        """What the refusal of a length names as needed: of the first stage that is short."""
        return self.request_blocks * self.refused_block_bytes


def ceil_div(value: int, by: int) -> int:
    """``value / by``, rounded up."""
    return -(-value // by)


def spec_blocks(spec: LayerSpec, length: int, settings: KvSettings) -> int:
    """Blocks that one request of ``length`` tokens takes from the table of a layer like this."""
    if spec.kind == "mamba":
        return settings.mamba_states + settings.spec_tokens
    if spec.kind == "sliding":
        # One more, since a window need not begin at the begin of a block.
        held = min(spec.window - 1 + settings.retained_tokens + settings.in_flight_tokens, length)
        return ceil_div(held, spec.block_tokens) + 1
    if spec.kind == "chunked":
        return ceil_div(min(spec.window + settings.in_flight_tokens, length), spec.block_tokens)
    return ceil_div(ceil_div(length, settings.context_shards), spec.block_tokens)


def request_blocks(groups: Sequence[Group], length: int, settings: KvSettings) -> int:
    """Blocks that one request of ``length`` tokens takes from all tables together."""
    return sum(max(spec_blocks(spec, length, settings) for spec in group.specs) for group in groups)


def block_bytes(groups: Sequence[Group]) -> tuple[int, ...]:
    """Bytes of one block of the pool, on each pipeline stage: what the widest group needs there."""
    return tuple(max(stage) for stage in zip(*(group.stage_bytes for group in groups), strict=True))


def plan_kv(groups: Sequence[Group], available_bytes: int | Sequence[int], settings: KvSettings) -> KvPlan:
    """Blocks and tokens from the memory left for the cache.

    ``available_bytes``: of each stage, or one figure for all; the rank with the fewest blocks binds. Raises
    ValueError without groups (a model without attention has no cache to plan).
    """
    if not groups:
        raise ValueError("no cache groups")
    sizes = block_bytes(groups)
    memory = [available_bytes] * len(sizes) if isinstance(available_bytes, int) else available_bytes
    stages = [(max(0, have) // each, each) for have, each in zip(memory, sizes, strict=True) if each]
    if settings.blocks_override:
        stages = [(settings.blocks_override, each) for _, each in stages]
    blocks, size = min(stages)
    need = request_blocks(groups, settings.max_model_len, settings)
    # In this order, as floats: the engine's own rounding decides the last token.
    served = int(blocks / need * settings.max_model_len)
    printed = served
    if settings.meaning == "blocks":
        # A table of states alone counts as one block of the whole length.
        sizes_of_blocks = [g.block_tokens for g in groups if g.specs[0].kind != "mamba"] or [settings.max_model_len]
        printed = blocks // len(groups) * min(sizes_of_blocks) * settings.context_shards
    return KvPlan(blocks, size, need, printed, served, *_refusal(groups, stages, memory, need, settings))


def _refusal(
    groups: Sequence[Group],
    stages: Sequence[tuple[int, int]],
    memory: Sequence[int],
    need: int,
    settings: KvSettings,
) -> tuple[str, int, int]:
    """The code, and blocks and bytes a block of the stage that it is about; "" and 0 where the engine boots."""
    for (blocks, size), have in zip(stages, memory, strict=False):
        held_back = size if settings.null_block else 0
        if (size * blocks if settings.blocks_override else have) <= held_back or not blocks:
            return "kv-no-memory", blocks, size
        if need > blocks - settings.null_block:
            return "kv-request-too-long", blocks, size
    blocks, size = min(stages)
    if settings.max_num_seqs > blocks and any(group.specs[0].kind == "mamba" for group in groups):
        return "kv-states-short", blocks, size
    return "", 0, 0


def estimate_max_len(groups: Sequence[Group], blocks: int, settings: KvSettings, ceiling: int) -> int:
    """The longest request, in tokens, that the pool serves alone; 0 if none. Never above ``ceiling``.

    One block is held back (the null block), so it can be less than what the blocks hold.
    """
    usable = blocks - settings.null_block
    low, high = 0, ceiling
    if request_blocks(groups, ceiling, settings) <= usable:  # as nearly always
        return ceiling
    while low < high:
        middle = (low + high + 1) // 2
        if request_blocks(groups, middle, settings) <= usable:
            low = middle
        else:
            high = middle - 1
    return low
