"""How fast a choice decodes and reads: from what the card moves and computes, as intervals (speed.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from archonctl.catalogue.values import CatalogueModel
from archonctl.fit.values import Throughput
from archonctl.host.cards import CardModel, find_card, matching_cards
from archonctl.host.profile import Card
from archonctl.memory.interval import Interval
from archonctl.model.geometry import ModelFacts


@cache
def table() -> Mapping[str, Any]:
    """speed.toml, whose comments say what each figure means."""
    return tomllib.loads(files("archonctl.fit").joinpath("speed.toml").read_text("utf-8"))


def crawl_tokens_s() -> float:
    """Below so many tokens a second a choice is called slow."""
    return float(table()["crawl"]["tokens_s"])


def decode_rate(read_bytes: float, bandwidth_bytes_s: float) -> Interval:
    """Tokens a second of one sequence, from the bytes read for each and the bandwidth that reads them."""
    ends = [1 / (read_bytes / (bandwidth_bytes_s * share) + overhead_s) for share, overhead_s in _decode_ends()]
    return Interval(ends[0], ends[1], ends[2], "assumed")


@cache
def _decode_ends() -> tuple[tuple[float, float], ...]:
    """Share of the bandwidth and seconds of overhead: slow, best, fast."""
    rows = (table()["decode"][name] for name in ("slow", "best", "fast"))
    return tuple((row["share"], row["overhead_s"]) for row in rows)


@cache
def _calibration() -> str:
    return f"{table()['decode']['source']}; {table()['prefill']['source']}"


def prefill_rate(active_parameters: float, flops: float) -> Interval:
    """Tokens of a prompt a second."""
    peak = flops / (2 * active_parameters)
    shares = table()["prefill"]
    return Interval(peak * shares["slow"], peak * shares["best"], peak * shares["fast"], "assumed")


def throughput(
    model: CatalogueModel, active_bytes: float, kv_bytes: float, card: Card | None, cards: int, engine: str
) -> Throughput:
    """Of one sequence with ``kv_bytes`` of cache on all cards together; intervals are None where nothing tells.

    Cards that hold whole layers (llama.cpp) work one after the other; those that share each tensor, together.
    """
    read = round(active_bytes + kv_bytes)
    known = _catalogued(card.name, card.total_mib) if card else None
    together = 1 if engine == "llamacpp" else cards
    source = _calibration()
    if known is None or not read:
        return Throughput(None, None, read, source)
    decode = decode_rate(read, known.bandwidth_bytes_s * together)
    if together > 1:  # what cards tell each other takes time too: one of them is the least there can be
        decode = Interval(min(decode.low, decode_rate(read, known.bandwidth_bytes_s).best), decode.best, decode.high)
    flops = flops_of(known.name)
    prefill = prefill_rate(model.params_active, flops * together) if flops and model.params_active else None
    return Throughput(decode, prefill, read, source)


def flops_of(name: str) -> float | None:
    """Dense 16-bit FLOP/s of a card of the catalogue; None where no published figure was found."""
    return _flops().get(name)


@cache
def _flops() -> Mapping[str, float]:
    """By name; a row names a card, or a family that several names of the catalogue belong to. The first row counts."""
    found: dict[str, float] = {}
    for row in table()["compute"]:
        for named in row["cards"]:
            for card in matching_cards(named):
                found.setdefault(card.name, float(row["flops"]))
    return found


@cache
def _catalogued(name: str, total_mib: int) -> CardModel | None:
    return find_card(name, total_mib) or next(iter(matching_cards(name)), None)


def active_bytes(model: CatalogueModel, facts: ModelFacts) -> float:
    """Bytes of weights read for a token: all but the input embedding, and of the routed experts those that are used."""
    geometry = facts.geometry or model.geometry
    used = geometry.experts_used / geometry.experts if geometry.experts else 1.0
    sums: dict[str, float] = {}
    for part in facts.tensor_bytes:
        sums[part.cls] = sums.get(part.cls, 0) + part.bytes
    embedding = sums.pop("embedding", 0)
    rest = sum(size * (used if cls == "routed_experts" else 1) for cls, size in sums.items())
    # A tied embedding is the output too.
    return rest if "output" in sums else rest + embedding
