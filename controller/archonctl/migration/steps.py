"""Which knobs and variables of a declaration a version still takes, under which name, and what is new.

From the knob tables (rows: since, removed, renamed_to) and ``engines/<name>/migrate.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from archonctl import engines
from archonctl.deployment.schema import Engine, KnobValue
from archonctl.engines.knobs import Edition, Knob, KnobTable, edition, load_table, render
from archonctl.engines.knobs.history import default_at
from archonctl.errors import DeclarationError
from archonctl.migration.values import Step


@cache
def rules_of(kind: str) -> Mapping[str, Any]:
    """The rules of one engine; empty where it has none."""
    path = Path(engines.__file__).parent / kind / "migrate.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def steps_of(engine: Engine, to: str) -> tuple[Step, ...]:
    """Every step from ``engine.version`` to ``to``, without levers.

    Raises UsageError ``engine-unknown``, ``engine-version-invalid`` or ``engine-version-missing``.
    """
    table = load_table(engine.kind)
    now, then = edition(table, to), edition(table, engine.version)
    found = [Step("version", "engine.version", "", engine.version, to)]
    found += _knobs(table, now, engine)
    found += _variables(table, now, engine)
    found += _explicit(now, engine)
    found += _defaults(table, then, now, engine)
    found += _notices(table, engine, to)
    if engine.image:
        found.append(Step("you", "engine.image", f"put the digest of the image of {to} in its place", engine.image))
    elif engine.binary:
        found.append(Step("you", "engine.binary", f"it must be of version {to}", engine.binary))
    return tuple(found)


def _knobs(table: KnobTable, now: Edition, engine: Engine) -> Iterator[Step]:
    declared = {found[0].flag for key in engine.knobs if (found := now.find(key))}
    for key, value in engine.knobs.items():
        where = f"engine.knobs.{key}"
        known = now.find(key)
        if known is not None:
            yield from _value(where, key, known, value)
            continue
        successor, why, source = _absence(table, now, key)
        if successor and successor not in declared:
            yield Step("rename", where, why, value, value, f"engine.knobs.{successor}", source)
            declared.add(successor)
        else:
            yield Step("drop", where, why, value, None, "", source)


def _value(where: str, key: str, known: tuple[Knob, bool], value: KnobValue) -> Iterator[Step]:
    """A knob that is still there and no longer takes this value."""
    knob, positive = known
    try:
        render(key, knob, positive, value)
    except DeclarationError as err:
        hint = f" ({err.hint})" if err.hint else ""
        yield Step("you", where, f"{err.message}{hint}", value, source=knob.source)


def _absence(table: KnobTable, now: Edition, key: str) -> tuple[str, str, str]:
    """What took over (only where it is the same thing under another name), why it went, and who says so."""
    forms = [row for row in table.forms(key) if row.names]
    rule = table.retirement(key)
    renamed = next((row.renamed_to for row in reversed(forms) if row.renamed_to), "")
    by = renamed or (rule.replaced_by.lstrip("-") if rule else "")
    found = now.find(by) if by and " " not in by and "," not in by else None
    successor = found[0].flag if found else ""
    removed = next((row.removed for row in reversed(forms) if row.removed), rule.removed if rule else "")
    since = f"gone since {removed}" if removed else "not known to that version"
    effect = rule.effect if rule else (forms[-1].effect if forms else "")
    advice = f"use {rule.replaced_by}" if rule and rule.replaced_by and not successor else ""
    why = "; ".join(part for part in (since, effect, advice) if part)
    return successor, why, (rule.source if rule else forms[-1].source if forms else "the knob table")


def _variables(table: KnobTable, now: Edition, engine: Engine) -> Iterator[Step]:
    for name, value in engine.env.items():
        if now.find_env(name) is not None:
            continue
        rule, forms = table.retirement(name), list(table.forms(name))
        if rule is None and not forms:
            continue
        removed = next((row.removed for row in reversed(forms) if row.removed), rule.removed if rule else "")
        why = f"gone since {removed}" if removed else "not known to that version"
        effect = f"; {rule.effect}" if rule else ""
        source = rule.source if rule else forms[-1].source
        yield Step("drop", f"engine.env.{name}", f"{why}; nothing reads it any more{effect}", value, source=source)


def _explicit(now: Edition, engine: Engine) -> Iterator[Step]:
    declared = {found[0].flag for key in engine.knobs if (found := now.find(key))}
    for row in rules_of(engine.kind).get("explicit", ()):
        if now.find(row["knob"]) and row["knob"] not in declared:
            why = f"stated although it is the default: {row['why']}"
            yield Step("add", f"engine.knobs.{row['knob']}", why, None, row["value"], "", row["source"])


def _defaults(table: KnobTable, then: Edition, now: Edition, engine: Engine) -> Iterator[Step]:
    """Defaults that moved under knobs that are not declared, of those that matter to memory or behaviour."""
    declared = {found[0].flag for key in engine.knobs if (found := now.find(key))}
    for flag in rules_of(engine.kind).get("defaults", {}).get("matter", ()):
        old, new = then.find(flag), now.find(flag)
        if new is None or new[0].flag in declared:
            continue
        was = default_at(table, old[0], engine.version) if old else ""
        becomes = default_at(table, new[0], now.version)
        if old and was != becomes:
            why = f"not declared, and the engine's default moved from {was or 'derived'} to {becomes or 'derived'}"
            yield Step("default", f"engine.knobs.{flag}", why, was or None, becomes or None, "", new[0].source)


def _notices(table: KnobTable, engine: Engine, to: str) -> Iterator[Step]:
    low, high = table.key(engine.version), table.key(to)
    for row in rules_of(engine.kind).get("notice", ()):
        if low < table.key(row["since"]) <= high:
            yield Step("notice", "", row["text"], source=row["source"])
