"""A week of 50 endpoints in one report: how long the command takes, and how long a browser takes to open the page.

Every endpoint has three releases, a history and a verdict every six hours, each with its ledger and predictions.

usage: python benchmarks/report_50.py [ENDPOINTS [HOURS_BETWEEN_VERDICTS]]
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.chromium import PROGRAMS, chromium  # noqa: E402  the tests' own past and browser
from support.recorded import HOUR, record_week  # noqa: E402


def main(endpoints: int = 50, every_h: int = 6) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        root, page = Path(folder) / "root", Path(folder) / "all.html"
        for number in range(endpoints):
            record_week(root, f"endpoint-{number:02}", every_h * HOUR)
        files = sum(1 for _ in root.rglob("*-verify.json"))
        print(f"{endpoints} endpoints, {files:,} verdicts")
        environ = {**os.environ, "ARCHON_STATE_DIR": str(root / "var/lib/archon")}
        words = [Path(sys.executable).with_name("archonctl"), "report", "--all", "--html", page]
        took = []
        for _ in range(3):
            began = time.perf_counter()
            subprocess.run(words, env=environ, check=True, stdout=subprocess.DEVNULL)
            took.append(time.perf_counter() - began)
        print(f"archonctl report --all   median {statistics.median(took):6.2f} s   {page.stat().st_size:,} bytes")
        if any(map(shutil.which, PROGRAMS)):
            _open(page)
        else:
            print("no chromium: not opened")


def _open(page: Path) -> None:
    """Navigation to the load event, and to the first two frames after it."""
    with chromium() as tab:
        tab.size(1200)
        took = []
        for _ in range(5):
            began = time.perf_counter()
            tab.open(page.as_uri())
            tab.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
            took.append(time.perf_counter() - began)
        print(f"opened in chromium       median {statistics.median(took):6.2f} s   worst {max(took):.2f} s")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
