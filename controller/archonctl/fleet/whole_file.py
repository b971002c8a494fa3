"""A file that other programs read, whole or not at all, and not touched where nothing changed."""

from __future__ import annotations

import stat
from pathlib import Path

from archonctl.service.state import atomic_write

_LARGEST_BYTES = 64 * 1024 * 1024


def write_whole(path: Path, data: bytes) -> bool:
    """True if it was written; False if it was there already, byte for byte. A link is written behind, not replaced.

    Raises OSError, also for what is no plain file: a device must not be replaced by one.
    """
    place = path.resolve()
    mode = 0o644
    if place.exists():
        found = place.stat()
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is no plain file")
        mode = stat.S_IMODE(found.st_mode)
        if found.st_size == len(data) <= _LARGEST_BYTES and place.read_bytes() == data:
            return False
    atomic_write(place, data, mode)
    return True
