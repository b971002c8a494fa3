"""A model spread over cards and RAM: what each is asked for, and what ``--fit`` would move where it is too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from archonctl.engines.base import Problem
from archonctl.engines.llamacpp.devices import DeviceShare, layer_devices, place
from archonctl.engines.llamacpp.kv import VERIFIED_ARCHITECTURES, KvAllocation, KvSettings
from archonctl.engines.llamacpp.memory import Widths, device_compute
from archonctl.engines.llamacpp.offload import EXPERTS, Offload, first_layers
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

    @property
    def wanted(self) -> Interval:
        """Bytes of weights, cells and compute buffer together."""
        fixed = self.share.weights + self.share.kv
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


def spread(
    model: ModelFacts | None, geometry: Geometry | None, settings: KvSettings, kv: KvAllocation | None, offload: Offload
) -> Spread | None:
    """The split over cards; None where nothing lies on a card, or where only the engine knows what does."""
    if model is None or geometry is None or kv is None or not model.tensor_sizes:
        return None
    if not offload.devices or offload.gpu_layers == 0 or offload.unclear:
        return None
    case = _Case(model, geometry, settings, kv)
    whole = _at(case, offload)
    if _holds(whole) or offload.fixed_by_hand or not settings.fit:
        return whole
    return _fitted(case, offload) or whole


def _at(case: _Case, offload: Offload) -> Spread:
    free = [float(card.total_mib if card.free_mib is None else card.free_mib) for card in offload.devices]
    shares = place(case.model, case.geometry, case.settings, case.kv, offload, free)
    where = layer_devices(len(case.geometry.layers), offload, free)
    known = case.geometry.architecture in VERIFIED_ARCHITECTURES
    widths = Widths.of(case.model, case.geometry) if known else None
    computes = [
        device_compute(case.geometry, widths, case.settings, case.kv, offload, where, share.device) if widths else None
        for share in shares
    ]
    cards = (None, *offload.devices)
    return Spread(offload, tuple(map(Part, shares, cards, computes)))


def _holds(one: Spread) -> bool:
    """True if every card keeps the margin that --fit wants to leave free."""
    targets = one.offload.fit_targets_mib
    margins = [(targets[i] if i < len(targets) else targets[-1]) * MIB for i in range(len(one.cards))]
    return all(
        part.wanted.best + margin <= (part.room_bytes or 0) for part, margin in zip(one.cards, margins, strict=True)
    )


def _fitted(case: _Case, offload: Offload) -> Spread | None:
    """Fewest experts in RAM, else most layers on the cards, so that all keep their margin (common/fit.cpp, steps 3, 4).

    The engine fills its cards one after the other and may cut one layer in pieces; this counts whole layers.
    """
    layers = len(case.geometry.layers)
    for count in range(1, layers + 1) if case.geometry.experts else ():
        one = _at(case, replace(offload, overrides=((first_layers(count, EXPERTS), None),)))
        if _holds(one):
            return replace(one, moved=f"the experts of about {count} of {layers} layers to RAM")
    for count in range(layers, -1, -1):
        one = _at(case, replace(offload, gpu_layers=count))
        if _holds(one):
            return replace(one, moved=f"all but about {count} of {layers + 1} layers to RAM")
    return None


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
        if part.compute and part.compute.best:
            low, high = part.compute.low / MIB, part.compute.high / MIB
            text = f"compute buffer, estimated between {low:,.0f} and {high:,.0f} MiB"
            low_bytes, high_bytes = int(part.compute.low), int(part.compute.high)
            yield Demand(
                "activation", scope, "f32", int(part.compute.best), text, "assumed", card, low_bytes, high_bytes
            )


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
