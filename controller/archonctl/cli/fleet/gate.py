"""``archonctl fleet gate``."""

from __future__ import annotations

import argparse

from archonctl.cli.fleet.hosts import environ_of
from archonctl.cli.output import Output

EXIT = {"clean": 0, "refused": 4, "invalid": 2, "unread": 3}


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    action.add_argument("--strict", action="store_true", help="refuse on warnings too")


def run(args: argparse.Namespace, out: Output) -> int:
    """0 clean, 4 refused somewhere, 2 a host's variables are wrong, 3 nothing is known of a host."""
    from archonctl.fleet.facts import facts_folder
    from archonctl.fleet.gating import gate_fleet
    from archonctl.fleet.inventory import read_inventory

    environ = environ_of(args)
    inventory = read_inventory(args.inventory, environ, args.limit)
    inventory.refuse_idle()
    facts = facts_folder(args.inventory, environ, args.facts)
    gate = gate_fleet(inventory, facts, environ, strict=args.strict)
    if out.json:
        from archonctl.fleet.as_json import gate_json

        out.value(gate_json(gate))
    else:
        from archonctl.cli.fleet_gate_text import fleet_gate_text

        out.answer(fleet_gate_text(gate, out))
    return EXIT[gate.word]
