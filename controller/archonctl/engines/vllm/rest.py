"""What vLLM holds of a card beside weights and cache, and which of it its share has to pay for."""

from __future__ import annotations

from dataclasses import dataclass

from archonctl.engines.beside import Part, Shape, beside_parts
from archonctl.engines.vllm.rules import Version
from archonctl.engines.vllm.settings import Settings
from archonctl.memory.interval import GIB, Interval
from archonctl.model.geometry import ModelFacts

UNKNOWN_GIB = (1.5, 3.8, 6.0)
"""All of it where the widths of the model are not known: low, best, high over public boots that print both sides
(V0 on 24 GiB: 3.3; 0.11 on 80 GiB: 4.9 and 5.8; 0.27 on 95 GiB: 3.9; 0.10 at short lengths: 1.4)."""
CONTEXT_UNTIL: Version = (0, 9, 2)
"""Before, the driver's context was taken off the share too (https://github.com/vllm-project/vllm/pull/19312); after,
the first look at the card comes behind it."""
COLLECTIVE_UNTIL: Version = (0, 11)
"""Before, buffers of collectives as well (https://github.com/vllm-project/vllm/pull/25359)."""
GRAPHS_SINCE: Version = (0, 21)
"""From here captured graphs are estimated and taken off (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS in vllm/envs.py;
https://github.com/vllm-project/vllm/pull/30515); before, they are captured beside the share."""

_WORDS = {
    "activation": "activations",
    "encoder": "the image tower",
    "context": "context",
    "growth": "libraries",
    "graphs": "graphs",
    "collective": "collectives",
    "lora": "LoRA slots",
}


@dataclass(frozen=True, slots=True)
class Rest:
    """``counted`` parts are taken off the share before the cache is sized, ``beside`` parts lie outside it.

    ``floor`` is what the counted parts come to at least, likely and at most where they are not all known; None where
    they are.
    """

    counted: tuple[Part, ...]
    beside: tuple[Part, ...]
    floor: Interval | None = None
    unknown: tuple[str, ...] = ()
    """What the share has to pay for and no law covers, so that nothing can be said of what it leaves."""

    @property
    def share(self) -> Interval:
        """Bytes that the share loses to it."""
        return _sum(self.counted) if self.floor is None else self.floor

    @property
    def words(self) -> str:
        """The counted parts in words."""
        names = [_WORDS[part.kind] for part in self.counted]
        return "activations, graphs and context" if self.floor else ", ".join(names)

    @property
    def all(self) -> Interval:
        """Bytes of the card."""
        outside, share = _sum(self.beside), self.share
        return Interval(share.low + outside.low, share.best + outside.best, share.high + outside.high, "assumed")


def rest_of(
    maker: str, shape: Shape, model: ModelFacts | None, version: Version, graphs_counted: bool | None = None
) -> Rest:
    """The rest of a card of that maker, for one rank of a version. ``graphs_counted`` None: as the version does."""
    graphs = version >= GRAPHS_SINCE if graphs_counted is None else graphs_counted
    parts = tuple(beside_parts(maker, shape, model))
    counted = tuple(part for part in parts if _counts(part, version, graphs=graphs))
    beside = tuple(part for part in parts if part not in counted)
    unknown = ("LoRA slots of this kind of layer",) if shape.lora and not _has(parts, "lora") else ()
    if _has(parts, "activation"):
        return Rest(counted, beside, unknown=unknown)
    slots, known = sum(part.size.best for part in counted if part.kind == "lora"), _sum(counted)
    low, best, high = (each * GIB + slots for each in UNKNOWN_GIB)
    floor = Interval(max(low, known.low), max(best, known.best), max(high, known.high), "assumed")
    return Rest(counted, beside, floor, unknown)


def _has(parts: tuple[Part, ...], kind: str) -> bool:
    return any(part.kind == kind for part in parts)


def _counts(part: Part, version: Version, *, graphs: bool) -> bool:
    if part.kind == "context":
        return version < CONTEXT_UNTIL
    if part.kind == "collective":
        return version < COLLECTIVE_UNTIL
    return part.kind != "graphs" or graphs


def _sum(parts: tuple[Part, ...]) -> Interval:
    sizes = [part.size for part in parts]
    low, best, high = (
        sum(map(int, ends)) for ends in ([s.low for s in sizes], [s.best for s in sizes], [s.high for s in sizes])
    )
    return Interval(low, best, high, "assumed")


def shape_of(settings: Settings) -> Shape:
    """What decides the rest of a rank."""
    return Shape(
        engine="vllm",
        tp=settings.tp,
        ranks=settings.ranks,
        tokens=settings.batched_tokens,
        seqs=settings.max_num_seqs,
        element_bytes=settings.model_bytes,
        graphs=settings.graphs,
        images=settings.images,
        lora=settings.lora,
    )
