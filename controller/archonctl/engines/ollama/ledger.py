"""ollama prints a list of parts for each layout that it tries; the last complete list is the one that was loaded."""

from __future__ import annotations

from archonctl.engines.llamacpp.contexts import is_host, total
from archonctl.engines.llamacpp.ledger import LlamaBook
from archonctl.engines.sighting import Find, Sighting
from archonctl.memory.interval import Interval

_PARTS = {"kv cache": "kv", "model weights": "weights", "compute graph": "graph"}
_DEVICES = 256

Parts = dict[tuple[str, str], Find]


class OllamaBook(LlamaBook):
    """llama.cpp's lines as they are, and ollama's own lists of parts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._open_list: Parts = {}
        self._list: Parts = {}
        self._total: Find | None = None

    def note(self, sighting: Sighting) -> None:
        """Take one sighting in."""
        if sighting.row == "o-part":
            if self._total is not None and self._list is self._open_list:
                self._open_list = {}
            if len(self._open_list) < _DEVICES:
                key = (_PARTS[sighting.facts["part"]], sighting.facts["device"])
                self._open_list[key] = sighting.figures["device_mib"]
            self._list = self._open_list
            self._total = None
        elif sighting.row == "o-total":
            self._list, self._total = self._open_list, sighting.figures["total_mib"]
        else:
            super().note(sighting)

    def figures(self) -> dict[str, Find]:
        """All figures of the last load."""
        found = super().figures()
        if self._total is not None:
            found["total_mib"] = self._total
        for part in _PARTS.values():
            found |= _part(part, self._list)
        if "kv_mib" not in found and "required_kv_mib" in found:
            found["kv_mib"] = found["required_kv_mib"]
        if "weights_mib" not in found and "estimated_weights_mib" in found:
            found["weights_mib"] = found["estimated_weights_mib"]
        if "KvSize" in found:
            size = found["KvSize"]
            found["kv_tokens"] = Find(Interval.exact(size.value.best, "log"), size.line_no, size.text)
            found["n_slots"] = found["Parallel"]
        return found


def _part(part: str, parts: Parts) -> dict[str, Find]:
    """``<part>_mib`` (the cache in all; weights and graphs on the devices, as people count them) and its shares."""
    cards = total(find for (name, device), find in parts.items() if name == part and not is_host(device))
    host = total(find for (name, device), find in parts.items() if name == part and is_host(device))
    both = total(find for find in (cards, host) if find is not None)
    whole = both if part == "kv" else cards or host
    named = {f"{part}_mib": whole, f"{part}_gpu_mib": cards, f"{part}_cpu_mib": host}
    return {name: find for name, find in named.items() if find is not None}


BOOK = OllamaBook
