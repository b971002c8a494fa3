"""Options of ``archonctl guard``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint, positive, whose

NOTES = """\
examples:
  archonctl guard tiny                         clients ask 127.0.0.1:8080, the engine is asked by the guard
  archonctl guard archon --listen '[::]:8080' --keys /etc/archon/guard/archon.keys
  curl -s http://127.0.0.1:9488/health         what is held, who waits; /metrics for Prometheus
  systemctl enable --now archon-guard@archon   as a service, without privileges

It stands in the request path, which nothing else of archonctl does. A request that can never fit is refused with the
numbers, one that does not fit now waits for its turn, and everything else passes byte by byte. Where the capacity is
not known it passes and counts. SIGTERM lets running answers end.

exit: 0 stopped, 2 usage, declaration or keys, 5 if it cannot listen"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    whose(verb)
    group = verb.add_argument_group("where")
    group.add_argument(
        "--listen", default="127.0.0.1:8080", metavar="ADDRESS:PORT", help="for clients (default: %(default)s)"
    )
    group.add_argument(
        "--admin",
        default="127.0.0.1:9488",
        metavar="ADDRESS:PORT",
        help="for the guard's own /health and /metrics, 'off' for none (default: %(default)s)",
    )
    group = verb.add_argument_group("clients")
    group.add_argument(
        "--keys",
        metavar="FILE",
        help="NAME:KEY or NAME:sha256:HEX a line; default: the credential 'keys', else the engine judges keys",
    )
    _number(group, "--per-client", "N", 128, "requests of one client at once, waiting ones included")
    _number(group, "--connections", "N", 1024, "connections at once")
    _number(group, "--max-body", "MIB", 16, "of one request")
    group = verb.add_argument_group("patience, in seconds")
    _number(group, "--wait", "S", 120, "in the queue for room, or for an engine that is away")
    _number(group, "--first", "S", 3600, "for the engine's first byte")
    _number(group, "--drain", "S", 600, "for running answers after SIGTERM")


def _number(group: argparse._ArgumentGroup, name: str, unit: str, default: int, text: str) -> None:
    group.add_argument(name, type=positive, metavar=unit, default=float(default), help=f"{text} (default: {default})")
