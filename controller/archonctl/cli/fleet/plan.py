"""``archonctl fleet plan``."""

from __future__ import annotations

import argparse
from pathlib import Path

from archonctl.cli.fleet.hosts import environ_of
from archonctl.cli.options.common import positive
from archonctl.cli.output import Output

EXIT = {"holds": 0, "short": 1, "invalid": 2, "unknown": 3}


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    action.add_argument(
        "fleet",
        nargs="?",
        metavar="FLEET",
        help="a fleet file (endpoints, replicas, rules): place them; without it what lies where the inventory says",
    )
    group = action.add_argument_group("placement")
    group.add_argument(
        "--without", metavar="HOST", action="append", default=[], help="as if this host were lost (may be repeated)"
    )
    group.add_argument(
        "--out", metavar="FILE", default="", help="write the placement as an inventory, to be given beside the other"
    )
    group.add_argument(
        "--time-limit", type=positive, default=30.0, metavar="S", help="seconds for the solver (default: 30)"
    )


def run(args: argparse.Namespace, out: Output) -> int:
    """0 holds, 1 something is short or lies nowhere, 2 a host or endpoint is declared wrong, 3 unknown."""
    from archonctl.fleet.declared import read_fleet
    from archonctl.fleet.facts import facts_folder
    from archonctl.fleet.inventory import read_inventory
    from archonctl.fleet.planning import Ask, plan_fleet

    fleet = read_fleet(Path(args.fleet)) if args.fleet else None
    environ = environ_of(args)
    inventory = read_inventory(args.inventory, environ, args.limit)
    if fleet is None:
        inventory.refuse_idle()
    facts = facts_folder(args.inventory, environ, args.facts)
    plan = plan_fleet(inventory, fleet, Ask(facts, environ, tuple(args.without), args.time_limit))
    if args.out:
        from archonctl.fleet.placement_file import placement_text, write_placement

        path = Path(args.out)
        write_placement(path, placement_text(plan, path.absolute().parent))
        out.talk(f"archonctl: wrote {args.out}")
    if out.json:
        from archonctl.fleet.as_json import plan_json

        out.value(plan_json(plan))
    else:
        from archonctl.cli.fleet_plan_text import fleet_plan_text

        out.answer(fleet_plan_text(plan, out))
    return EXIT[plan.verdict]
