"""A hub of models on this machine: repositories and files with ranges, and every way to answer them wrongly."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Request:
    """What came in."""

    path: str
    range: str
    token: str


@dataclass
class Hub:
    """``repos`` maps "org/name" to a folder. ``misbehave`` may answer a request itself and return True."""

    repos: dict[str, Path] = field(default_factory=dict)
    has_api: bool = True
    has_ranges: bool = True
    has_etags: bool = True
    needs_token: str = ""
    store: str = ""
    """Address of another server that files are sent on to, as the public hub does with large ones."""
    misbehave: Callable[[Handler], bool] | None = None
    requests: list[Request] = field(default_factory=list)
    url: str = ""

    def asked(self, part: str) -> list[Request]:
        """The requests whose path holds ``part``."""
        return [each for each in self.requests if part in each.path]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append(
            Request(
                self.path, self.headers.get("Range", ""), self.headers.get("Authorization", "").removeprefix("Bearer ")
            )
        )
        if hub.misbehave is not None and hub.misbehave(self):
            return
        if hub.needs_token and self.headers.get("Authorization") != f"Bearer {hub.needs_token}":
            self.reply(401, b"{}")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            self.listing(found[1], found[2])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(.+?)/([^/]+)", path):
            self.file(found[1], found[3])
        else:
            self.reply(404, b"Not found")

    def listing(self, repo: str, revision: str) -> None:
        """What the hub says of a repository."""
        folder = self.hub.repos.get(repo)
        if not self.hub.has_api or folder is None:
            self.reply(404, b'{"error": "Repository not found"}')
            return
        names = sorted(path.name for path in folder.iterdir())
        commit = revision if re.fullmatch("[0-9a-f]{40}", revision) else COMMIT
        body = {"id": repo, "sha": commit, "siblings": [{"rfilename": name} for name in names]}
        self.reply(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def file(self, repo: str, name: str) -> None:
        """A file, or the store's address of it."""
        path = self.hub.repos.get(repo, Path("/nonexistent")) / name
        if not path.is_file():
            self.reply(404, b"Entry not found")
            return
        size = path.stat().st_size
        etag = f'"{hashlib.sha256(f"{path}{size}{path.stat().st_mtime_ns}".encode()).hexdigest()[:16]}"'
        if self.hub.store:
            where = f"{self.hub.store}{self.path}?signature=secret"
            self.reply(302, b"", {"Location": where, "X-Linked-Etag": etag, "X-Linked-Size": str(size)})
            return
        self.part(path, size, {"ETag": etag} if self.hub.has_etags else {})

    def part(self, path: Path, size: int, headers: dict[str, str]) -> None:
        """Bytes of a file."""
        asked = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", self.headers.get("Range", ""))
        with path.open("rb") as file:
            if asked is None or not self.hub.has_ranges:
                self.reply(200, file.read(), headers)
                return
            first, last = int(asked[1]), min(int(asked[2]), size - 1)
            if first >= size:
                self.reply(416, b"", headers | {"Content-Range": f"bytes */{size}"})
                return
            file.seek(first)
            said = {"Content-Range": f"bytes {first}-{last}/{size}"}
            self.reply(206, file.read(last - first + 1), headers | said)

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        """One answer, whole. A client may hang up when it has enough."""
        try:
            self.send_response(status)
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            if "Content-Length" not in (headers or {}):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is no matter."""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The hub on a port of its own, until the end of the block."""
    handler = type("HubHandler", (Handler,), {"hub": hub})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        hub.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
