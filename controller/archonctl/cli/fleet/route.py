"""``archonctl fleet route``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.fleet.hosts import at_once, environ_of
from archonctl.cli.output import Output
from archonctl.errors import UsageError

if TYPE_CHECKING:
    from archonctl.fleet.backends import Backend
    from archonctl.fleet.inventory import Inventory
    from archonctl.fleet.routing.rotation import Rotation

TARGETS = ("nginx", "envoy", "litellm", "vllm-router", "file-sd")


def configure(action: argparse.ArgumentParser) -> None:
    """Add its options."""
    action.add_argument("--target", choices=TARGETS, required=True, help="whom the file is for")
    action.add_argument("--out", metavar="FILE", help="written whole, and only if it changes (default: printed)")
    action.add_argument(
        "--from", dest="status", metavar="FILE", help="what fleet status --json said, - for stdin (default: look now)"
    )
    action.add_argument("--endpoint", metavar="NAME", help="only this endpoint")
    action.add_argument(
        "--include-unverified", action="store_true", help="take in what nothing is known of, with the least weight"
    )
    action.add_argument("--force", action="store_true", help="write a rotation without a member too")
    at_once(action)


def run(args: argparse.Namespace, out: Output) -> int:
    """Look at the fleet, or read what was seen; write or print."""
    from archonctl.fleet.inventory import read_inventory
    from archonctl.fleet.routing.rotation import rotations
    from archonctl.fleet.routing.seen import backends_seen
    from archonctl.fleet.routing.text import RELOAD, RENDERERS
    from archonctl.fleet.routing.write import write_route

    inventory = read_inventory(args.inventory, environ_of(args), args.limit)
    seen = backends_seen(inventory, _status(args, inventory, out), args.status or "")
    chosen = _named(seen, args.endpoint)
    # Prometheus has to see what is broken: its targets are no rotation
    force = args.force or args.target == "file-sd"
    found = rotations(chosen, include_unverified=args.include_unverified, force=force)
    text = RENDERERS[args.target](found)
    changed = write_route(Path(args.out), text) if args.out else None
    if out.json:
        out.value(_value(args, text, found, changed, RELOAD[args.target]))
        return 0
    if args.out is None:
        out.answer(text.rstrip("\n"))
    else:
        serving = sum(len(each.serving) for each in found)
        state = "written" if changed else "unchanged"
        out.answer(f"{args.out}  {state}  {serving} of {len(chosen)} in rotation")
    for backend in (member.backend for rotation in found for member in rotation.out):
        out.talk(f"out of rotation: {backend.endpoint} on {backend.host}: {backend.reason or backend.state}")
    for each in found:
        if not each.serving:
            out.talk(f"nobody serves {each.endpoint} now")
    if changed and RELOAD[args.target]:
        out.talk(f"now: {RELOAD[args.target]}")
    return 0


def _status(args: argparse.Namespace, inventory: Inventory, out: Output) -> object:
    if args.status is None:
        from archonctl.cli.fleet_text import HostsTalker
        from archonctl.fleet.rollout.as_json import fleet_json
        from archonctl.fleet.rollout.run import Asked, run_over

        asked = Asked("status", forks=args.forks, facts=args.facts, timeout_s=300)
        with HostsTalker(out) as talker:
            return fleet_json(run_over(inventory, asked, environ_of(args), talker.see))
    try:
        text = sys.stdin.read() if args.status == "-" else Path(args.status).read_text(encoding="utf-8")
        found: object = json.loads(text)
    except (OSError, ValueError, RecursionError) as err:
        raise UsageError("fleet-status-unreadable", f"it cannot be read: {err}"[:300], where=args.status) from None
    return found


def _named(backends: tuple[Backend, ...], name: str | None) -> tuple[Backend, ...]:
    found = tuple(each for each in backends if name in (None, each.endpoint))
    if name is not None and not found:
        known = ", ".join(sorted({each.endpoint for each in backends})) or "none"
        raise UsageError("endpoint-not-installed", f"{name} is on no host of the inventory", hint=f"there are: {known}")
    return found


def _value(
    args: argparse.Namespace, text: str, found: tuple[Rotation, ...], changed: bool | None, reload: str
) -> dict[str, object]:
    return {
        "schema": "archonctl.fleet-route/1",
        "target": args.target,
        "path": args.out,
        "changed": changed,
        "reload": reload or None,
        "text": text,
        "backends": [
            {
                "endpoint": rotation.endpoint,
                "host": member.backend.host,
                "address": member.backend.address or None,
                "state": member.backend.state,
                "weight": member.weight,
                "seqs": member.backend.capacity_seqs,
                "tokens": member.backend.capacity_tokens,
                "reason": member.backend.reason or None,
            }
            for rotation in found
            for member in rotation.members
        ],
    }
