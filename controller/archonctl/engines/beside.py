"""What an engine holds of a card beside weights and cache: activations, driver context, graphs, collectives, LoRA.

Nothing here is exact but LoRA slots: each demand carries its method and its ends, and the figures and their sources are
``beside.toml``. What no row covers is named by ``unknown_parts``, never counted as 0.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from archonctl.host.profile import Card
from archonctl.memory.demand import Demand, MemoryClass
from archonctl.memory.interval import MIB, Interval
from archonctl.model.geometry import ModelFacts

Runtime = Literal["torch", "ggml"]


@dataclass(frozen=True, slots=True)
class Widths:
    """Elements of a row: the residual stream, a dense feed-forward layer, the routed experts of one token."""

    hidden: int
    ff: int
    expert_ff: int
    experts_used: int

    @classmethod
    def of(cls, model: ModelFacts | None) -> Widths | None:
        """From the keys of a config.json; None where it does not name the width of a feed-forward layer."""
        geometry = model.geometry if model else None
        if model is None or geometry is None or not geometry.hidden:
            return None
        ff = _key(model, "intermediate_size", "ffn_hidden_size", "n_inner")
        expert_ff = _key(model, "moe_intermediate_size") or (ff if geometry.experts else 0)
        if not ff and not expert_ff:
            return None
        return cls(geometry.hidden, ff, expert_ff, geometry.experts_used)

    def row(self, tp: int) -> float:
        """Elements alive at once for one token in the widest layer of a rank."""
        dense = 3 * self.ff / tp
        routed = self.experts_used * (max(2 * self.expert_ff / tp, self.hidden) + self.expert_ff / tp)
        return 3 * self.hidden + max(dense, routed)


@dataclass(frozen=True, slots=True)
class Lora:
    """Slots for adapters, all of one rank; ``element_bytes`` of their dtype."""

    slots: int
    rank: int
    element_bytes: int = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides these demands. ``tokens`` are those of the largest batch; ``graphs``: whether any is captured."""

    engine: str
    tp: int
    ranks: int
    tokens: int
    seqs: int
    element_bytes: int = 2
    graphs: bool = True
    images: bool = True
    """False where the engine is told to take no images: then their tower is not run."""
    lora: Lora | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one rank beside weights and cache, and what they are."""

    kind: Literal["activation", "encoder", "context", "growth", "graphs", "collective", "lora"]
    size: Interval
    text: str

    def demand(self, card: int) -> Demand:
        """The same as a demand on one card."""
        low, best, high = int(self.size.low), int(self.size.best), int(self.size.high)
        cls = _CLASSES[self.kind]
        if self.size.is_exact:
            return Demand(cls, "device", "", best, self.text, "computed", card)
        text = f"{self.text} ({low / MIB:,.0f} to {high / MIB:,.0f} MiB)"
        return Demand(cls, "device", "", best, text, "assumed", card, low, high)


_CLASSES: Mapping[str, MemoryClass] = {
    "activation": "activation",
    "encoder": "activation",
    "context": "scratchpad",
    "growth": "scratchpad",
    "graphs": "scratchpad",
    "collective": "scratchpad",
    "lora": "weights",
}


def activation_bytes(widths: Widths, vocab: int, shape: Shape) -> Interval:
    """Peak of one rank's activations, as beside.toml explains them."""
    table = _table()["activation"]
    layers = shape.tokens * shape.element_bytes * widths.row(shape.tp)
    best = max(layers, shape.seqs * vocab * logit_bytes())
    return Interval(best * table["low"], best, best * table["high"], "assumed")


def logit_bytes() -> int:
    """Bytes a token of the vocabulary and sequence while the next token is chosen."""
    return int(_table()["activation"]["logit_bytes"])


def tower_bytes(model: ModelFacts, shape: Shape) -> Interval | None:
    """Peak of a tower for images over the largest one; None without a tower, or where its widths are not named."""
    table, hidden = _table()["tower"], _key(model, "vision_config.hidden_size", "vision_config.embed_dim")
    width = _key(model, "vision_config.intermediate_size") or 4 * _key(model, "vision_config.embed_dim")
    if not hidden or not width:
        return None
    patches = max(shape.tokens, int(table["image_tokens"])) * int(table["patches_per_token"])
    best = patches * shape.element_bytes * (3 * hidden + 2 * width)
    return Interval(best * table["low"], best, best * table["high"], "assumed")


