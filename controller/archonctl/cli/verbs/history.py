"""``archonctl history``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.endpoint import installed_of
from archonctl.cli.output import Output


def run(args: Namespace, out: Output) -> int:
    """The events, oldest first."""
    from archonctl.cli.installed_text import history_json, history_text

    installed = installed_of(args.endpoint, out, user=args.user)
    history, current = installed.history(), installed.current()
    records = history.records[-args.lines :] if args.lines > 0 else history.records
    if out.json:
        out.value(history_json(installed.name, current, history, records))
    else:
        out.answer(history_text(installed.name, current, history, records, out))
    return 0
