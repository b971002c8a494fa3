"""A scrape of 20 endpoints, each with a guard and a busy engine: how long it takes, and how much memory there is.

Asked as Prometheus asks (OpenMetrics, gzip), with nothing new and with other values of every engine each time. Beside
it, in the same run: a trivial exporter of prometheus-client, with as many gauges. CPU is that of the whole process, its
client included: it tells more than the clock where others work.

usage: python benchmarks/exporter_scrape.py [ENDPOINTS [SCRAPES]]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from archonctl.deployment.load import load_endpoint
from archonctl.observe.board import Board
from archonctl.observe.catalogue import engine_samples
from archonctl.observe.exporter import Looker
from archonctl.observe.failures import tellers
from archonctl.observe.refusals import METRIC, guard_kinds, logged_kinds
from archonctl.observe.serve import serving
from archonctl.observe.values import sample
from archonctl.release.render import command_of, render_release
from archonctl.release.store import CURRENT, write_release
from archonctl.service.installed import Installed
from archonctl.service.unit import UnitState

REPOSITORY = Path(__file__).resolve().parent.parent
AS_PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    "Accept-Encoding": "gzip",
}
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


def busy(board: Board, name: str, value: float = 0.5) -> None:
    """What no look can see here: an engine that runs, a journal that was read, a guard."""
    board.put(name, "engine", [sample(row.metric, name, value=value) for row in engine_samples("radiance")])
    failed = [(name, *said) for said in tellers("radiance")]
    lines = [sample("archon_memory_failures_total", *each, value=3) for each in failed]
    lines += [sample("archon_memory_failure_timestamp_seconds", *each, value=1.78e9) for each in failed]
    lines += [sample(METRIC, name, kind.cls, kind.reason, "engine", value=1) for kind in logged_kinds("vllm")]
    board.put(name, "journal", lines)
    turned = [sample(METRIC, name, kind.cls, kind.reason, "guard", value=1) for kind in set(guard_kinds().values())]
    board.put(name, "guard", turned)


def p99(seconds: list[float]) -> float:
    """Of so many."""
    return sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]


def timed(url: str, scrapes: int, label: str, before: Callable[[int], None] = lambda _number: None) -> list[float]:
    """Seconds of each scrape of ``url``; ``before`` each of them something happens that is not counted."""
    seconds, cpu = list[float](), list[float]()
    size = 0
    for number in range(scrapes):
        before(number)
        began, began_cpu = time.perf_counter(), time.process_time()
        with urlopen(Request(url, headers=AS_PROMETHEUS)) as answer:
            size = len(answer.read())
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    clocks = (
        (name, statistics.median(each) * 1000, p99(each) * 1000) for name, each in (("clock", seconds), ("CPU", cpu))
    )
    words = "   ".join(f"{name} p50 {half:6.2f} ms p99 {worst:6.2f} ms" for name, half, worst in clocks)
    print(f"{label:34} {size:8,} bytes   {words}")
    return cpu


def main(endpoints: int = 20, scrapes: int = 300) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        board, found = Board(), install(Path(folder), endpoints)
        looker = Looker(board, lambda: found, lambda _each: UP, lambda _words: None)
        looker.once(wait_s=60)
        for each in found:
            busy(board, each.name)
        samples = len(board.samples())
        print(f"{endpoints} endpoints, {samples:,} samples, {rss_mib():.0f} MiB resident")

        def moved(number: int) -> None:
            for each in found:
                busy(board, each.name, number)

        with serving(board, "127.0.0.1", 0) as port:
            url = f"http://127.0.0.1:{port}/metrics"
            timed(url, scrapes, "archonctl exporter, nothing new")
            ours = timed(url, scrapes, "archonctl exporter, engines moved", moved)
        print(f"after {scrapes} scrapes {rss_mib():.0f} MiB resident")
        registry = CollectorRegistry()
        gauge = Gauge("other", "As many samples", ["a", "b", "c"], registry=registry)
        for index in range(samples):
            gauge.labels(str(index), "x", "y").set(index)
        server, thread = start_http_server(0, "127.0.0.1", registry)
        own = timed(f"http://127.0.0.1:{server.server_port}/metrics", scrapes, "prometheus-client's own gauges")
        server.shutdown()
        thread.join()
        print(
            f"ratio of CPU: p50 {statistics.median(ours) / statistics.median(own):.2f}, p99 {p99(ours) / p99(own):.2f}"
        )
        looker.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
