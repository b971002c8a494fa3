"""The table of checks: what each is (``checks.toml``), and which function it is."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from archonctl.doctor.values import Check

DEADLINE_S = 3.0
"""For one check: local files answer within milliseconds, and what does not answer by then is worth a word."""


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("checks.toml").read_text(encoding="utf-8"))


@cache
def checks() -> tuple[Check, ...]:
    """Every check, in the order of the table."""
    return tuple(
        Check(
            row["id"],
            row["title"],
            row["group"],
            row.get("per", "machine"),
            row["looks_at"],
            tuple(row["needs"]),
            tuple(row["codes"]),
            float(row.get("deadline_s", DEADLINE_S)),
        )
        for row in _data()["check"]
    )


def groups() -> dict[str, str]:
    """Groups and their titles, in order."""
    return {row["id"]: row["title"] for row in _data()["group"]}


def ids() -> tuple[str, ...]:
    """Every id."""
    return tuple(check.id for check in checks())


def chosen(names: Sequence[str]) -> tuple[Check, ...]:
    """The checks of these ids in the order of the table; all of them where none is named."""
    return tuple(check for check in checks() if not names or check.id in names)
