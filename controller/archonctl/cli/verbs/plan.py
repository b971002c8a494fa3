"""``archonctl plan``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.endpoint import endpoint_of
from archonctl.cli.output import Output

EXIT = {"holds": 0, "short": 1, "unknown": 3}


def run(args: Namespace, out: Output) -> int:
    """Plan and present."""
    from archonctl.plan.build import plan_endpoint

    plan = plan_endpoint(endpoint_of(args, out))
    if out.json:
        from archonctl.plan.as_json import plan_json

        out.value(plan_json(plan))
    else:
        from archonctl.cli.plan_text import plan_text

        out.answer(plan_text(plan, out))
    return EXIT[plan.verdict]
