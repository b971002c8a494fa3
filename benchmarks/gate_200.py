"""How long the gate takes for 200 endpoints. The aim: under 2 s on two cores, the start of Python included.

python benchmarks/gate_200.py [COUNT]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
GOAL_S = 2.0


def declarations(folder: Path, count: int) -> None:
    """Copies of the archon endpoint with other numbers, beside what they point to."""
    text = (REPOSITORY / "env" / "archon.toml").read_text()
    for name in ("hosts", "models"):
        (folder / "env").mkdir(exist_ok=True)
        (folder / "env" / name).symlink_to(REPOSITORY / "env" / name)
    for number in range(count):
        mine = text.replace("prefix-cache-mib = 8192", f"prefix-cache-mib = {8192 - number}")
        (folder / "env" / f"endpoint-{number:03}.toml").write_text(mine)


def main() -> None:
    """Print the seconds, and whether the aim is met."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as name:
        declarations(Path(name), count)
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "archonctl", "gate", "env", "--json", "--no-environment"],
            cwd=name,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - start
    verdict = "met" if seconds <= GOAL_S * count / 200 else "missed"
    each_ms = 1000 * seconds / count
    print(f"{count} endpoints: {seconds:.2f} s, {each_ms:.1f} ms each, exit {done.returncode}; {verdict}")


if __name__ == "__main__":
    main()
