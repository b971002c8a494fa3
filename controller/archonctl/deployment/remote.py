"""How a model on the network is written: ``hf:org/name[@revision][/file]``, or the address of a file."""

from __future__ import annotations

SCHEMES = ("hf:", "https://", "http://")


def is_remote(path: str) -> bool:
    """True for a model that is not a path of this machine."""
    return path.startswith(SCHEMES)
