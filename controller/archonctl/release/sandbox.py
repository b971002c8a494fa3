"""What a unit takes away from its engine: the rows of ``sandbox.toml``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_HOMES = re.compile(r"(^|[=:,])/(home|root)(/|$)")


def sandbox(words: Iterable[str], *, own_manager: bool = False) -> list[str]:
    """Lines of ``[Service]``. ``own_manager``: only what needs no privileges.

    ``words`` are what the engine may be told to write to (arguments and values of variables): homes are read-only
    unless one of them lies there. A model that is read from a home needs no more than that.
    """
    lines = [str(row["line"]) for row in rows() if not own_manager or not row.get("privileged")]
    if own_manager or any(_HOMES.search(word) for word in words):
        return lines
    return [*lines, "ProtectHome=read-only"]


@cache
def rows() -> tuple[dict[str, str | bool], ...]:
    """``sandbox.toml``: ``line``, ``why``, and ``privileged`` where it is."""
    return tuple(tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["setting"])
