"""How a model on the network is written: ``hf:org/name[@revision][/file]``, or the address of a file."""

from __future__ import annotations

from archonctl.errors import ModelError

SCHEMES = ("hf:", "https://", "http://")


def is_remote(path: str) -> bool:
    """True for a model that is not a path of this machine."""
    return path.startswith(SCHEMES)


def refuse_remote(path: str, why: str) -> None:
    """Raises ModelError ``model-remote-only`` for a model that is not on this machine."""
    if is_remote(path):
        hint = "archonctl plan reads it; to start it, fetch it and name its file or folder"
        raise ModelError("model-remote-only", f"is on the network: {why}", where=path, hint=hint)