def lora_bytes(model: ModelFacts, lora: Lora, tp: int) -> int | None:
    """Bytes of the stacked A and B matrices on one rank; None for latent attention, experts and recurrent layers.

    Source: vllm/lora/layers/base_linear.py (``create_lora_weights``): A whole and B shared out in layers that are split
    by columns (qkv, gate and up), the other way about in those split by rows (output, down).
    """
    geometry, widths = model.geometry, Widths.of(model)
    if geometry is None or widths is None or geometry.experts or not widths.ff:
        return None
    if any(layer.attention not in ("full", "sliding", "chunked") for layer in geometry.serving):
        return None
    hidden, total = geometry.hidden, 0
    for layer in geometry.serving:
        queries, row = geometry.heads * layer.head_dim_k // tp, widths.ff // tp
        keys = max(layer.kv_heads // tp, 1) * (layer.head_dim_k + layer.head_dim_v)
        total += (3 * hidden + queries + keys) + (queries + hidden)  # qkv, output
        total += (2 * hidden + 2 * row) + (row + hidden)  # gate and up, down
    return total * lora.rank * lora.slots * lora.element_bytes


def beside_parts(maker: str, shape: Shape, model: ModelFacts | None) -> Iterator[Part]:
    """What one rank of a PyTorch engine holds of a card of that maker; what is not known is left out
    (``unknown_parts``)."""
    geometry, widths = (model.geometry if model else None), Widths.of(model)
    if geometry is not None and widths is not None:
        size = activation_bytes(widths, geometry.vocab, shape)
        yield Part("activation", size, f"activations, {shape.tokens:,} batched tokens")
    if shape.images and model and (tower := tower_bytes(model, shape)):
        yield Part("encoder", tower, "the tower for images, and what it makes of the largest")
    if context := _row("context", runtime="torch", maker=maker):
        yield Part("context", context, "driver context and kernels")
    if growth := _row("growth", engine=shape.engine):
        yield Part("growth", growth, "what libraries take while the first batch runs")
    if shape.graphs and (graphs := _row("graphs", engine=shape.engine)):
        yield Part("graphs", graphs, "captured graphs")
    if shape.ranks > 1 and (collective := _row("collective", maker=maker)):
        yield Part("collective", collective, f"collectives of {shape.ranks} ranks")
    if shape.lora and model and (slots := lora_bytes(model, shape.lora, shape.tp)):
        yield Part("lora", Interval.exact(slots), f"{shape.lora.slots} LoRA slots of rank {shape.lora.rank}")


def beside_demands(card: Card, shape: Shape, model: ModelFacts | None) -> Iterator[Demand]:
    """The same as demands on one card."""
    return (part.demand(card.index) for part in beside_parts(card.maker, shape, model))


def unknown_parts(cards: tuple[Card, ...], shape: Shape, model: ModelFacts | None) -> Iterator[str]:
    """What ``beside_demands`` leaves out, in words."""
    if Widths.of(model) is None:
        yield "activations: the config does not name the widths of a feed-forward layer"
    towers = any(key.startswith("vision_config.") for key in (model.metadata or {})) if model else False
    if shape.images and towers and model and tower_bytes(model, shape) is None:
        yield "the tower for images: the config does not name its widths"
    makers = sorted({card.maker or "an unknown maker" for card in cards if context_bytes("torch", card) is None})
    if makers:
        yield f"the driver's context on cards of {', '.join(makers)}: no public figure was found"
    if shape.ranks > 1 and any(_row("collective", maker=card.maker) is None for card in cards):
        yield "buffers of collectives on these cards: no public figure was found"
    if shape.lora and (model is None or lora_bytes(model, shape.lora, shape.tp) is None):
        yield "LoRA slots: no law for this kind of layer"


def context_bytes(runtime: Runtime, card: Card) -> Interval | None:
    """The driver's context of one process on a card; None where no figure was found."""
    return _row("context", runtime=runtime, maker=card.maker)


def _row(name: str, **keys: str) -> Interval | None:
    for row in _table()[name]:
        if all(row[key] == value for key, value in keys.items()):
            return Interval(row["low_mib"] * MIB, row["best_mib"] * MIB, row["high_mib"] * MIB, "assumed")
    return None


def _key(model: ModelFacts, *names: str) -> int:
    """The first of the keys that a config has, at its top or within ``text_config``."""
    metadata = model.metadata or {}
    for name in names:
        for key in (name, f"text_config.{name}"):
            value = metadata.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return 0


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("archonctl.engines").joinpath("beside.toml").read_text("utf-8"))
