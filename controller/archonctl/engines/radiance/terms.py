"""radiance's law as a working: the stated pool at the price of a token, or a boot and what was moved since."""

from __future__ import annotations

from archonctl.deployment.schema import Boot, Endpoint
from archonctl.engines.base import HostNeed
from archonctl.engines.radiance.calibrate import Carried
from archonctl.engines.radiance.capacity import Funds
from archonctl.engines.radiance.kv import KvLaw
from archonctl.engines.radiance.settings import Settings
from archonctl.engines.terms import Term, Working
from archonctl.memory.interval import Interval

_LAW = "radiance 1.0.5 core/mem/kv.cpp"
_LEDGER = "pinned-memory ledger of the archon host"


def explain(endpoint: Endpoint, settings: Settings, funded: Funds, need: HostNeed) -> tuple[Term, ...]:
    """The working of one forecast; without a manifest there is none."""
    work = Working()
    contract = endpoint.contract
    work.take("seqs", contract.seqs, "sequences", "promised at once", "declared", key="contract.seqs")
    work.take("len", contract.len, "tokens", "promised to each", "declared", key="contract.len")
    work.take("margin", contract.margin, "", "share on top", "declared", key="contract.margin")
    work.work("wanted", contract.tokens_with_margin, "tokens", "the contract with its margin",
              "seqs * len + round(seqs * len * margin)")  # fmt: skip
    if funded.law is not None:
        _price(work, endpoint, settings, funded.law)
        pool = funded.law.pool_mib(contract.tokens_with_margin, settings.slots)
        work.work("pool_needed", pool, "MiB", "of a card's pool", "wanted * kib_per_token / 1024 + fixed", _LAW)
        _tokens(work, settings, funded)
    _floor(work, need)
    return work.terms()


def _price(work: Working, endpoint: Endpoint, settings: Settings, law: KvLaw) -> None:
    work.take("kib_per_token", law.kib_per_token, "KiB", f"a token on one rank, {law.kv_dtype}", "declared", "manifest",
              key="model.manifest")  # fmt: skip
    key = "max-num-seqs" if "max-num-seqs" in endpoint.engine.knobs else ""
    work.take("slots", settings.slots, "sequences", "that get recurrent state", "declared",
              key=f"engine.knobs.{key}" if key else "contract.seqs")  # fmt: skip
    work.take("state", law.state_mib, "MiB", "recurrent state of one sequence", "declared", key="model.manifest")
    work.take("checkpoints", law.checkpoints_mib, "MiB", "snapshots inside the pool", "declared", key="model.manifest")
    fixed = law.fixed_mib(settings.slots)
    work.work("fixed", fixed, "MiB", "of the pool before the first token", "state * slots + checkpoints", _LAW)


def _tokens(work: Working, settings: Settings, funded: Funds) -> None:
    if funded.tokens is None:
        return
    carried = funded.carried if funded.carried and funded.carried.boot else None
    if carried is None and settings.pool_mib is not None:
        key = "engine.knobs.vram-kv-mib"
        work.take("pool", settings.pool_mib, "MiB", "of a card's cache, stated", "declared", key=key)
        formula = "max(0, (pool - fixed) * 1024 / kib_per_token)"
        work.estimate("kv_tokens", funded.tokens, "tokens", "of one rank, so of all", formula, _LAW)
    elif carried is not None and carried.boot is not None:
        _carried(work, settings, funded.tokens, carried, carried.boot)


def _carried(work: Working, settings: Settings, tokens: Interval, carried: Carried, boot: Boot) -> None:
    """A boot, the state that other slots free, and the host pool that was moved at the most trusted rate."""
    work.take("boot_tokens", boot.kv_tokens, "tokens", "seen at a boot", "log", boot.source)
    work.take("boot_seqs", boot.seqs, "sequences", "of that boot", "log", boot.source)
    parts = ["boot_tokens"]
    if boot.seqs != settings.slots:
        parts.append("(boot_seqs - slots) * state * 1024 / kib_per_token")
    if carried.moved_mib and carried.rates:
        work.take("moved", carried.moved_mib, "MiB", "of host pool a rank, since that boot", "declared",
                  key="engine.knobs.host-pool-mib")  # fmt: skip
        name, rate = next(iter(carried.rates.items()))
        work.estimate("rate", rate, "tokens a MiB", name, origin="engines/radiance/calibration.toml")
        parts.append("moved * rate")
    if carried.headroom_mib:
        work.take("headroom", carried.headroom_mib, "MiB", "of headroom more than that boot: off the cache at worst",
                  "declared", key="engine.knobs.gpu-headroom-mib")  # fmt: skip
        parts.append("min(0, -headroom * 1024 / kib_per_token)")
    formula = f"max(0, {' + '.join(parts)})"
    work.estimate("kv_tokens", tokens, "tokens", "by the most trusted rate; the ends span all", formula)


def _floor(work: Working, need: HostNeed) -> None:
    pinned = need.pinned
    if pinned is None or need.ttm_floor_mib is None:
        return
    work.take("ranks", pinned.ranks, "", "cards", "declared", key="engine.knobs.tp")
    work.take(
        "host_pool", pinned.host_pool_mib, "MiB", "pinned by each rank", "declared", key="engine.knobs.host-pool-mib"
    )
    work.take("table", pinned.table_mib, "MiB", "n-gram table", "declared", key="model.manifest")
    work.take("prefix", pinned.prefix_mib, "MiB", "prefix cache", "declared", key="engine.knobs.prefix-cache-mib")
    work.take("batched", pinned.batched_tokens, "MiB", "batched tokens, counted 1:1", "declared",
              key="engine.knobs.max-num-batched-tokens")  # fmt: skip
    formula = "ceil(ranks * host_pool + table + prefix + batched)"
    work.work("ttm_floor", need.ttm_floor_mib, "MiB", "of memory that the kernel must allow to pin", formula, _LEDGER)
