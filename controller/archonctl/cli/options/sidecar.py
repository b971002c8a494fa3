"""Options of ``archonctl sidecar``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import positive, probing

NOTES = """\
examples:
  archonctl sidecar /etc/archon/release --pod-log engine       as the manifests of render --target kubernetes run it
  archonctl sidecar build/archon --log boot.log --once         one verdict here, on an engine that runs

It answers /startup (200 when the contract of this very start is verified), /ready (and the engine is healthy now),
/verdict (JSON) and /metrics. An engine that is started anew is judged anew; a verdict that holds is taken again daily,
when nobody uses the engine.

exit, with --once: 0 holds, 1 broken, 3 no evidence"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument("release", metavar="DIR", help="folder of the rendered release that the engine runs")
    verb.add_argument("--listen", metavar="ADDRESS:PORT", default="127.0.0.1:9488", help="default: %(default)s")
    log = verb.add_mutually_exclusive_group()
    log.add_argument("--pod-log", metavar="CONTAINER", help="read the boot log of this container of our own pod")
    log.add_argument("--log", metavar="FILE", help="read the boot log from a file")
    verb.add_argument("--once", action="store_true", help="wait for one verdict, print it, and end")
    verb.add_argument(
        "--recheck",
        type=positive,
        metavar="HOURS",
        default=24.0,
        help="take a verdict that holds again after so long (default: 24)",
    )
    probing(verb)
