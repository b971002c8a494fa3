"""``archonctl verdict``."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import state_folder
from archonctl.cli.output import Output
from archonctl.cli.verbs.probe import EXIT

if TYPE_CHECKING:
    from archonctl.probe.stored import Stored


def run(args: Namespace, out: Output) -> int:
    """Do one action."""
    return {"show": _show, "list": _list, "replay": _replay}[args.action](args, out)


def _show(args: Namespace, out: Output) -> int:
    from archonctl.cli.stored_text import shown_json, shown_text

    stored, where = _stored(args, out)
    if out.json:
        out.value(shown_json(stored, where))
    else:
        out.answer(shown_text(stored, where, out))
    return EXIT[stored.word]


def _list(args: Namespace, out: Output) -> int:
    from archonctl.cli.stored_text import listed_json, listed_text
    from archonctl.service.verdict_store import kept

    name, folder = state_folder(args.endpoint, out, os.environ)
    found = kept(folder, args.release)
    if out.json:
        out.value(listed_json(name, found))
    else:
        out.answer(listed_text(name, found))
    return 0 if found else EXIT["no evidence"]


def _replay(args: Namespace, out: Output) -> int:
    from archonctl.cli.stored_text import replayed_json, replayed_text
    from archonctl.probe.replay import replay

    stored, where = _stored(args, out)
    found = replay(stored)
    if out.json:
        out.value(replayed_json(stored, where, found))
    else:
        out.answer(replayed_text(stored, where, found, out))
    return 0 if found.same else 1


def _stored(args: Namespace, out: Output) -> tuple[Stored, str]:
    """The verdict that was meant, and where it lies."""
    from archonctl.service.verdict_store import latest, load

    if args.file:
        return load(Path(args.file)), args.file
    name, folder = state_folder(args.endpoint, out, os.environ)
    stored, found = latest(folder, name, args.release)
    return stored, str(found.path)
