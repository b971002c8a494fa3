"""A scrape of 20 endpoints: how long it takes, and how much memory the exporter has.

Beside it, in the same run and over the same server: prometheus-client's own gauges with as many samples.

usage: python benchmarks/exporter_scrape.py [ENDPOINTS [SCRAPES]]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from archonctl.deployment.load import load_endpoint
from archonctl.observe.board import Board
from archonctl.observe.exporter import Looker
from archonctl.observe.serve import serving
from archonctl.release.render import command_of, render_release
from archonctl.release.store import CURRENT, write_release
from archonctl.service.installed import Installed
from archonctl.service.unit import UnitState

REPOSITORY = Path(__file__).resolve().parent.parent
UP = UnitState("active", "running", "success", os.getpid(), 1, 0, 1, "i", "/x", "/x", 0, "loaded")


def rss_mib() -> float:
    """Resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def install(root: Path, count: int) -> list[Installed]:
    """So many endpoints like env/archon.toml below ``root``."""
    found = []
    for index in range(count):
        name = f"archon{index}"
        each = Installed(name, root)
        each.releases.mkdir(parents=True)
        loaded = load_endpoint(REPOSITORY / "env/archon.toml", {}, {})
        release = render_release(loaded, command_of(loaded), home=each.releases / CURRENT)
        write_release(release, each.releases)
        found.append(each)
    return found


@contextmanager
def timed(url: str, scrapes: int, label: str) -> Iterator[list[float]]:
    """Seconds of each scrape of ``url``."""
    seconds: list[float] = []
    size = 0
    for _ in range(scrapes):
        began = time.perf_counter()
        with urlopen(url) as answer:
            size = len(answer.read())
        seconds.append(time.perf_counter() - began)
    seconds.sort()
    p99 = seconds[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    print(f"{label:34} {size:9,} bytes   p50 {statistics.median(seconds) * 1000:6.2f} ms   p99 {p99 * 1000:6.2f} ms")
    yield seconds


def main(endpoints: int = 20, scrapes: int = 300) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        board, found = Board(), install(Path(folder), endpoints)
        looker = Looker(board, lambda: found, lambda _each: UP, lambda _words: None)
        looker.once(wait_s=60)
        samples = len(board.samples())
        print(f"{endpoints} endpoints, {samples:,} samples, {rss_mib():.0f} MiB resident")
        with (
            serving(board, "127.0.0.1", 0) as port,
            timed(f"http://127.0.0.1:{port}/metrics", scrapes, "archonctl exporter") as ours,
        ):
            pass
        print(f"after {scrapes} scrapes {rss_mib():.0f} MiB resident")
        registry = CollectorRegistry()
        gauge = Gauge("other", "As many samples", ["a", "b", "c"], registry=registry)
        for index in range(samples):
            gauge.labels(str(index), "x", "y").set(index)
        server, thread = start_http_server(0, "127.0.0.1", registry)
        with timed(f"http://127.0.0.1:{server.server_port}/metrics", scrapes, "prometheus-client's own gauges") as own:
            pass
        server.shutdown()
        thread.join()
        print(f"ratio of the medians: {statistics.median(ours) / statistics.median(own):.2f}")
        looker.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
