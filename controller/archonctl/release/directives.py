"""Since when systemd knows the settings that the units use (``directives.toml``)."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("directives.toml").read_text(encoding="utf-8"))


def since() -> dict[str, int]:
    """Setting to the version that first knew it; those of 235 and earlier are 0."""
    return {**dict.fromkeys(_table()["old"], 0), **_table()["since"]}


OLDEST: int = _table()["oldest"]
"""The oldest systemd that the units are promised to work with."""


def newest_used() -> tuple[str, int]:
    """The newest setting that the units cannot do without, and its version."""
    return max(((name, at) for name, at in since().items() if at <= OLDEST), key=lambda pair: pair[1])
