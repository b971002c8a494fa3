"""Store a release as the current one and place its drop-in, without a plan or a gate: also one that cannot hold.

usage: python -m support.place_release DECLARATION [ARGUMENT...]

The arguments are added to the rendered command line. systemd is not told. $ARCHON_STATE_DIR as for archonctl;
$PREFLIGHT_TEXT stands in for what a plan gives root to check.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from archonctl.deployment.load import load_endpoint
from archonctl.host.load import load_host
from archonctl.plan.build import plan_endpoint
from archonctl.release.preflight_file import preflight_text
from archonctl.release.render import command_of, render_release
from archonctl.release.store import CURRENT, write_release
from archonctl.service.state import state_dir


def main(declaration: str, *words: str) -> None:
    """Place it."""
    loaded = load_endpoint(Path(declaration), {}, {})
    command = command_of(loaded)
    releases = state_dir(os.environ) / loaded.name / "releases"
    command = replace(command, argv=(*command.argv, *words))
    plan = plan_endpoint(loaded)
    checks = os.environ.get("PREFLIGHT_TEXT") or preflight_text(
        loaded.name, loaded.endpoint.engine.kind, command, plan.forecast, load_host(loaded)
    )
    release = render_release(loaded, command, home=releases / CURRENT, preflight=checks)
    stored = write_release(release, releases)
    folder = Path(f"/etc/systemd/system/archon@{loaded.name}.service.d")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "10-release.conf").write_bytes(release.files["drop-in.conf"].content)
    print(stored.path)


if __name__ == "__main__":
    main(*sys.argv[1:])
