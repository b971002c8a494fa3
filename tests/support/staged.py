"""Folders and files as the tier executor has them, without an engine."""

from __future__ import annotations

import struct
from pathlib import Path

from archonctl.tiers.prefix import Prefix, Text
from archonctl.tiers.slot_file import MAGIC
from archonctl.tiers.store import PlaceSpec, Store

MIB = 1 << 20
FINGERPRINT = "f" * 32


def specs(root: Path, dram_bytes: int = 64 * MIB, disk_bytes: int = 256 * MIB) -> list[PlaceSpec]:
    """Two places below ``root``, made if need be."""
    for name in ("dram", "disk"):
        (root / name).mkdir(mode=0o700, exist_ok=True)
    return [PlaceSpec("dram", root / "dram", dram_bytes, True), PlaceSpec("disk", root / "disk", disk_bytes, False)]


def saved(tokens: int, payload: bytes = b"state") -> bytes:
    """What llama-server b11434 writes for so many tokens, with a made-up state behind them."""
    words = struct.pack("<iII", -1, 1, tokens) + struct.pack(f"<{tokens}i", *range(tokens)) + struct.pack("<I", 0)
    return struct.pack("<III", MAGIC, 4, len(words) // 4) + words + payload


def prefix(text: str = "once upon a time ") -> Prefix:
    """Of a prompt."""
    return Text(text.encode()).prefix


def stage(store: Store, tokens: int = 8, payload: bytes = b"state" * 1000, text: str = "once ") -> str:
    """As if the engine had saved a slot; the id."""
    id_, data = store.new_id(), saved(tokens, payload)
    (store.specs[store.first].path / f"{id_}.kv").write_bytes(data)
    store.adopt(id_, tokens, len(data), FINGERPRINT, prefix(text))
    return id_
