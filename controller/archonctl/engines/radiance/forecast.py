"""The capacity law of radiance applied to one declaration on one host."""

from __future__ import annotations

import math
from dataclasses import astuple

from archonctl.deployment.schema import Contract, Endpoint
from archonctl.engines.base import CardRule, Forecast, HostNeed, Pinned, Problem
from archonctl.engines.radiance import cards
from archonctl.engines.radiance.capacity import funds
from archonctl.engines.radiance.demands import card_demands, host_demands
from archonctl.engines.radiance.memory import allreduce_rows, exact_rows, pages, ttm_floor_mib
from archonctl.engines.radiance.settings import Settings, read_settings
from archonctl.engines.radiance.terms import explain
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB, Interval
from archonctl.model.rad import RadManifest

NOT_MODELLED = (
    "finished conversations kept by the prefix cache (one of T tokens holds about 1.8 x T until it is evicted)",
    "idle cache blocks and the top of the arena that are lent to the expert slab",
    "how the slab divides into static weights and resident experts",
)


def assess(endpoint: Endpoint, host: Host, manifest: RadManifest | None, *, detail: bool = False) -> Forecast:
    """The forecast without levers, which are tried against it; ``detail`` adds the working."""
    settings, found = read_settings(endpoint)
    funded = funds(settings, manifest, endpoint.boot, endpoint.contract)
    needed = funded.law.pool_mib(endpoint.contract.tokens_with_margin, settings.slots) if funded.law else None
    shown = cards.views(settings, host, funded, needed)
    need = _host_need(settings, host, manifest)
    problems = [*found, *cards.problems(settings, host, shown), *_problems(endpoint, settings, host, manifest, need)]
    demands = []
    if manifest is not None:
        for view in shown:
            demands += card_demands(view.card, view.ceiling, view.share, settings, manifest.activation.arena_mib)
        demands += host_demands(settings, manifest)
    return Forecast(
        method=funded.method,
        kv_tokens=funded.tokens,
        seqs_limit=settings.slots,
        seq_len_limit=_window(settings, manifest),
        cards=tuple(view.share for view in shown),
        demands=tuple(demands),
        card_rule=CardRule(headroom=0.0, counts_outside=True),
        host_need=need,
        notes=(
            *_missing_notes(endpoint.contract, funded.tokens),
            *funded.notes,
            *cards.notes(settings, shown),
            *_notes(endpoint, settings, host, manifest, need),
        ),
        not_modelled=NOT_MODELLED,
        problems=tuple(problems),
        methods=funded.methods,
        terms=explain(endpoint, settings, funded, need) if detail else (),
    )


def _window(settings: Settings, manifest: RadManifest | None) -> int | None:
    trained = manifest.context.trained if manifest else None
    known = [tokens for tokens in (settings.window, trained) if tokens]
    return min(known, default=None)


def _host_need(settings: Settings, host: Host, manifest: RadManifest | None) -> HostNeed:
    if manifest is None:
        return HostNeed()
    table_mib = math.ceil(manifest.host.ngram_table_mib)
    pinned = Pinned(settings.tp, settings.host_pool_mib, table_mib, settings.prefix_mib, settings.batched_tokens)
    floor = ttm_floor_mib(*astuple(pinned))
    return HostNeed(floor, pages(floor, host.page_bytes), pinned)


def _problems(
    endpoint: Endpoint, settings: Settings, host: Host, manifest: RadManifest | None, need: HostNeed
) -> list[Problem]:
    found = []
    floor, target = need.ttm_floor_mib, host.ttm_target_mib
    if floor is not None and target is not None and floor > target:
        message = f"the pinned-memory floor is {floor:,} MiB, the host's TTM target is {target:,} MiB"
        found.append(
            Problem("ttm-target-low", message, "lower host-pool-mib or the prefix cache, or raise ttm_target_mib")
        )
    if manifest is None:
        return found
    if manifest.tensor_parallel and settings.tp in manifest.tensor_parallel.refuses:
        serves = ", ".join(map(str, manifest.tensor_parallel.serves))
        message = f"this container refuses tp {settings.tp}; it serves {serves}"
        found.append(Problem("tp-unservable", message, f"set tp to one of {serves}"))
    for what, declared, stated in (
        ("bytes", endpoint.model.bytes, manifest.file.bytes),
        ("sha256", endpoint.model.sha256, manifest.file.sha256),
    ):
        if declared is not None and declared != stated:
            message = f"[model] {what} is {declared}, the manifest is for a file with {stated}"
            found.append(Problem("manifest-mismatch", message, "point [model] manifest to the manifest of this file"))
    return found


def _notes(
    endpoint: Endpoint, settings: Settings, host: Host, manifest: RadManifest | None, need: HostNeed
) -> list[str]:
    lines = _ttm_notes(host, need)
    if manifest is None:
        return lines
    lines += _wire_notes(settings, manifest)
    arena, at = manifest.activation.arena_mib, manifest.activation.at_batched_tokens
    if settings.batched_tokens != at:
        lines.append(
            f"the arena of {arena:,.0f} MiB was measured at {at:,} batched tokens and grows with them; "
            f"{settings.batched_tokens:,} are declared"
        )
    served = manifest.context.largest_served
    if manifest.context.trained is None and served is not None and endpoint.contract.len > served:
        lines.append(
            f"len {endpoint.contract.len:,} is over the longest window known to be served, {served:,}; the trained "
            "length is not public"
        )
    file = manifest.file
    if file.quoted_mib is not None and abs(file.quoted_mib - file.bytes / MIB) >= 0.05:
        lines.append(
            f"the model file is {file.bytes / MIB:,.1f} MiB by its {file.bytes:,} bytes; {file.quoted_mib:,.0f} MiB is "
            "quoted: the bytes decide"
        )
    return lines


def _missing_notes(contract: Contract, tokens: Interval | None) -> list[str]:
    """Both shortfalls where there is a margin: to the promise itself, and to the promise with its margin."""
    if tokens is None or not contract.margin or tokens.best >= contract.tokens:
        return []
    bare, wanted = contract.tokens - int(tokens.best), contract.tokens_with_margin - int(tokens.best)
    return [
        f"{bare:,} tokens are missing to {contract.seqs:,} x {contract.len:,}, {wanted:,} with the margin of "
        f"{contract.margin:.2%}".replace("%", " %")
    ]


def _ttm_notes(host: Host, need: HostNeed) -> list[str]:
    limit, floor = host.ttm_pages_limit, need.ttm_floor_pages
    if limit is None or floor is None or limit >= floor:
        return []
    raised = f"raised to {host.ttm_target_mib:,} MiB" if host.ttm_target_mib else "raised"
    return [
        f"the kernel's TTM limit of {limit:,} pages ({limit * host.page_bytes // MIB:,} MiB) is under the floor of "
        f"{floor:,} pages ({need.ttm_floor_mib:,} MiB): it must be {raised} before every start"
    ]


def _wire_notes(settings: Settings, manifest: RadManifest) -> list[str]:
    depth = settings.depth
    if depth is None and manifest.speculation is not None:
        depth = manifest.speculation.depth
    if settings.tp < 2 or not settings.lossy_wire or depth is None:
        return []
    rows, exact = allreduce_rows(settings.slots, depth), exact_rows(manifest.hidden, settings.wire_min_kib)
    verdict = "exact" if rows <= exact else "lossy: decode is no longer bit-exact"
    return [
        f"all-reduce of a decode step: {settings.slots:,} x (1 + {depth}) = {rows:,} rows, the wht6 wire is exact up "
        f"to {exact:,}: {verdict}"
    ]
