"""From what each version lists to one table: rows with a first and a last version, written as TOML.

Deterministic: the same snapshots give the same bytes, so that a new engine version is a diff that can be reviewed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

from archonctl.engines.knobs.history import default_at
from archonctl.engines.knobs.row import Knob, first_long
from archonctl.engines.knobs.snapshot import Seen, Snapshot
from archonctl.engines.knobs.table import KnobTable
from archonctl.engines.knobs.versions import version_key
from archonctl.errors import UsageError

_EFFECT_LENGTH = 100


@dataclass
class _Chain:
    """One form of one flag while the versions pass: the newest sight of it decides what is text."""

    flag: str
    since: str
    seen: Seen
    version: str
    defaults: dict[str, str]
    removed: str = ""
    renamed_to: str = ""
    deprecated_since: str = ""


def merge(snapshots: Sequence[Snapshot]) -> tuple[Knob, ...]:
    """Rows of all snapshots of one engine, in the order of the newest list, what went away at the end.

    Raises UsageError ``snapshot-invalid`` for snapshots of two engines, a version twice and a name twice in one.
    """
    ordered = in_order(snapshots)
    living: dict[str, _Chain] = {}
    gone: list[_Chain] = []
    for number, snapshot in enumerate(ordered):
        since = snapshot.version if number else ""
        now = {_flag(seen): seen for seen in snapshot.knobs}
        for flag, seen in now.items():
            old = living.get(flag)
            if old is not None and _form(old.seen) == _form(seen):
                _continue(old, seen, snapshot.version)
                continue
            if old is not None:
                old.removed = snapshot.version
                gone.append(old)
            living[flag] = _begin(flag, seen, since, snapshot.version)
        for flag in [flag for flag in living if flag not in now]:
            chain = living.pop(flag)
            chain.removed = snapshot.version
            chain.renamed_to = _successor(chain, snapshot)
            gone.append(chain)
    order = [_flag(seen) for seen in ordered[-1].knobs]
    rows = sorted(living.values(), key=lambda chain: order.index(chain.flag))
    return tuple(map(_row, _grouped(rows, gone)))


def snapshots_of(table: KnobTable) -> list[Snapshot]:
    """The lists that a table was merged from, as far as it keeps them: what ``merge`` makes of them is the table."""
    return [
        Snapshot(
            table.engine,
            version,
            table.sources.get(version, version),
            tuple(
                _sight(table, knob, version)
                for knob, span in zip(table.knobs, table.spans, strict=True)
                if span.holds(key)
            ),
        )
        for version, key in zip(table.versions, table.read, strict=True)
    ]


def _sight(table: KnobTable, knob: Knob, version: str) -> Seen:
    since = knob.deprecated_since
    deprecated = knob.deprecated and (not since or table.key(since) <= table.key(version))
    return Seen(
        names=knob.names,
        negatives=knob.negatives,
        type=knob.type,
        nargs=knob.nargs if knob.nargs != "" else None,
        choices=knob.choices or None,
        words=knob.words,
        min=knob.min,
        max=knob.max,
        default=default_at(table, knob, version) or None,
        env=knob.env_key or None,
        hint=knob.hint or None,
        help=knob.effect,
        deprecated=knob.deprecated if deprecated else None,
        hidden=knob.hidden,
        refused=knob.refused or None,
    )


def in_order(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Snapshots by version, checked; raises UsageError ``snapshot-invalid``."""
    if not snapshots:
        raise UsageError("snapshot-invalid", "there is no snapshot")
    engine = snapshots[0].engine
    if len({snapshot.engine for snapshot in snapshots}) > 1:
        raise UsageError("snapshot-invalid", "snapshots of several engines cannot be one table")
    ordered = sorted(snapshots, key=lambda snapshot: version_key(engine, snapshot.version))
    for one, two in pairwise(ordered):
        if version_key(engine, one.version) == version_key(engine, two.version):
            raise UsageError("snapshot-invalid", f"version {two.version} is there twice")
    for snapshot in ordered:
        _check_names(snapshot)
    return ordered


def _check_names(snapshot: Snapshot) -> None:
    taken = set[str]()
    for seen in snapshot.knobs:
        if not _flag(seen):
            raise UsageError("snapshot-invalid", f"{snapshot.version}: a row has neither names nor env")
        for name in dict.fromkeys((*seen.names, *seen.negatives)):
            if not name.startswith("-") or name in taken:
                why = "is there twice" if name in taken else "does not begin with a dash"
                raise UsageError("snapshot-invalid", f"{snapshot.version}: {name!r} {why}")
            taken.add(name)


def _flag(seen: Seen) -> str:
    return first_long(seen.names).lstrip("-") or first_long(seen.negatives).lstrip("-") or (seen.env or "")


