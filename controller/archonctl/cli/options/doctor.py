"""Options of ``archonctl doctor``."""

from __future__ import annotations

import argparse

from archonctl.doctor.table import ids

NOTES = """\
examples:
  archonctl doctor                       this machine, and every declaration in ./env (else in /etc/archon)
  archonctl doctor archon                this machine for that endpoint, whatever host it is declared for
  archonctl doctor --check ports --check plan
  sudo archonctl doctor                  sees other accounts' processes too
  archonctl doctor --list                the checks, and what each looks at

Nothing is changed, started or sent. A check that does not apply is skipped and says why; one that applies and cannot
be looked at is skipped too, counted apart, and no reason to call a machine healthy. A check that hangs is ended.

exit: 0 no check failed, 1 one did (--strict: or warned), 3 nothing could be judged (--strict: or not everything)"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    what = "name or file; default: $ARCHON_ENDPOINT, else every declaration in ./env, else in /etc/archon"
    verb.add_argument("endpoint", nargs="?", metavar="ENDPOINT", help=what)
    group = verb.add_argument_group("checks")
    group.add_argument(
        "--check", action="append", default=[], choices=ids(), metavar="ID", help="only this check (may be repeated)"
    )
    group.add_argument("--list", action="store_true", help="name the checks, and do none")
    group.add_argument("--strict", action="store_true", help="warnings fail, and what could not be looked at is 3")
    group.add_argument("--verify-files", action="store_true", help="read model files for their SHA-256 (remembered)")
    group.add_argument("--root", default="/", metavar="DIR", help="read another machine's files below DIR")
