"""How a card is split, in both eras: from the public arithmetic of 1.0.x and the boots that were seen. MiB and KiB.

Seen, and reproduced to the token: 386,904 tokens in a stated pool of 3,543 MiB (3 sequences, fp8) and 556,348 tokens
by the resolver with a host pool of 44,928 MiB. Both carry 28 KiB of padding a paged group, the first also one commit
granule of 2 MiB in front of its checkpoints.

Assumed: that the plane of experts and static weights takes 70,771 MiB a rank of slab and host pool together (what the
1.8.1 boot had), and that before 1.3.0 67,031 were enough (the least that shipped).
"""

from __future__ import annotations

from dataclasses import dataclass

from support.radiance_sim.config import Simulation
from support.radiance_sim.flags import Options

PAGE_TOKENS = 4
GROUP_KIB = {"kv_attn": {"fp8": 26.0, "bf16": 52.0}, "kv_qsa_bkey": {"fp8": 3.25, "bf16": 3.25}}
"""KiB a page of each paged group; the block keys keep their width."""
STATE_MIB = 110
CHECKPOINT_MIB = 56
GROUP_PAD_KIB = 28
GRANULE_KIB = 2048

HELD_MIB = 678
"""Driver context and code objects: 31,856 - 29,120 of slab and pool - 2,058 that settled free."""
ARENA_MIB, ARENA_TOKENS = 896, 2048
STAGING_MIB = 40
"""1,710 outside both budgets - 678 held - 896 of arena - 96 of headroom."""
STATIC_KEPT_MIB = 113.19
"""Kept beside the headroom by versions that print it."""

PLANE_MIB, PLANE_PAIR_MIB = 70_771, 67_031
NGRAM_MIB = 48_824
MODEL_CONTEXT = 262_144


class Refused(Exception):
    """The boot ends here; the text is what the engine logs, ``reason`` its last word."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text


@dataclass(frozen=True)
class Budget:
    """One card. ``kv_stated`` is True where the operator stated the pool."""

    total: float
    held: float
    arena: float
    staging: float
    headroom: float
    claimable: float
    experts: float
    kv: float
    ceiling: float
    fixed: float
    tokens: int
    worst_tokens: int
    kv_stated: bool
    floor: float
    seqs: int
    length: int

    @property
    def settled_free(self) -> float:
        """Free on the card once everything is placed: the arena is lent, so only what is held, slab and pool count."""
        return self.total - self.held - self.experts - self.kv

    @property
    def sessions(self) -> float:
        """Full-length sessions that the paged part backs."""
        return self.seqs * self.tokens / self.worst_tokens


def page_kib(dtype: str) -> float:
    """KiB of one page over all paged groups: they share one token axis."""
    return sum(group[dtype] for group in GROUP_KIB.values())


def resolve(options: Options, simulation: Simulation) -> Budget:
    """The split of every card. Raises Refused."""
    seqs, length = options.number("--max-num-seqs", 256), options.number("--max-model-len") or MODEL_CONTEXT
    dtype = options.text("--kv-cache-dtype", "bf16")
    resolver = simulation.release >= (1, 3, 0)
    slots = options.number("--checkpoint-slots", 8)
    pads = GROUP_PAD_KIB * len(GROUP_KIB) + (0 if resolver or not slots else GRANULE_KIB)
    fixed = seqs * STATE_MIB + (0 if resolver else slots * CHECKPOINT_MIB) + pads / 1024
    pages = seqs * -(-length // PAGE_TOKENS)
    ceiling = fixed + pages * page_kib(dtype) / 1024
    headroom = options.number("--gpu-headroom-mib", 96)
    arena = ARENA_MIB * options.number("--max-num-batched-tokens", 8192) / ARENA_TOKENS
    base = simulation.card_mib - HELD_MIB - headroom - arena - STAGING_MIB
    floor = headroom + (STATIC_KEPT_MIB if simulation.release >= (1, 1, 0) else 0)
    if resolver:
        experts, kv, claimable = _derived(base, options, ceiling, fixed)
    else:
        room = base if simulation.release < (1, 1, 0) else simulation.card_mib - HELD_MIB - floor
        experts, kv, claimable = _stated(room, options, ceiling)
    stated = not resolver and options.number("--vram-kv-mib") > 0
    funded = max(0, int((kv - fixed) * 1024 / page_kib(dtype)))
    return Budget(
        total=simulation.card_mib,
        held=HELD_MIB,
        arena=arena,
        staging=STAGING_MIB,
        headroom=headroom,
        claimable=claimable,
        experts=experts,
        kv=kv,
        ceiling=ceiling,
        fixed=fixed,
        tokens=(funded if stated else min(funded, pages)) * PAGE_TOKENS,
        worst_tokens=pages * PAGE_TOKENS,
        kv_stated=stated,
        floor=floor,
        seqs=seqs,
        length=length,
    )


def _derived(base: float, options: Options, ceiling: float, fixed: float) -> tuple[float, float, float]:
    """The resolver: experts get what the host pool cannot hold, the cache the rest, up to its ceiling."""
    demand = max(0.0, PLANE_MIB - options.number("--host-pool-mib"))
    kv = min(ceiling, base - demand)
    if kv <= fixed:
        raise _short(base, fixed - kv, (("experts", demand), ("kv cache", fixed)))
    return base - kv, kv, base


def _stated(room: float, options: Options, ceiling: float) -> tuple[float, float, float]:
    """Both budgets as stated; a budget of 0 is derived by the ratio."""
    weights, kv = float(options.number("--vram-weights-mib")), float(options.number("--vram-kv-mib"))
    left = room - weights - kv
    if left < 0:
        stated = (("--vram-weights-mib", weights), ("--vram-kv-mib", kv))
        raise _short(room, -left, tuple((name, mib) for name, mib in stated if mib))
    ratio = float(options.values.get("--expert-vs-cache-ratio", 0.75))
    if not kv:
        kv = min(ceiling, left if weights else left * (1 - ratio))
    if not weights:
        weights = room - kv
    missing = PLANE_PAIR_MIB - weights - options.number("--host-pool-mib")
    if missing > 0 and not options.values.get("--weights-disk-tier"):
        raise Refused(
            f"DID NOT FIT 96 x blk.*.ffn_experts ({size(missing)}): the host pool is full and no --weights-disk-tier "
            "was given"
        )
    return weights, kv, room


def _short(room: float, by: float, asked: tuple[tuple[str, float], ...]) -> Refused:
    rows = [f"  {name:<18} {size(mib):>10}" for name, mib in (("claimable", room), *asked)]
    head = "VRAM does not cover what is asked of it:"
    return Refused(
        "\n".join([head, *rows, "  " + "-" * 30, f"  {'SHORT BY':<18} {size(by):>10}"]), "the budget is short"
    )


def pinned_mib(options: Options) -> int:
    """Host memory that the engine locks: a pool a rank, the n-gram table, the prefix cache, the staging of a step."""
    prefix = options.number("--prefix-cache-mib") + options.number("--prefix-cache-host-mib")
    ranks = options.number("--tp", 1) * options.number("--host-pool-mib")
    return ranks + NGRAM_MIB + prefix + options.number("--max-num-batched-tokens", 8192)


def size(mib: float) -> str:
    """A size as the engine prints it: 1024-based, two decimals."""
    for unit, factor in (("TiB", 1 << 20), ("GiB", 1 << 10), ("MiB", 1)):
        if mib >= factor:
            return f"{mib / factor:.2f} {unit}"
    return f"{mib * 1024:.2f} KiB" if mib * 1024 >= 1 else f"{round(mib * 1024 * 1024)} B"
