"""TensorRT-LLM: tokens of a manager that allocated nothing are no capacity."""

from __future__ import annotations

from collections.abc import Iterable

from archonctl.engines.sighting import Book, Find, Note


class TrtBook(Book):
    """Moves tokens aside where the allocation was 0.00 GiB (AutoDeploy's fake cache manager, Dec 2025)."""

    def figures(self) -> dict[str, Find]:
        """All figures of the boot."""
        found = super().figures()
        if "kv_tokens" in found and self._empty() is not None:
            found["printed_kv_tokens"] = found.pop("kv_tokens")
        return found

    def notes(self) -> Iterable[Note]:
        """Tokens without memory."""
        empty = self._empty()
        if empty is not None:
            yield Note("capacity-not-real", "warning", empty.text, empty.line_no)

    def _empty(self) -> Find | None:
        size = self.folded("kv_gib")
        return size if size is not None and size.value.best == 0 else None


BOOK = TrtBook
