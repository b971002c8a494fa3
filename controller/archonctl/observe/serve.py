"""``/metrics`` over HTTP, in Prometheus text or OpenMetrics as the scraper asks for it."""

from __future__ import annotations

import errno
import gc
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from archonctl.errors import HostRefusal
from archonctl.observe.board import Board
from archonctl.observe.endpoint_look import exporter_sample
from archonctl.observe.expose import BoardCollector
from archonctl.observe.rendered import rendering_app
from archonctl.service.install import shipped

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

IDLE_S = 10.0
"""How long a client may take over its request: a scrape is one line and a few headers."""
_CLIENTS = 32


class _Handler(WSGIRequestHandler):
    timeout = IDLE_S

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """A scrape every few seconds is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = _CLIENTS


class _Server6(_Server):
    address_family = socket.AF_INET6


_SHIPPED = {
    "rules": "prometheus/archon.rules.yml",
    "rules-test": "prometheus/archon.rules.test.yml",
    "dashboard": "grafana/archon.json",
}


def shipped_text(name: str) -> str:
    """What ships for Prometheus or Grafana."""
    return (shipped("observe") / _SHIPPED[name]).read_text(encoding="utf-8")


def registry(board: Board) -> CollectorRegistry:
    """What is shown: our metrics and nothing of the process's own."""
    found = CollectorRegistry()
    found.register(_collector(board))
    return found


def _collector(board: Board) -> BoardCollector:
    return BoardCollector(board, (exporter_sample(),))


def text(board: Board) -> str:
    """The board in Prometheus text, for a textfile collector or a look by hand."""
    return generate_latest(registry(board)).decode("utf-8")


def serving(board: Board, host: str, port: int) -> AbstractContextManager[int]:
    """The board over HTTP while the context lasts. Raises HostRefusal ``port-in-use``, ``listen-unavailable``."""
    gc.collect()
    gc.freeze()  # what is loaded by now stays; a round of the cycle collector over it costs a scrape 20 ms
    return serving_app(rendering_app(_collector(board)), host, port, "--listen")


@contextmanager
def serving_app(app: WSGIApplication, host: str, port: int, option: str) -> Iterator[int]:
    """A server that answers while the context lasts; gives its port. ``option`` is what names another one.

    Raises HostRefusal ``port-in-use``, ``listen-unavailable``.
    """
    kind = _Server6 if ":" in host else _Server
    try:
        server = make_server(host, port, app, kind, _Handler)
    except OSError as err:
        code = "port-in-use" if err.errno == errno.EADDRINUSE else "listen-unavailable"
        why = f"{host} port {port}: {err.strerror or err}"
        raise HostRefusal(code, why, hint=f"choose another with {option} ADDRESS:PORT") from None
    with server:
        thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
