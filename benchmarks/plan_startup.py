"""How long `archonctl plan` takes from a cold process, against what it is made of.

usage: .venv/bin/python benchmarks/plan_startup.py [ROUNDS]

Every candidate runs once a round, one after the other, so that a slow moment of the machine hits all of them.
Printed: the median wall time of each, and its ratio to the floor (a process that defines one pydantic model).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMPILED = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Modules are compiled once and kept, as an installed package has them."""
ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
ARCHONCTL = Path(PYTHON).with_name("archonctl")
FLOOR = "one pydantic model"
CANDIDATES: dict[str, list[str]] = {
    "bare Python": [PYTHON, "-c", "pass"],
    "import pydantic": [PYTHON, "-c", "from pydantic import BaseModel"],
    FLOOR: [PYTHON, "-c", "from pydantic import BaseModel\nclass A(BaseModel):\n    x: int = 1\nA()"],
    "import pydantic_settings": [PYTHON, "-c", "import pydantic_settings"],
    "import httpx": [PYTHON, "-c", "import httpx"],
    "archonctl --version": [str(ARCHONCTL), "--version"],
    "archonctl plan (text)": [str(ARCHONCTL), "plan", "env/archon.toml", "--seqs", "3", "--len", "200000"],
    "archonctl plan --json": [str(ARCHONCTL), "plan", "env/archon.toml", "--json"],
}


def once(command: list[str]) -> float:
    """Seconds of one run; its output is thrown away."""
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=COMPILED)
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    for command in CANDIDATES.values():
        once(command)
    times: dict[str, list[float]] = {name: [] for name in CANDIDATES}
    for _ in range(rounds):
        for name, command in CANDIDATES.items():
            times[name].append(once(command))
    floor = statistics.median(times[FLOOR])
    print(f"{'':26} {'median':>9} {'best':>9}  ratio to {FLOOR!r}, {rounds} rounds")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:26} {median * 1000:6.0f} ms {min(seconds) * 1000:6.0f} ms  {median / floor:5.2f}")


if __name__ == "__main__":
    main()
