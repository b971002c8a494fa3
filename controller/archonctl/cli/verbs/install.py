"""``archonctl install``."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from archonctl.cli.output import Output
from archonctl.errors import UsageError


def run(args: Namespace, out: Output) -> int:
    """Place it, or take it away, and say what was done."""
    from archonctl.service.install import Installed, install, install_user, uninstall
    from archonctl.service.place import Place
    from archonctl.service.state import state_dir

    if args.uninstall and (args.user or args.deb):
        raise UsageError("command-line-invalid", "--uninstall goes with --root only")
    done: Installed
    made: str | None = None
    if args.deb:
        from archonctl.service.debian import build_deb

        package = build_deb(Path(args.deb))
        done, made = Installed(0, 0, 0, None), str(package)
        if not out.json:
            out.answer(made)
    elif args.user:
        program = Path(shutil.which(sys.argv[0]) or sys.argv[0]).absolute()
        config = Place.of_user(os.environ).units.parents[1]
        done = install_user(Path.home(), program, state_dir(os.environ), out.talk, config)
    else:
        done = (uninstall if args.uninstall else install)(Path(args.root), out.talk)
    if out.json:
        out.value({"schema": "archonctl.install/1", **asdict(done), "package": made})
    return 0
