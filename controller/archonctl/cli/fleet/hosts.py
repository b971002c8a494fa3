"""What ``apply``, ``rollback``, ``probe``, ``status`` and ``drift`` of a fleet have in common."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.fleet.rollout.run import Asked


def at_once(action: argparse.ArgumentParser) -> None:
    """How many hosts are asked at once."""
    action.add_argument("--forks", type=whole, default=10, metavar="N", help="hosts asked at once (default: 10)")
    action.add_argument(
        "--become-password-file",
        default="",
        metavar="FILE",
        help="the password that sudo takes there (default: as ANSIBLE_BECOME_PASSWORD_FILE or the inventory says)",
    )


def turns(action: argparse.ArgumentParser) -> None:
    """In which order hosts are changed."""
    action.add_argument("--canary", default="", metavar="HOST", help="the first one (default: the first by name)")
    action.add_argument(
        "--serial", type=whole, default=1, metavar="N", help="hosts changed at once after the canary (default: 1)"
    )
    action.add_argument(
        "--take-over", action="store_true", help="take hosts from a rollout of somebody else that is known to be gone"
    )


def depth(action: argparse.ArgumentParser) -> None:
    """How deep a verdict looks, and for how long at most."""
    action.add_argument(
        "--verify",
        choices=("ledger", "admission", "full"),
        default="full",
        help="how deep: the boot log only; full-height requests admitted; held at once until all answered (default)",
    )
    action.add_argument(
        "--timeout",
        type=whole,
        default=3600,
        metavar="S",
        help="seconds for each endpoint until it is interrupted there, which undoes a change (default: 3600)",
    )


def whole(text: str) -> int:
    """A whole number from 1 to 100,000, as an option's type."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 100_000:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 100,000, got {text!r}")
    return value


def environ_of(args: argparse.Namespace) -> dict[str, str]:
    """This process's environment, with the files that the options name for Ansible's passwords. No password is read."""
    named = {
        "ANSIBLE_VAULT_PASSWORD_FILE": args.vault_password_file,
        "ANSIBLE_BECOME_PASSWORD_FILE": getattr(args, "become_password_file", ""),
    }
    files = {name: str(Path(file).expanduser().absolute()) for name, file in named.items() if file}
    vaults = [*filter(None, [os.environ.get("ANSIBLE_VAULT_IDENTITY_LIST", "")]), *args.vault_id]
    return {**os.environ, **files, **({"ANSIBLE_VAULT_IDENTITY_LIST": ",".join(vaults)} if vaults else {})}


def carry_out(args: argparse.Namespace, out: Output, asked: Asked) -> int:
    """Read the inventory, run, present."""
    from archonctl.cli.fleet_text import HostsTalker, fleet_text
    from archonctl.fleet.inventory import read_inventory
    from archonctl.fleet.rollout.as_json import fleet_json
    from archonctl.fleet.rollout.run import run_over

    environ = environ_of(args)
    inventory = read_inventory(args.inventory, environ, args.limit)
    with HostsTalker(out) as talker:
        result = run_over(inventory, asked, environ, talker.see)
    if out.json:
        out.value(fleet_json(result))
    else:
        out.answer(fleet_text(result, out))
    return result.exit_code
