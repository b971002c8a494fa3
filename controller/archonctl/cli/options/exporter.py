"""Options of ``archonctl exporter``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import whose

NOTES = """\
examples:
  archonctl exporter                           on 127.0.0.1:9487, until it is stopped
  archonctl exporter --listen '[::]:9487'      where Prometheus on another machine reaches it
  archonctl exporter --once                    one look at everything, on stdout (for a textfile collector)
  archonctl exporter --print rules             alert and recording rules for Prometheus
  archonctl exporter --print dashboard         a dashboard for Grafana to import
  systemctl enable --now archon-exporter       as a service, without privileges

Engines, files and systemd are looked at in their own time: a dead or slow engine costs a scrape nothing, and
archon_look_age_seconds says how old what is shown is. Needs no privileges.

exit: 0, or 5 if it cannot listen"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    verb.add_argument(
        "endpoints", nargs="*", metavar="ENDPOINT", help="installed endpoints (default: all, also new ones)"
    )
    verb.add_argument(
        "--listen",
        default="127.0.0.1:9487",
        metavar="ADDRESS:PORT",
        help="where to serve /metrics (default: %(default)s)",
    )
    verb.add_argument(
        "--every", type=float, default=15.0, metavar="S", help="seconds between looks (default: %(default)g)"
    )
    verb.add_argument(
        "--print",
        dest="shown",
        choices=("rules", "rules-test", "dashboard"),
        help="print what ships for Prometheus or Grafana, and end",
    )
    verb.add_argument("--once", action="store_true", help="look once, print the metrics, end")
    whose(verb)
