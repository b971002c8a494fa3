"""``archonctl report``."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import all_recorded, recorded_of
from archonctl.cli.output import Output, say, written
from archonctl.errors import HostRefusal, UsageError

if TYPE_CHECKING:
    from archonctl.observe.story import Show
    from archonctl.service.installed import Installed
    from archonctl.service.unit import UnitState

SCHEMA = "archonctl.report/1"


def run(args: Namespace, out: Output) -> int:
    """Gather, draw, and write or serve."""
    if args.all and args.endpoints:
        raise UsageError("command-line-invalid", "--all and an ENDPOINT: leave one of them out")
    if args.serve:
        if args.html or out.json:
            raise UsageError("command-line-invalid", "--serve writes nothing: leave out --html and --json")
        return _serve(args, out)
    return _write(args, out)


def _write(args: Namespace, out: Output) -> int:
    from archonctl.observe.report.make import INDEX, stories, write_page
    from archonctl.observe.report.page import page

    to_stdout = args.html in (None, "-")
    if to_stdout and out.json:
        raise UsageError("command-line-invalid", "--json needs a file for the page", hint="--html FILE")
    if args.html is None and sys.stdout.isatty():
        why = "a page is not for a terminal"
        raise UsageError("command-line-invalid", why, hint="--html FILE writes it, --serve serves it")
    installed = _chosen(args, out)
    found, journal = stories(installed, _show(user=args.user), args.since)
    text = page(found, journal, time.time(), title=INDEX if args.all or len(found) != 1 else "")
    if to_stdout:
        with written():
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()
        return 0
    size = write_page(Path(args.html), text)
    if out.json:
        names = [each.name for each in found]
        out.value({"schema": SCHEMA, "file": str(Path(args.html).absolute()), "bytes": size, "endpoints": names})
    else:
        out.answer(f"{args.html}: {size:,} bytes, {_who([each.name for each in found])}")
    return 0


def _who(names: list[str]) -> str:
    return ", ".join(names) if 0 < len(names) <= 4 else f"{len(names)} endpoints"


def _serve(args: Namespace, out: Output) -> int:
    from ipaddress import ip_address

    from archonctl.observe.report.app import ReportApp
    from archonctl.observe.report.make import pages
    from archonctl.observe.serve import serving_app
    from archonctl.service.preflight import split_listen

    host, port = split_listen(args.serve)
    try:
        local = ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if args.endpoints:
        _chosen(args, out)  # a name of which there is no record is said at once
    back_s = time.time() - args.since
    make = pages(
        lambda: _chosen(args, out) if args.endpoints else all_recorded(out, user=args.user),
        _show(user=args.user),
        lambda: time.time() - back_s,
        time.time,
    )
    with serving_app(ReportApp(make, local=local), host, port, "--serve") as bound:
        out.talk(f"archonctl: the report at http://{f'[{host}]' if ':' in host else host}:{bound}/")
        if not local:
            say("archonctl: everybody who reaches this address can read it, log lines too")
        threading.Event().wait()
    return 0


def _chosen(args: Namespace, out: Output) -> list[Installed]:
    if args.all:
        return all_recorded(out, user=args.user)
    return [recorded_of(word, out, user=args.user) for word in args.endpoints or [None]]


def _show(*, user: bool) -> Show:
    """What systemd says of a unit; where there is no systemd, that."""
    from archonctl.service.unit import UNIT_DIR, show

    def look(installed: Installed) -> UnitState:
        if not UNIT_DIR.is_dir():
            raise HostRefusal("no-systemd", "systemd is not process 1 here, so no unit is known")
        return show(installed.unit, user=user)

    return look
