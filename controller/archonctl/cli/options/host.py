"""Options of ``archonctl host``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint

NOTES = """\
examples:
  archonctl host show                        what this machine tells of itself
  archonctl host save env/hosts/box.toml     the same as a profile that a declaration can name
  archonctl host ttm archon                  the limit of pinned memory against what the endpoint needs
  archonctl host ttm archon --persist        how it stays over a reboot, as a diff; --write writes it

'ttm' ends with 0 where nothing is wrong and 1 where something is. Nothing is ever rebooted."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do, see below")

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
        )
        made.add_argument("--root", default="/", metavar="DIR", help="read another machine's files below DIR")
        return made

    action("show", "what this machine has: RAM, limits, cards")
    save = action("save", "write it as a host profile")
    save.add_argument("file", metavar="FILE", help="a new file, or '-' for stdout")
    ttm = action("ttm", "the kernel's limit of pinned memory: now, at the next boot, and what is wrong with either")
    endpoint(ttm)
    ttm.add_argument("--persist", action="store_true", help="propose what sets it at every boot")
    ttm.add_argument("--target", type=int, metavar="MIB", help="default: ttm_target_mib of the host, else the floor")
    ttm.add_argument("--write", action="store_true", help="with --persist: write the proposed file")
