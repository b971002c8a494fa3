"""Real Prometheus: promtool, and a server that scrapes what a test serves."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free
from support.prometheus_server import Prometheus


@pytest.fixture(scope="session")
def promtool() -> str:
    """Debian's promtool."""
    found = shutil.which("promtool")
    if not found:
        pytest.skip("no promtool: apt-get install prometheus")
    return found


@pytest.fixture
def prometheus(tmp_path: Path, repository: Path) -> Iterator[tuple[Prometheus, int]]:
    """A server with the shipped rules, evaluated every second, and the port that it scrapes every second."""
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("no prometheus: apt-get install prometheus")
    own, scraped = free(), free()
    rules = (repository / "observe/prometheus/archon.rules.yml").read_text(encoding="utf-8")
    (tmp_path / "rules.yml").write_text(rules.replace("for: 1m", "for: 2s"))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": [{"job_name": "archon", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    words = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    log = (tmp_path / "log").open("wb")
    server = subprocess.Popen([program, *words, f"--web.listen-address=127.0.0.1:{own}"], stdout=log, stderr=log)
    try:
        found = Prometheus(f"http://127.0.0.1:{own}")
        for _ in range(1200):
            try:
                found.ask("status/buildinfo")
                break
            except OSError:
                assert server.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
        yield found, scraped
    finally:
        server.kill()
        server.wait()
        log.close()
