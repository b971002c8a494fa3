# Copyright: archonctl contributors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The lease that a rollout has of a host, as it lies there."""

from __future__ import annotations

import json
import time

FOLDER = "/run/archon/fleet"
LEASE = ".lease.json"


def read(path):
    """The lease that is there and not over; empty where there is none, or none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        return value if isinstance(value, dict) and float(value["until"]) > time.time() else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def told(lease):
    """Whose it is, since when and until when, for people."""
    return f"{lease.get('operator')}, since {moment(lease.get('since'))}, until {moment(lease.get('until'))},"


def moment(at):
    """Unix time in seconds as UTC."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(float(at)))
    except (TypeError, ValueError, OverflowError, OSError):
        return "an unknown time"
