"""What is particular to one engine: data, and a few functions behind the protocols of ``base``.

A new engine is a folder here. Nothing outside imports ``engines.<name>`` by name: ``adapter(kind)`` does,
when it is needed, so that planning for one engine never loads another.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from archonctl.engines.base import Adapter
from archonctl.errors import DeclarationError

KINDS = ("radiance", "vllm", "sglang", "llamacpp")


def adapter(kind: str) -> Adapter:
    """The adapter of one engine kind.

    Raises DeclarationError ``engine-unsupported`` where this release has no law for the kind.
    """
    try:
        module = import_module(f"archonctl.engines.{kind}.adapter")
    except ModuleNotFoundError as err:
        if err.name and err.name.startswith(f"archonctl.engines.{kind}"):
            raise DeclarationError(
                "engine-unsupported",
                f"no adapter for engine kind {kind!r} in this release",
                hint=f"known: {', '.join(KINDS)}",
            ) from None
        raise
    return cast(Adapter, module.ADAPTER)
