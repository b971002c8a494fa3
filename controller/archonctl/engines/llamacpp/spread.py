"""A model spread over cards and RAM: what each is asked for, and what ``--fit`` would move where it is too much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from archonctl.engines.base import Problem
from archonctl.engines.beside import context_bytes
from archonctl.engines.llamacpp.devices import DeviceShare, layer_devices, place
from archonctl.engines.llamacpp.draft import Draft
from archonctl.engines.llamacpp.fill import fill, placed
from archonctl.engines.llamacpp.kv import VERIFIED_ARCHITECTURES, KvAllocation, KvSettings, layer_bytes
from archonctl.engines.llamacpp.memory import Widths, device_compute
from archonctl.engines.llamacpp.offload import Offload
from archonctl.host.profile import Card
from archonctl.memory.demand import Demand, Scope
from archonctl.memory.interval import MIB, Interval
from archonctl.model.geometry import Geometry, ModelFacts


@dataclass(frozen=True, slots=True)
class Part:
    """One device's part. ``card`` is None for RAM; ``compute`` where the architecture's widths have no law."""

    share: DeviceShare
    card: Card | None
    compute: Interval | None
    draft: DeviceShare | None = None
    """Weights and cells of a draft context there; its compute buffer is in ``compute``."""

    @property
    def wanted(self) -> Interval:
        """Bytes of weights, cells and compute buffer together."""
        fixed = self.share.weights + self.share.kv + (self.draft.weights + self.draft.kv if self.draft else 0)
        more = self.compute or Interval.exact(0)
        return Interval(fixed + more.low, fixed + more.best, fixed + more.high, "assumed")

    @property
    def room_bytes(self) -> int | None:
        """What is free on the card, or all of it where that is not known; None for RAM."""
        if self.card is None:
            return None
        return (self.card.total_mib if self.card.free_mib is None else self.card.free_mib) * MIB


@dataclass(frozen=True, slots=True)
class Spread:
    """RAM first, then each card in use. ``moved`` says what --fit was taken to move; "" for nothing."""

    offload: Offload
    parts: tuple[Part, ...]
    moved: str = ""

    @property
    def cards(self) -> tuple[Part, ...]:
        """The parts that lie on cards."""
        return self.parts[1:]


@dataclass(frozen=True, slots=True)
class _Case:
    """What does not change while layers are moved."""

    model: ModelFacts
    geometry: Geometry
    settings: KvSettings
    kv: KvAllocation
    draft: Draft | None


def spread(
    model: ModelFacts | None,
    geometry: Geometry | None,
    settings: KvSettings,
    kv: KvAllocation | None,
    offload: Offload,
    draft: Draft | None = None,
) -> Spread | None:
    """The split over cards; None where nothing lies on a card, or where only the engine knows what does."""
    if model is None or geometry is None or kv is None or not model.tensor_sizes:
        return None
    if not offload.devices or offload.gpu_layers == 0 or offload.unclear or (draft and draft.placed_by_hand):
        return None
    case = _Case(model, geometry, settings, kv, draft)
    whole = _at(case, offload)
    if _holds(whole) or offload.fixed_by_hand or not settings.fit:
        return whole
    return _fitted(case, offload)


def _at(case: _Case, offload: Offload) -> Spread:
    free = _free(offload)
    shares = place(case.model, case.geometry, case.settings, case.kv, offload, free)
    where = layer_devices(len(case.geometry.layers), offload, free)
    known = case.geometry.architecture in VERIFIED_ARCHITECTURES
    widths = Widths.of(case.model, case.geometry) if known else None
    computes = [
        device_compute(case.geometry, widths, case.settings, case.kv, offload, where, share.device) if widths else None
        for share in shares
    ]
    cards = (None, *offload.devices)
    parts = tuple(map(Part, shares, cards, computes))
    return Spread(offload, _with_draft(parts, case.draft, offload, where[:-1]) if case.draft else parts)


def _with_draft(
    parts: tuple[Part, ...], draft: Draft, offload: Offload, where: Sequence[int | None]
) -> tuple[Part, ...]:
    """The draft context on the same devices; ``where`` is the device of each layer of the model."""
    if draft.model is None:  # multi-token layers are the last of the model, and their cells lie where they do
        cells: dict[int | None, int] = {}
        sizes = layer_bytes(draft.geometry, draft.settings, draft.kv)
        for device, size in zip(where[-len(sizes) :], sizes, strict=True):
            place_of = device if offload.kv_offload else None
            cells[place_of] = cells.get(place_of, 0) + size
        shares = tuple(DeviceShare(p.share.device, 0, cells.get(p.share.device, 0), 0) for p in parts)
    else:  # split like the model, but by a number of layers of its own
        own = replace(offload, gpu_layers=draft.gpu_layers, overrides=())
        shares = place(draft.model, draft.geometry, draft.settings, draft.kv, own, _free(offload))
    return tuple(
        replace(part, draft=share, compute=_together(part.compute, draft.compute if share.kv + share.weights else None))
        for part, share in zip(parts, shares, strict=True)
    )


def _free(offload: Offload) -> list[float]:
    return [float(card.total_mib if card.free_mib is None else card.free_mib) for card in offload.devices]


def _together(one: Interval | None, other: Interval | None) -> Interval | None:
    """Two compute buffers; of the second, only the most is known for a part of its layers."""
    if one is None or other is None:
        return one
    return Interval(one.low, one.best + other.best, one.high + other.high, "assumed")


def _holds(one: Spread) -> bool:
    """True if every card keeps the margin that --fit wants to leave free."""
    return all(
        part.wanted.best + one.offload.margin_mib(number) * MIB <= (part.room_bytes or 0)
        for number, part in enumerate(one.cards)
    )


def _fitted(case: _Case, offload: Offload) -> Spread:
    """The split that --fit is taken to make, so that all cards keep their margin."""
    layers = len(case.geometry.layers)
    cards = _at(case, offload).cards
    rooms = [(part.room_bytes or 0) - offload.margin_mib(number) * MIB for number, part in enumerate(cards)]

    def wanted(asked: Offload) -> list[float]:
        return [part.wanted.best for part in _at(case, asked).cards]

    layout = fill(layers, bool(case.geometry.experts), offload, rooms, wanted)
    bare, left = sum(held.bare for held in layout), layers + 1 - sum(held.layers for held in layout)
    moved = [f"the experts of about {bare} of {layers} layers"] if bare else []
    moved += [f"all but about {layers + 1 - left} of {layers + 1} layers"] if left else []
    return replace(_at(case, placed(layout, layers, offload)), moved=f"{' and '.join(moved)} to RAM" if moved else "")


def demands(one: Spread, dtype: str) -> Iterator[Demand]:
    """What each card, and RAM, is asked for; ``dtype`` is that of the cache."""
    for part in one.parts:
        card, share = part.card.index if part.card else None, part.share
        scope: Scope = "host" if part.card is None else "device"
        if share.weights:
            what = f"weights of {share.layers} whole layers" if share.layers else "weights that no layer brings"
            yield Demand("weights", scope, "", share.weights, what, "header", card)
        if share.kv:
            what = f"cells and states of {share.layers} layers"
            yield Demand("kv_cache", scope, dtype, share.kv, what, "computed", card)
        if part.draft and (size := part.draft.weights + part.draft.kv):
            what = f"draft model: {part.draft.weights // MIB:,} MiB of weights, the rest cells"
            yield Demand("kv_cache", scope, dtype, size, what, "computed", card)
        if part.compute and part.compute.best:
            low, high = part.compute.low / MIB, part.compute.high / MIB
            text = f"compute buffer, estimated between {low:,.0f} and {high:,.0f} MiB"
            low_bytes, high_bytes = int(part.compute.low), int(part.compute.high)
            yield Demand(
                "activation", scope, "f32", int(part.compute.best), text, "assumed", card, low_bytes, high_bytes
            )
        if part.card is not None and (share.weights or share.kv) and (context := context_bytes("ggml", part.card)):
            text = f"driver context, estimated between {context.low / MIB:,.0f} and {context.high / MIB:,.0f} MiB"
            ends = (int(context.low), int(context.high))
            yield Demand("scratchpad", scope, "", int(context.best), text, "assumed", card, *ends)


def problems(one: Spread) -> Iterator[Problem]:
    """A card that is asked for more than it has, however the compute buffer turns out."""
    for part in one.cards:
        room = part.room_bytes or 0
        if part.card is not None and part.wanted.low > room:
            free = "has" if part.card.free_mib is None else "has free"
            yield Problem(
                "llamacpp-card-short",
                f"card {part.card.index} is asked for {part.share.weights // MIB:,} MiB of weights and "
                f"{part.share.kv // MIB:,} MiB of cells at least, and {free} {room // MIB:,} MiB",
                "lower gpu-layers, raise n-cpu-moe, or leave both to --fit",
            )


def notes(one: Spread) -> Iterator[str]:
    """What --fit was taken to do, and which card may not hold its part."""
    if one.moved:
        yield f"not all fits the cards with the margin of --fit-target: --fit moves {one.moved} (an estimate)"
    for part in one.cards:
        room = part.room_bytes or 0
        if part.card is not None and part.wanted.low <= room < part.wanted.high:
            wanted = f"{part.wanted.low // MIB:,.0f} to {part.wanted.high / MIB:,.0f} MiB"
            yield f"card {part.card.index}: {wanted} are wanted, {room // MIB:,} are there: it may not fit"
