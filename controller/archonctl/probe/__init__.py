"""Real requests against a running engine, and the verdict that they and the ledger allow."""

import sys

# httpx brings a command line of its own, which imports click, rich and pygments wherever click is installed: 6 MiB and
# 50 ms of every verb that asks an engine. Where that module cannot be imported, httpx does without.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
