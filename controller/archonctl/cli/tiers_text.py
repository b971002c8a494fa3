"""Tiers and placement for people: what is known, a row a tier, a row a conversation, and the engine's own tiers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from archonctl.cli.output import Output
from archonctl.memory.interval import MIB, Interval
from archonctl.tiers.explain import TiersPlan
from archonctl.tiers.own import Loss, OwnTier
from archonctl.tiers.table import ENGINE
from archonctl.tiers.values import Action, Placement

_SHOWN = 64
"""Conversations that are shown one by one, what is moved first."""

_COLOUR = {
    Action.KEEP: "dim",
    Action.PROMOTE: "cyan",
    Action.DEMOTE: "green",
    Action.SPILL: "green",
    Action.COMPRESS_DEMOTE: "green",
    Action.EVICT: "red",
}


def tiers_text(plan: TiersPlan, out: Output) -> str:
    """The whole answer."""
    lines = [*_head(plan, out), "", *_tiers(plan, out)]
    if plan.now is not None and plan.now.decisions:
        lines += ["", out.paint("now", "bold"), *_placement(plan, plan.now, out)]
    if plan.arrival is not None and plan.arrival.decisions:
        idle = "" if plan.live else " and those of the contract are idle"
        came = f"where a conversation of {_mib(plan.arriving_bytes)} comes in{idle}"
        lines += ["", out.paint(came, "bold"), *_placement(plan, plan.arrival, out)]
    lines += [*_own(plan, out), *_losses(plan, out), *_hits(plan)]
    lines += [f"unknown: {each}" for each in plan.unknown]
    return "\n".join(lines)


def _head(plan: TiersPlan, out: Output) -> Iterator[str]:
    version = f" {plan.engine_version}" if plan.engine_version else ""
    where = f"live at {plan.live.where}" if plan.live else "nothing answers: by the declaration"
    yield f"{out.paint(plan.endpoint, 'bold')}  {plan.engine}{version}, {where}"
    if plan.price:
        each = f" and {_mib(round(plan.price.bytes_per_conversation))} a conversation"
        yield (
            f"  KV cache     {plan.price.bytes_per_token:,.1f} bytes a token"
            f"{each if plan.price.bytes_per_conversation else ''}  ({plan.price.working})"
        )
    if plan.prefill:
        speed = plan.prefill.tokens_per_s
        yield f"  prefill      {_range(speed)} tokens/s: {1000 / speed.best:.3f} ms a token  ({plan.prefill.source})"


def _tiers(plan: TiersPlan, out: Output) -> list[str]:
    rows = [("tier", "capacity", "used", "mark", "MiB/s", "there and back, 1 GiB", "from")]
    for tier in plan.board.tiers:
        size, trip = tier.capacity_bytes, tier.round_trip_s(1 << 30)
        slots = f", {tier.places} slots" if tier.places is not None else ""
        rows.append(
            (
                tier.name,
                _mib(size),
                _mib(plan.board.used_bytes(tier.name)),
                _mib(None if size is None else int(size * plan.board.mark(tier))),
                "unknown" if tier.bandwidth_bytes_per_s is None else f"{tier.bandwidth_bytes_per_s / MIB:,.0f}",
                "" if tier.name == ENGINE else _seconds(trip),
                tier.source + slots,
            )
        )
    return _table(rows, out)


def _placement(plan: TiersPlan, placement: Placement, out: Output) -> list[str]:
    colder = [tier.name for tier in plan.board.tiers if tier.name != ENGINE]
    rows: list[tuple[str, ...]] = [
        ("conversation", "in", "tokens", "size", "prefill again", *colder, "decision", "reason")
    ]
    for each in placement.decisions[:_SHOWN]:
        item = each.item
        to = f" to {each.to_tier}" if each.moves and each.to_tier else ""
        to += f" in {_mib(each.bytes_after)}" if each.action is Action.COMPRESS_DEMOTE else ""
        trips = [_seconds(each.round_trip_s[name]) if name in each.round_trip_s else "" for name in colder]
        rows.append(
            (
                item.id + (" (busy)" if item.in_use else ""),
                item.tier,
                "unknown" if item.tokens is None else f"{item.tokens:,}",
                _mib(item.bytes),
                _seconds(each.recompute_s),
                *trips,
                f"{each.action.value}{to}",
                each.reason.value,
            )
        )
    lines = _table(rows, out)
    for number, each in enumerate(placement.decisions[:_SHOWN], start=1):
        lines[number] = lines[number].replace(each.action.value, out.paint(each.action.value, _COLOUR[each.action]), 1)
    if more := placement.decisions[_SHOWN:]:
        counted = Counter(f"{each.action.value} {each.reason.value}" for each in more)
        rest = ", ".join(f"{count:,} {said}" for said, count in counted.most_common())
        lines.append(f"  and {len(more):,} more (--json has them all): {rest}")
    if placement.pressed:
        lines.append(f"  {', '.join(placement.pressed)} cannot be relieved: what is in it is in use or unknown")
    return lines


def _own(plan: TiersPlan, out: Output) -> Iterator[str]:
    if not plan.own and plan.gift is None:
        return
    yield ""
    yield out.paint("the engine's own tiers", "bold")
    for each in plan.own:
        yield from _own_tier(each)
    gift = plan.gift
    if gift is None:
        return
    if gift.give_bytes is None:
        yield f"  to give      unknown; {_mib(gift.wanted_bytes)} are wanted: {gift.why}"
    else:
        knobs = "  ".join(f"{name} = {value}" for name, value in gift.knobs) or "nothing"
        yield f"  to give      {out.paint(knobs, 'cyan')}  ({_mib(gift.give_bytes)})"
        yield f"               {gift.why}"


def _own_tier(own: OwnTier) -> Iterator[str]:
    cache = own.parked.cache
    by = "" if cache.declared else ", the engine's default"
    gone = "" if own.taken else "  NOT TAKEN by this version"
    yield f"  {cache.row.tier:11}  {cache.row.flag}: {_mib(cache.bytes)}{by}{gone}"
    if own.parked.tokens is not None:
        refill = f", {_span(own.refill_s)} to prefill again" if own.refill_s else ""
        yield f"               {own.parked.working} = {_range(own.parked.tokens)} tokens{refill}"


def _losses(plan: TiersPlan, out: Output) -> Iterator[str]:
    if not plan.to_version:
        return
    yield ""
    if not plan.losses:
        yield f"{plan.engine} {plan.to_version} has every tier that is declared here"
    for loss in plan.losses:
        yield out.paint(f"{plan.engine} {plan.to_version} has no {loss.flag}", "bold", "red")
        yield from _loss(plan, loss)


def _loss(plan: TiersPlan, loss: Loss) -> Iterator[str]:
    if loss.tokens is None:
        yield f"  {_mib(loss.bytes)} of {loss.tier}; {loss.working}"
        return
    yield f"  {loss.working} = {_range(loss.tokens)} tokens"
    if loss.refill_s is None or plan.prefill is None:
        yield "  how long prefilling them again takes is not known"
        return
    speed = plan.prefill.tokens_per_s
    yield (
        f"  {_range(loss.tokens)} tokens / {_range(speed)} tokens/s = {_range(loss.refill_s)} s of prefill "
        f"({_span(loss.refill_s)}) for all that it held, once"
    )


def _hits(plan: TiersPlan) -> Iterator[str]:
    expected, seen = plan.expected_hit_ratio, plan.live.prefix_hit_ratio if plan.live else None
    if expected is None and seen is None:
        return
    yield ""
    said = "not known ([tiers] reuse and conversations say what comes back)" if expected is None else f"{expected:.1%}"
    yield f"prefix hits    expected {said}; since the engine started: {'unknown' if seen is None else f'{seen:.1%}'}"


def _table(rows: Sequence[tuple[str, ...]], out: Output) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in (0, last - 1, last) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(("  " + "  ".join(cells)).rstrip())
    lines[0] = out.paint(lines[0], "dim")
    return lines


def _mib(size: int | None) -> str:
    if size is None:
        return "unknown"
    return (
        f"{size:,} bytes"
        if 0 < size < MIB
        else f"{size / MIB:,.0f} MiB"
        if size % MIB == 0
        else f"{size / MIB:,.1f} MiB"
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.1f} s" if value >= 10 else f"{value:.2f} s" if value >= 1 else f"{1000 * value:.3g} ms"


def _range(value: Interval) -> str:
    low, high = f"{value.low:,.0f}", f"{value.high:,.0f}"
    return high if low == high else f"{low} to {high}"


def _span(value: Interval | None) -> str:
    if value is None:
        return "unknown"
    low, high = (_length(end) for end in (value.low, value.high))
    return low if low == high else f"{low} to {high}"


def _length(seconds: float) -> str:
    return f"{seconds / 60:,.1f} min" if seconds >= 120 else f"{seconds:,.1f} s"
