"""``python -m archonctl``."""

from archonctl.cli.main import run

run()
