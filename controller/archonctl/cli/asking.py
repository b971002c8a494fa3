"""Asking before something that serves is stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from archonctl.cli.output import Output, say
from archonctl.errors import HostRefusal, UsageError

if TYPE_CHECKING:
    from archonctl.service.preview import Preview


def confirmation(out: Output, *, yes: bool) -> Callable[[Preview], None]:
    """A function that raises UsageError ``not-confirmed`` unless the change is wanted.

    Nothing is asked where nothing is stopped, and never without a terminal: there ``--yes`` has to say it.
    """
    from archonctl.cli.apply_text import preview_text

    def ask(seen: Preview) -> None:
        if yes or not seen.loss:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("not-confirmed", f"{seen.loss} would be stopped", hint="say --yes, or look with --check")
        say(preview_text(seen, out, diff=False))
        print(f"Stop {seen.unit} and start release {seen.new}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UsageError("not-confirmed", "nothing was changed", hint="")

    return ask


def need_root(*, user: bool = False) -> None:
    """Raises HostRefusal ``not-permitted`` for anyone else: releases and units are root's, but for ``user``'s own."""
    import os

    if not user and os.geteuid() != 0:
        why = "a change writes to /var/lib/archon and /etc/systemd/system, which are root's"
        hint = "sudo, or --user for your own service manager; --check and the reading verbs need no privileges"
        raise HostRefusal("not-permitted", why, hint=hint)
