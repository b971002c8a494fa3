"""What a vLLM cache of a given size holds, for requests of one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from archonctl.engines.vllm.groups import Group
from archonctl.engines.vllm.kv import KvPlan, KvSettings, estimate_max_len, plan_kv, request_blocks

HELD_BACK_BLOCKS = 1
"""The null block: no request gets it, whether the version counts it in its own check or not (v1/core/block_pool.py)."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What the cache holds at one figure of its memory.

    ``tokens`` is concurrency x contract.len as vLLM counts it, ``seqs`` the requests of that length that really fit
    beside the block that is held back, ``longest`` the longest single request.
    """

    plan: KvPlan
    tokens: int
    seqs: int
    longest: int


def pool_at(groups: Sequence[Group], size: float, kv: KvSettings, length: int, ceiling: int) -> Pool:
    """The pool at ``size`` bytes a rank, for requests of ``length`` tokens; none is longer than ``ceiling``."""
    plan = plan_kv(groups, max(0, int(size)), kv)
    need = request_blocks(groups, length, kv)
    usable = max(0, plan.blocks - HELD_BACK_BLOCKS)
    longest = estimate_max_len(groups, plan.blocks, kv, ceiling)
    return Pool(plan, int(plan.blocks / need * length), usable // need, longest)