def _form(seen: Seen) -> tuple[object, ...]:
    """What makes two sights the same form: a difference here begins a new row."""
    return (
        sorted(seen.names),
        sorted(seen.negatives),
        seen.type,
        seen.nargs,
        sorted(map(_text, seen.choices or ())),
        sorted(seen.words),
        seen.min,
        seen.max,
        seen.env or "",
        seen.refused or "",
    )


def _begin(flag: str, seen: Seen, since: str, version: str) -> _Chain:
    deprecated = version if seen.deprecated else ""
    return _Chain(flag, since, seen, version, {since: _text(seen.default)}, deprecated_since=deprecated)


def _continue(chain: _Chain, seen: Seen, version: str) -> None:
    default = _text(seen.default)
    if default != next(reversed(chain.defaults.values())):
        chain.defaults[version] = default
    if not seen.deprecated:
        chain.deprecated_since = ""
    elif not chain.deprecated_since:
        chain.deprecated_since = version
    chain.seen, chain.version = seen, version


def _successor(chain: _Chain, snapshot: Snapshot) -> str:
    """The flag that took over a spelling or the variable of one that went away."""
    own = {*chain.seen.names, *chain.seen.negatives}
    for seen in snapshot.knobs:
        if not seen.refused and (
            own & {*seen.names, *seen.negatives} or (chain.seen.env and chain.seen.env == seen.env)
        ):
            return _flag(seen)
    return ""


def _grouped(living: list[_Chain], gone: list[_Chain]) -> Iterable[_Chain]:
    """The rows of one flag side by side, oldest first; flags without a living row at the end, by name."""
    past: dict[str, list[_Chain]] = {}
    for chain in gone:
        past.setdefault(chain.flag, []).append(chain)
    for chain in living:
        yield from past.pop(chain.flag, [])
        yield chain
    for flag in sorted(past):
        yield from past[flag]


def _row(chain: _Chain) -> Knob:
    seen = chain.seen
    deprecated = "it is deprecated" if seen.deprecated is True else seen.deprecated or ""
    return Knob(
        flag=chain.flag,
        names=seen.names,
        negatives=seen.negatives,
        type=seen.type,
        nargs=seen.nargs if seen.nargs is not None else "",
        env_key=seen.env or "",
        choices=tuple(map(_text, seen.choices or ())),
        words=seen.words,
        min=seen.min,
        max=seen.max,
        default=next(reversed(chain.defaults.values())),
        defaults=chain.defaults if len(chain.defaults) > 1 else {},
        hint=seen.hint or "",
        since=chain.since,
        removed=chain.removed,
        renamed_to=chain.renamed_to,
        deprecated=first_sentence(deprecated),
        deprecated_since=chain.deprecated_since,
        refused=seen.refused or "",
        hidden=seen.hidden,
        effect=first_sentence(seen.help or "") or "the engine's list says nothing about it",
        source=chain.version,
    )


def _text(value: Any) -> str:
    if value is None or value == "":
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def first_sentence(text: str) -> str:
    """A help text cut to what one line can say."""
    plain = re.sub(r"\s+", " ", re.sub(r"\s*\(default:.*", "", text, flags=re.DOTALL)).strip()
    first = re.match(r"(.{12,}?[^.\s]{2})\. (?=[A-Z`\"'])", plain)
    plain = first[1] if first else plain.removesuffix(".")
    return plain if len(plain) <= _EFFECT_LENGTH else plain[: _EFFECT_LENGTH - 3].rsplit(" ", 1)[0] + "..."


def as_toml(snapshots: Sequence[Snapshot], head: str) -> str:
    """The whole ``knobs.toml`` of these snapshots; ``head`` is its comment. Raises as ``merge`` does."""
    ordered = in_order(snapshots)
    lines = [f"# {line}".rstrip() for line in head.splitlines()]
    lines += ["", f'engine = "{ordered[0].engine}"']
    lines += [f"versions = [{', '.join(_value(snapshot.version) for snapshot in ordered)}]", "", "[sources]"]
    lines += [f"{_value(snapshot.version)} = {_value(snapshot.source)}" for snapshot in ordered]
    return "\n".join(lines) + "\n" + "".join(map(row_as_toml, merge(ordered)))


def row_as_toml(knob: Knob) -> str:
    """One ``[[knob]]`` without what is empty or follows from the rest."""
    pairs = []
    for column in fields(knob):
        value = getattr(knob, column.name)
        if value is None or value is False or value in ("", (), {}):
            continue
        if column.name == "names" and value == (f"--{knob.flag}",):
            continue
        pairs.append(f"{column.name} = {_value(value)}\n")
    return "\n[[knob]]\n" + "".join(pairs)


def _value(value: object) -> str:
    """JSON's strings, numbers and lists of strings are TOML's too; only tables differ."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
