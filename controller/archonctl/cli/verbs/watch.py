"""``archonctl watch``."""

from __future__ import annotations

import os
import socket
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import all_installed
from archonctl.cli.output import Output
from archonctl.cli.watch_bars import padded
from archonctl.cli.watch_screen import Screen
from archonctl.cli.watch_text import View, frame, moved, natural_height, painted

if TYPE_CHECKING:
    from archonctl.observe.watch_live import Watcher

DRAW_EVERY_S = 1.0
"""Ages count on between two looks."""
_FIRST_S = 0.1


def run(args: Namespace, out: Output) -> int:
    """The screen until it is left; or one look."""
    from archonctl.observe.guard_look import guards
    from archonctl.observe.watch_live import Watcher
    from archonctl.service.unit import show

    named = all_installed(args.endpoints, out, user=args.user)  # a name that is not installed is said at once
    watcher = Watcher(
        lambda: named if args.endpoints else all_installed([], out, user=args.user),
        lambda each: show(each.unit, user=args.user, timeout_s=10.0),
        args.every,
        lambda: guards(user=args.user),
    )
    unicode = out.unicode and _utf8_locale()
    if args.json or args.once or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return _once(watcher, View(socket.gethostname(), unicode=unicode, keys=False), out)
    code = _live(watcher, View(socket.gethostname(), unicode=unicode), out)
    # Looks that wait for an engine that hangs have bounds of seconds; who pressed q does not wait for them.
    sys.stderr.flush()
    os._exit(code)


def _once(watcher: Watcher, view: View, out: Output) -> int:
    from archonctl.cli.watch_json import watch_json

    try:
        seen = watcher.once()
    finally:
        watcher.end()
    if out.json:
        out.value(watch_json(seen))
    else:
        lines = [painted(line, out).rstrip() for line in frame(seen, view, out.width, natural_height(seen))]
        out.answer("\n".join(lines).rstrip("\n"))
    words = {each.verdict for each in seen.endpoints}
    if words & {"down", "broken", "half done"}:
        return 1
    return 3 if words - {"holds"} else 0


def _live(watcher: Watcher, view: View, out: Output) -> int:
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    sys.stdout.flush()
    with Screen(sys.stdout.fileno(), keys) as screen:
        watcher.begin()
        try:
            while not screen.ended:
                seen = watcher.snapshot()
                width, height = size = screen.size()
                drawn = frame(seen, view, width, height)
                screen.draw([painted(padded(line, width), out) for line in drawn], size)
                pressed = screen.wait(DRAW_EVERY_S if seen.looked else _FIRST_S)
                if "quit" in pressed:
                    break
                for key in pressed:
                    view = moved(view, seen, key)
        finally:
            watcher.end()
    return 0 if screen.ended in (0, 2) else 128 + screen.ended


def _utf8_locale() -> bool:
    """False in the C locale: Python writes UTF-8 there too (PEP 540), a terminal need not show it."""
    words = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((word for word in words if word), "C").lower()
    return "utf-8" in locale or "utf8" in locale
