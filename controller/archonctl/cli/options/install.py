"""Options of ``archonctl install``."""

from __future__ import annotations

import argparse

NOTES = """\
examples:
  sudo archonctl install               units, accounts, folders, the root preflight, and archonctl itself
  archonctl install --root build/image the same, into a folder that becomes an image
  archonctl install --deb build        the same, as a Debian package
  archonctl install --user             a unit for systemctl --user; no root, no limits raised
  sudo archonctl install --uninstall   takes it away again; endpoints, releases and histories stay

May be repeated: only what differs is written."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    where = verb.add_mutually_exclusive_group()
    where.add_argument("--root", metavar="DIR", default="/", help="install into this folder (default: this machine)")
    where.add_argument("--user", action="store_true", help="only this user's own service manager")
    where.add_argument("--deb", metavar="DIR", help="write a Debian package into DIR instead")
    verb.add_argument("--uninstall", action="store_true", help="take away what was installed; data stays")
