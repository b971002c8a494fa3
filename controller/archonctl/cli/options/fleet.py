"""Options of ``archonctl fleet``: what every action takes; the rest is in ``cli/fleet/<action>.py``."""

from __future__ import annotations

import argparse
from importlib import import_module

ACTIONS: dict[str, str] = {
    "plan": "which endpoint on which hosts and cards; what breaks when a host dies",
    "gate": "the gate over every host's endpoints, each host judged by itself",
    "apply": "roll the declarations out over Ansible, canary first, stop at the first host that does not hold",
    "rollback": "go back to an earlier release over Ansible, host after host, as apply does",
    "probe": "verify what runs on every host",
    "status": "unit, release, verdict and age of every endpoint on every host",
    "drift": "what runs on every host against its release and against what it was verified on",
    "route": "what routers and Prometheus are told: addresses, verified capacity as weight, health",
}
"""Every action and what it is for, in the order of the help."""

NOTES = """\
examples:
  archonctl fleet plan -i inventory                       what lies on each host, and does it hold?
  archonctl fleet plan -i inventory fleet.toml            place the endpoints of a fleet file
  archonctl fleet plan -i inventory fleet.toml --without gpu2
  archonctl fleet gate -i inventory --json

INVENTORY is an Ansible inventory: an INI or YAML file, or a folder with host_vars and group_vars. ansible-inventory
reads it. Host variables: archon_endpoints (declaration files, or tables with declaration and cards) and
archon_host_profile (a host profile; else what was gathered from the host)."""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do, see below")
    for name, summary in ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=f"{summary}.", allow_abbrev=False)
        _hosts(action)
        import_module(f"archonctl.cli.fleet.{name}").configure(action)


def _hosts(action: argparse.ArgumentParser) -> None:
    group = action.add_argument_group("hosts")
    group.add_argument(
        "--inventory",
        "-i",
        action="append",
        required=True,
        metavar="INVENTORY",
        help="an Ansible inventory, file or folder (may be repeated)",
    )
    group.add_argument(
        "--limit", "-l", default="", metavar="PATTERN", help="only these hosts: names, groups, wildcards, with commas"
    )
    group.add_argument(
        "--facts", default="", metavar="FOLDER", help="where what was gathered of each host is kept (default: a cache)"
    )
    group.add_argument(
        "--vault-password-file",
        default="",
        metavar="FILE",
        help="what opens ansible-vault's values (default: as ANSIBLE_VAULT_PASSWORD_FILE or ansible.cfg says)",
    )
    group.add_argument(
        "--vault-id", action="append", default=[], metavar="ID@FILE", help="the same of one vault (may be repeated)"
    )
