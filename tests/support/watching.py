"""``archonctl watch`` over a simulated machine: ``python -m support.watching ROOT [N]``, in a terminal of its own."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path
from unittest import mock

from archonctl.cli.output import Output
from archonctl.cli.verbs import watch
from archonctl.service.installed import Installed
from support.simd import Simd


def main(root: str) -> int:
    """Until it is left."""
    simd = Simd(Path(root))
    given = os.environ.get("WATCHED", "")
    installed = [] if given == "none" else [Installed(simd.installed.name, simd.root)]
    args = Namespace(
        endpoints=[], every=0.2, once="--once" in sys.argv, json="--json" in sys.argv, user=False, color="auto"
    )
    with (
        mock.patch.object(watch, "all_installed", return_value=installed),
        mock.patch("archonctl.service.unit.show", lambda unit, **_: simd.show(unit)),
    ):
        return watch.run(args, Output.of(args))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
