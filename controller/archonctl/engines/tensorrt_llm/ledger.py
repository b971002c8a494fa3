"""TensorRT-LLM: tokens of a manager that allocated nothing are no capacity."""

from __future__ import annotations

from archonctl.engines.sighting import Book, Find, Sighting


class TrtBook(Book):
    """Moves tokens aside where the allocation was 0.00 GiB or the manager said that it is a fake."""

    def __post_init__(self) -> None:
        self._fake = False

    def note(self, sighting: Sighting) -> None:
        """Take one sighting in."""
        self._fake = self._fake or sighting.row == "fake-manager"
        super().note(sighting)

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        found = super().figures()
        size = found.get("kv_gib")
        empty = size is not None and size.value.best == 0
        if "kv_tokens" in found and (empty or self._fake):
            found["printed_kv_tokens"] = found.pop("kv_tokens")
        return found


BOOK = TrtBook
