"""A ledger as plain numbers, under the names that people use for them in reports of boots.

Beside the names of the grammar: ranks as lists, ollama's sizes in GiB as well as MiB, "0/49" for layers on a device.
"""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.ledger.grammar import ENGINES, grammar
from archonctl.ledger.values import BootLedger, Reading

Plain = int | float | str | list[int | float]

_LISTS = {"available_gib": "available_gib_ranks", "kv_per_device": "kv_per_device", "kv_tokens": "kv_tokens_ranks"}
_ALSO = {
    "printed_kv_tokens": "kv_tokens",
    "offload_layers": "layers",
    "cuda_graph_estimate_gib": "estimated_cuda_graph_gib",
    "kv_bytes": "kv_cache_bytes",
    "needed_token_bytes": "bytes_per_token_per_gpu",
}

_ENDINGS = {"_mib": "MiB", "_gib": "GiB", "_bytes": "B", "_tokens": "tokens", "_seconds": "s", "_percent": "%"}
"""Units of figures that no rule names: those of one cache type ("q8_0_mib"), of one device."""


def plain(reading: Reading) -> int | float:
    """The best value, as an int where it is whole."""
    best = reading.value.best
    return int(best) if best == int(best) and reading.value.is_exact else round(best, 6)


def read_names(ledger: BootLedger) -> dict[str, Plain]:
    """Every figure read, by name."""
    read: dict[str, Plain] = {name: plain(reading) for name, reading in ledger.figures.items()}
    for name, alias in _ALSO.items():
        if name in read:
            read.setdefault(alias, read[name])
    read |= _lists(ledger)
    if ledger.engine == "ollama":
        read |= {f"{name[:-4]}_gib": _gib(value) for name, value in read.items() if name.endswith("_mib")}
    if "offloaded_layers" in read and "model_layers" in read:
        read["offloaded"] = f"{read['offloaded_layers']}/{read['model_layers']}"
    return read


def _lists(ledger: BootLedger) -> Mapping[str, Plain]:
    lists: dict[str, Plain] = {}
    for name, alias in _LISTS.items():
        if name in ledger.series:
            lists[alias] = [plain(reading) for reading in ledger.series[name]]
    if "kv_tokens" in ledger.series and "kv_tokens" in ledger.figures:
        lists["kv_tokens_effective_min"] = plain(ledger.figures["kv_tokens"])
    return lists


def _gib(value: Plain) -> Plain:
    return round(value / 1024, 4) if isinstance(value, int | float) else value


def unit_of(engine: str, figure: str) -> str:
    """Unit of a figure ("MiB", "tokens"): its rule's, else what its name ends in; "" for a count or a ratio."""
    rule = grammar(engine).rules.get(figure) if engine in ENGINES else None
    if rule and rule.unit:
        return rule.unit
    return next((unit for ending, unit in _ENDINGS.items() if figure.endswith(ending)), "")
