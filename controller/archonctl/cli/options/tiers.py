"""Options of ``archonctl tiers``."""

from __future__ import annotations

import argparse
import math

from archonctl.cli.options.common import endpoint

NOTES = """\
examples:
  archonctl tiers plan tiny                             each conversation that the running engine holds
  archonctl tiers plan env/archon-pair.toml --to 1.8.1  what the disk tier that 1.8.1 has no more costs
  archonctl tiers plan tiny --set tiers.prefill_tokens_per_s=900 --set tiers.disk.path=/var/lib/archonctl/kv
  archonctl tiers plan tiny --json
  archonctl tiers status tiny                           what the guard has staged of its conversations
  archonctl tiers clean tiny --older-than 24            half-made files, and conversations of more than a day ago

A conversation is retained where going to a colder tier and coming back takes less time than prefilling it again. What
a figure is not known for is kept. Nothing is moved by this verb. 'archonctl guard' does that for llama-server, and
cleans up by itself; while it runs, clean is refused. Staged files hold the text of conversations, as tokens.

exit: 0 said, 3 not enough is known to weigh anything"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    actions = verb.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do, see below")
    summary = "where each conversation's KV cache would lie, and why, with the numbers"
    plan = actions.add_parser("plan", help=summary, description=f"{summary}.", allow_abbrev=False)
    endpoint(plan)
    group = plan.add_argument_group("questions")
    group.add_argument(
        "--to", default="", metavar="VERSION", help="what tiers another version of the engine has no more"
    )
    group.add_argument("--offline", action="store_true", help="by the declaration, without asking the running engine")
    summary = "what is staged of an endpoint's conversations, by tier"
    endpoint(actions.add_parser("status", help=summary, description=f"{summary}.", allow_abbrev=False))
    summary = "remove half-made files, and conversations that nobody went on with"
    clean = actions.add_parser("clean", help=summary, description=f"{summary}.", allow_abbrev=False)
    endpoint(clean)
    clean.add_argument(
        "--older-than", type=_hours, metavar="HOURS", help="conversations staged longer ago too (0: all; default: none)"
    )


def _hours(text: str) -> float:
    """A count of hours: a negative one would mean all that is there, and no number none of it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of hours from 0 up")
    return value
