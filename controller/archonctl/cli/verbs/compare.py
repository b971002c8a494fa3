"""``archonctl compare``."""

from __future__ import annotations

import re
from argparse import Namespace
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import all_recorded, recorded_of
from archonctl.cli.output import Output
from archonctl.errors import UsageError

if TYPE_CHECKING:
    from archonctl.service.installed import Installed

SAME, DIFFERENT, NOT_ALL_SEEN = 0, 8, 3
_DIGEST = re.compile(r"[0-9a-fA-F]{4,64}")
_Side = tuple["Installed", str]


def run(args: Namespace, out: Output) -> int:
    """Compare, present; 8 if anything differs."""
    from archonctl.cli.compare_text import compare_json, compare_text
    from archonctl.observe.compare import compare
    from archonctl.observe.side import side_of

    was, now = _sides(args.sides, out, user=args.user)
    found = compare(side_of(*was), side_of(*now))
    if out.json:
        out.value(compare_json(found, everything=args.all))
    else:
        out.answer(compare_text(found, out, everything=args.all))
    return DIFFERENT if found.changes else NOT_ALL_SEEN if found.unknown else SAME


def _sides(words: list[str], out: Output, *, user: bool) -> tuple[_Side, _Side]:
    from archonctl.observe.side import before

    if len(words) > 2:
        why = f"{len(words)} sides are named, expected at most two"
        raise UsageError("command-line-invalid", why, hint="archonctl compare NAME@A NAME@B")
    asked: list[str | None] = [*words] or [None]
    sides = [_side(word, out, user=user) for word in asked]
    if len(sides) == 2:
        return sides[0], sides[1]
    installed, digest = sides[0]
    current = installed.current()
    if words and digest != current:
        return (installed, digest), (installed, current)
    return (installed, before(installed.history(), digest)), (installed, digest)


def _side(word: str | None, out: Output, *, user: bool) -> _Side:
    """An endpoint and one of its releases: the current one where no digest is given."""
    if word and _DIGEST.fullmatch(word):
        all_of_them = all_recorded(out, user=user)
        if word not in {each.name for each in all_of_them}:
            return _by_digest(word, all_of_them)
    name, at, digest = (word or "").partition("@")
    installed = recorded_of(name or None, out, user=user)
    return installed, installed.resolve(digest) if at else installed.current()


def _by_digest(word: str, installed: list[Installed]) -> _Side:
    start = word.lower()[:16]
    found = [(each, digest) for each in installed for digest in each.digests() if digest.startswith(start)]
    if len(found) != 1:
        known = ", ".join(f"{each.name}@{digest}" for each in installed for digest in each.digests()) or "none"
        why = f"{word!a} means {len(found)} of the stored releases"
        raise UsageError("release-unknown", why, hint=f"stored: {known}")
    return found[0]
