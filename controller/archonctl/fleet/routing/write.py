"""A router's file."""

from __future__ import annotations

from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.fleet.whole_file import write_whole


def write_route(path: Path, text: str) -> bool:
    """True if it was written; False if it was there already. Raises HostRefusal ``fleet-route-unwritable``."""
    try:
        return write_whole(path, text.encode("utf-8"))
    except OSError as err:
        why = err.strerror or str(err)
        hint = "name a file in a folder that you may write to"
        raise HostRefusal("fleet-route-unwritable", why, where=str(path), hint=hint) from None
