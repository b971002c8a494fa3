"""What ``--fit`` makes of ``--ctx-size 0``: the context that memory has room for (common/fit.cpp of b11434, step 2).

The engine measures at the whole context and at the smallest, and takes the straight line between them. The compute
buffer is an estimate here, so the context comes as an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from archonctl.engines.llamacpp import memory
from archonctl.engines.llamacpp.draft import Draft, Speculation, draft_of
from archonctl.engines.llamacpp.kv import KvSettings, allocate, context_shape
from archonctl.engines.llamacpp.offload import Offload
from archonctl.engines.llamacpp.settings import Settings
from archonctl.engines.llamacpp.spread import Spread, spread
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB, Interval
from archonctl.model.geometry import Geometry, ModelFacts


@dataclass(frozen=True, slots=True)
class _Case:
    """What does not change with the context."""

    model: ModelFacts
    geometry: Geometry
    settings: KvSettings
    speculation: Speculation
    offload: Offload
    on_cards: bool

    def draft(self, context: int) -> Draft | None:
        return draft_of(self.speculation, self.model, self.geometry, self._at(context), self._shape_ctx(context))

    def spread(self, context: int) -> Spread | None:
        """The split before anything is moved; None in RAM."""
        if not self.on_cards:
            return None
        at = self._at(context)
        return spread(self.model, self.geometry, at, allocate(self.geometry, at), self.offload, self.draft(context))

    def used(self, context: int) -> Interval:
        """Bytes wanted on all devices together, or in RAM without any."""
        if (placed := self.spread(context)) is not None:
            return _sum([part.wanted for part in placed.cards])
        at = self._at(context)
        kv, draft = allocate(self.geometry, at), self.draft(context)
        fixed = memory.weights(self.model).bytes + kv.bytes
        more = memory.estimated_compute(self.model, self.geometry, at, kv) or Interval(0, 0, fixed / 4, "assumed")
        fixed_more = [Interval.exact(fixed), more]
        if draft:
            fixed_more += [Interval.exact(draft.weights + draft.kv.bytes), draft.compute or Interval(0, 0, fixed / 4)]
        return _sum(fixed_more)

    def _at(self, context: int) -> KvSettings:
        return replace(self.settings, n_ctx=context, fit=False)

    def _shape_ctx(self, context: int) -> int:
        return context_shape(self._at(context), self.geometry.trained_context).n_ctx


def _sum(parts: Sequence[Interval]) -> Interval:
    return Interval(sum(p.low for p in parts), sum(p.best for p in parts), sum(p.high for p in parts), "assumed")


def fitted_context(
    settings: Settings, host: Host, model: ModelFacts | None, geometry: Geometry | None, offload: Offload
) -> Interval | None:
    """The context in tokens that --fit takes; None where it takes none, or where nobody knows.

    ``--ctx-size 0`` on the command line asks for all of the trained context, and --fit leaves that alone; only a
    --fit-ctx after it names a smallest context down to which it may go (common/arg.cpp).
    """
    kv, streams = settings.kv, 1 if settings.kv.kv_unified else settings.kv.n_seq_max
    if kv.n_ctx or not kv.fit or not settings.declares("fit-ctx"):
        return None
    if model is None or geometry is None or not geometry.trained_context:
        return None
    cards = settings.offload is not False and bool(offload.devices)
    room = [part.free_mib or part.total_mib for part in offload.devices] if cards else [host.ram_mib or 0]
    if not all(room) or (cards and offload.unclear):
        return None
    most, least = geometry.trained_context * streams, offload.fit_min_ctx * streams
    case = _Case(model, geometry, kv, settings.speculation, offload, cards)
    full = case.used(most)
    target = (sum(room) - sum(offload.margin_mib(number) for number in range(len(room)))) * MIB
    if full.high <= target or most <= least:
        return Interval.exact(most)
    small, target = case.used(least), target - _waste(case, most)
    ends = ((full.high, small.high), (full.best, small.best), (full.low, small.low))
    low, best, high = (_between(whole, part, target, most, least, streams) for whole, part in ends)
    if full.low <= target:
        high = most
    return Interval(min(low, best), best, max(best, high), "assumed")


def _between(full: float, small: float, target: float, most: int, least: int, streams: int) -> int:
    if full <= target:
        return most
    if target <= small:
        return least
    context = least + int((most - least) * (target - small) / (full - small))
    return max(context - context % (256 * streams), least)


def _waste(case: _Case, most: int) -> int:
    """What the engine expects to lose to layers that do not divide: half a layer, or a sixth with experts, a device."""
    devices, placed = len(case.offload.devices), case.spread(most)
    if placed is None or devices < 2:
        return 0
    layer = sum(part.share.weights for part in placed.cards) // len(case.geometry.layers)
    return (devices + 1) * layer // (6 if case.geometry.experts else 2)
