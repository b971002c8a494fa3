"""``archonctl logs``."""

from __future__ import annotations

import os
from argparse import Namespace

from archonctl.cli.endpoint import installed_of
from archonctl.cli.output import Output
from archonctl.errors import UsageError


def run(args: Namespace, out: Output) -> int:
    """The journal of this start; following is journalctl's own."""
    from archonctl.cli.installed_text import logs_json
    from archonctl.service.unit import show
    from archonctl.service.unit_log import follow_log, log_command, read_log

    installed = installed_of(args.endpoint, out, user=args.user)
    invocation = show(installed.unit, user=args.user).invocation
    command = log_command(installed.unit, invocation, lines=args.lines, follow=args.follow, user=args.user)
    if args.follow:
        if out.json:
            raise UsageError("logs-follow-json", "a log that is followed has no end, and JSON needs one", hint="-n N")
        return follow_log(command)
    lines = read_log(command)
    if out.json:
        out.value(logs_json(installed.name, installed.unit, invocation, lines))
    else:
        hidden = "" if os.geteuid() == 0 else " that this user may see (root, or the group systemd-journal, sees all)"
        out.answer("\n".join(lines) if lines else f"{installed.unit}: nothing is in the journal of this start{hidden}")
    return 0
