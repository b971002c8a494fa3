"""What is asked of every ledger, whatever its engine calls it: a few names, in tokens, bytes and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.engines.sighting import plus
from archonctl.ledger.grammar import ENGINES, Grammar, bytes_in, grammar
from archonctl.ledger.values import BootLedger, Reading
from archonctl.memory.interval import Interval

ESSENTIALS: Mapping[str, str] = {
    "kv_tokens": "tokens of KV cache that all sequences share",
    "kv_bytes": "KV cache of a rank, in bytes",
    "weights_bytes": "weights of a rank, in bytes",
    "available_bytes": "memory that was there for the cache, in bytes; may be negative",
    "concurrency": "requests of full length at once, as the engine counts them",
    "slots": "requests that it takes at once",
    "slot_tokens": "longest request, or the window of one slot",
    "slab_bytes": "device memory for what is swapped in and out (experts)",
    "free_bytes": "left free on the tightest device once all is allocated",
    "floor_bytes": "what the engine means to keep free",
    "layers_on_device": "layers that lie on a device",
    "layers": "layers that could",
}
"""Names and meanings. An engine that prints none of the figures of a name can never tell it."""


@dataclass(frozen=True, slots=True)
class Essential:
    """One of them: its reading (None where the log does not tell) and the figure that it rests on."""

    name: str
    reading: Reading | None
    figure: str = ""


def essentials(ledger: BootLedger) -> tuple[Essential, ...]:
    """Those that this engine can tell, in the order of ``ESSENTIALS``; empty for an unknown engine."""
    if ledger.engine not in ENGINES:
        return ()
    found = grammar(ledger.engine)
    return tuple(_essential(ledger, found, name) for name in ESSENTIALS if name in found.essentials)


def _essential(ledger: BootLedger, found: Grammar, name: str) -> Essential:
    for figure in found.essentials[name]:
        parts = [ledger.figures.get(part) for part in figure.split(" + ")]
        readings = [part for part in parts if part is not None]
        if len(readings) == len(parts):
            unit = found.rules[figure.split(" + ")[0]].unit
            return Essential(name, _summed(readings, unit if name.endswith("_bytes") else ""), figure)
    return Essential(name, None)


def _summed(readings: list[Reading], unit: str) -> Reading:
    value, last, scale = readings[0].value, readings[-1], bytes_in(unit)
    for reading in readings[1:]:
        value = plus(value, reading.value)
    scaled = Interval(value.low * scale, value.best * scale, value.high * scale, value.source)
    return Reading(scaled, last.line_no, last.text)
