"""How much memory the cache of one rank gets: stated, seen at a boot, or worked out from the card; else unknown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from archonctl.deployment.schema import Boot, Endpoint, KnobValue
from archonctl.engines.vllm.memory import CPU_SPACE_GIB, CPU_SPACE_UNTIL, blind_rank_bytes
from archonctl.engines.vllm.rest import Rest
from archonctl.engines.vllm.settings import CPU_SPACE, Settings, settings_of
from archonctl.host.profile import Host
from archonctl.memory.interval import GIB, MIB, Interval

SHAPE = (
    *("tp", "pp", "batched_tokens", "max_num_seqs", "kv_memory_bytes", "cpu", "drafts"),
    *("lora", "offload_gib", "graphs", "graphs_counted", "images", "extras"),
)
"""What moves activations or weights: a boot with another one of these says nothing about today."""


@dataclass(frozen=True, slots=True)
class Available:
    """Bytes a rank. ``size`` is None where it is unknown; ``method`` then says why."""

    size: Interval | None
    method: str
    blind: bool = False
    boot: Boot | None = None
    """The boot that this rests on."""


def available(
    endpoint: Endpoint, settings: Settings, host: Host, weights: Interval | None, rest: Rest | None
) -> Available:
    """Memory for the cache of one rank, by the best method that applies. ``rest`` is None where no card is known."""
    if settings.no_law:
        return Available(None, f"{', '.join(settings.no_law)} changes the layers that keep a cache")
    space = _space_gib(settings) if settings.cpu else 0
    if settings.kv_memory_bytes and not space:  # vllm/platforms/cpu.py writes the variable over the option
        stated = settings.kv_memory_bytes
        return Available(Interval.exact(stated, "config"), f"kv-cache-memory-bytes, {stated:,} a rank")
    if settings.cpu:
        return _cpu(space)
    reasons: list[str] = []
    for boot in endpoint.boot:
        size, why = _seen(endpoint, settings, host, boot)
        if size is not None:
            return Available(size, f"{boot.kv_gib} GiB a rank seen at the boot of {boot.source}{why}", boot=boot)
        reasons.append(why)
    return _blind(settings, host, weights, rest, reasons)


def _space_gib(settings: Settings) -> int:
    unset = CPU_SPACE_GIB if settings.rules.version < CPU_SPACE_UNTIL else 0
    return settings.cpu_space_gib or unset


def _cpu(space: int) -> Available:
    if not space:
        return Available(None, f"{CPU_SPACE} is not set: this version then takes a share of RAM that no law here gives")
    return Available(Interval.exact(space * GIB, "config"), f"{CPU_SPACE}, {space} GiB a rank")


def boot_endpoint(endpoint: Endpoint, boot: Boot) -> Endpoint:
    """The declaration as it was at that boot."""
    knobs: Mapping[str, KnobValue] = {**endpoint.engine.knobs, **boot.knobs}
    return endpoint.model_copy(
        update={
            "contract": endpoint.contract.model_copy(
                update={"seqs": boot.seqs, "len": boot.len, "kv_dtype": boot.kv_dtype}
            ),
            "engine": endpoint.engine.model_copy(update={"version": boot.engine_version, "knobs": dict(knobs)}),
        }
    )


def _seen(endpoint: Endpoint, settings: Settings, host: Host, boot: Boot) -> tuple[Interval | None, str]:
    """What a boot of the same version and shape left for the cache, moved by a changed utilisation; or why not."""
    if boot.engine_version != endpoint.engine.version:
        return None, f"the boot of {boot.source} was of version {boot.engine_version}"
    if not boot.kv_gib:
        return None, f"the boot of {boot.source} names no kv_gib"
    then = settings_of(boot_endpoint(endpoint, boot))
    if differing := [name for name in SHAPE if getattr(then, name) != getattr(settings, name)]:
        return None, f"the boot of {boot.source} had another {' and '.join(differing)}"
    size = Interval.rounded(boot.kv_gib, GIB, "log")
    moved = settings.utilisation - then.utilisation
    if not moved:
        return size, ""
    total = _least_card_mib(settings, host)
    if total is None:
        return None, f"the boot of {boot.source} used another share of a card whose memory is not known"
    shift = moved * total * MIB
    ends = replace(size, low=size.low + shift, best=size.best + shift, high=size.high + shift)
    return ends, f", {shift / GIB:+.2f} GiB for another utilisation"


def _least_card_mib(settings: Settings, host: Host) -> int | None:
    """The smallest of the cards that hold a rank: the fewest blocks bind on all. None where there are too few."""
    used = host.cards[: settings.ranks]
    return min(card.total_mib for card in used) if len(used) == settings.ranks else None


def _blind(
    settings: Settings, host: Host, weights: Interval | None, rest: Rest | None, reasons: list[str]
) -> Available:
    total = _least_card_mib(settings, host)
    if rest is None or not host.cards:
        reasons.append("no card is known: set [host], kv-cache-memory-bytes, or a [[boot]] with kv_gib")
    elif total is None:
        reasons.append(f"{settings.ranks} ranks on {len(host.cards)} known cards")
    elif weights is None:
        reasons.append("the weights are not there to count")
    elif rest.unknown:
        reasons.append(f"no law for {' and '.join(rest.unknown)}")
    else:
        share = rest.share
        size = blind_rank_bytes(total * MIB, settings.utilisation, weights, share)
        method = (
            f"blind: {total / 1024:.2f} GiB x {settings.utilisation:g} - weights {weights.best / GIB:.2f} - "
            f"{share.best / GIB:.2f} GiB ({share.low / GIB:.2f} to {share.high / GIB:.2f}) of {rest.words}"
        )
        return Available(size, method, blind=True)
    return Available(None, "; ".join(reasons))
