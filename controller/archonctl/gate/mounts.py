"""Mounts that a container must have and must not have (``mounts.toml``)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import ClassVar

from packaging.version import InvalidVersion, Version
from pydantic import ConfigDict, TypeAdapter


@dataclass(frozen=True, slots=True)
class Rule:
    """One row."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    engine: str
    target: str
    name: str
    wanted: bool
    why: str
    source: str
    since: str = ""
    below: str = ""

    def holds(self, engine: str, version: str) -> bool:
        """True if the rule is about this engine and version; an unknown version is no reason to claim anything."""
        if engine != self.engine:
            return False
        try:
            here = Version(version)
        except InvalidVersion:
            return not (self.since or self.below)
        return (not self.since or here >= Version(self.since)) and (not self.below or here < Version(self.below))


@dataclass(frozen=True, slots=True)
class Wrong:
    """One mount that is missing (``index`` None), or that must not be there."""

    rule: Rule
    index: int | None


@cache
def rules() -> tuple[Rule, ...]:
    """All rows."""
    data = tomllib.loads(Path(__file__).with_name("mounts.toml").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Rule, ...]).validate_python(data["mount"])


def wrong_mounts(engine: str, version: str, mounts: Sequence[str]) -> list[Wrong]:
    """What is wrong with the mounts of a container, each ``host:container[:options]``."""
    targets = [PurePosixPath(mount.split(":")[1]) if mount.count(":") else None for mount in mounts]
    found: list[Wrong] = []
    for rule in rules():
        if not rule.holds(engine, version):
            continue
        wanted = PurePosixPath(rule.target)
        hits = [n for n, target in enumerate(targets) if target is not None and _covers(target, wanted, rule.wanted)]
        if rule.wanted and not hits:
            found.append(Wrong(rule, None))
        elif not rule.wanted:
            found += [Wrong(rule, hit) for hit in hits]
    return found


def _covers(target: PurePosixPath, wanted: PurePosixPath, above: bool) -> bool:
    """True if mounting ``target`` gives ``wanted``; for what must not be there, also a folder within it."""
    return target == wanted or (target in wanted.parents if above else wanted in target.parents)
