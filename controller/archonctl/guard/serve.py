"""The guard as a process: its sockets, its engine, what it follows, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import resource
import signal
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

import uvicorn
from prometheus_client import make_wsgi_app

from archonctl.errors import HostRefusal
from archonctl.guard.access import AccessLog, unread_line
from archonctl.guard.admission import Admission
from archonctl.guard.app import Clients, Guard
from archonctl.guard.forward import Forward
from archonctl.guard.limits import Limits
from archonctl.guard.metrics import GuardMetrics
from archonctl.guard.protocol import GuardProtocol
from archonctl.guard.tiering import Tiering, placing
from archonctl.guard.tokens import TokenCounter
from archonctl.guard.upstream import Upstream
from archonctl.guard.values import Capacity, Refusal
from archonctl.observe.serve import serving_app

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

BACKLOG = 1024
_OWN_FILES = 256
"""For everything else: its libraries, logs, looks at the engine, its own pages."""
_EVERY_S = 5.0
"""Between two looks at what was verified."""
_COUNT_S = 30.0
"""For one question to the engine's tokenizer."""


_END_UNANSWERED = frozenset({"llamacpp"})
"""Told to end, llama-server closes its queue of work and then its socket, and waits for requests that wait for that
queue (b11434 server.cpp ``shutdown_handler``, ``clean_up``, ``ctx_http.join``); direct clients wait with it."""


class Watch(Protocol):
    """Knows what the running release was verified to hold (``capacity.CapacityWatch``)."""

    async def refresh(self) -> Capacity:
        """Read it again. Never raises."""


@dataclass(frozen=True)
class Setup:
    """What is guarded, how, and where."""

    engine: str
    """The kind."""
    base: str
    """``http://host:port`` of the engine."""
    clients: Clients
    listen: tuple[str, int]
    admin: tuple[str, int] | None = None
    limits: Limits = field(default_factory=Limits)
    engine_key: str = ""
    ca_file: str = ""


@dataclass
class Running:
    """A guard that serves."""

    port: int
    admin_port: int | None
    admission: Admission
    server: uvicorn.Server

    def stop(self) -> None:
        """Take no more requests, end those that run, then end. From any thread."""
        self.server.should_exit = True


def allow_files(connections: int) -> None:
    """Let so many connections be open as far as this account may: each has one socket to its client, and two to the
    engine while it asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OWN_FILES + 3 * connections
    if soft != resource.RLIM_INFINITY and soft < wanted:
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises HostRefusal ``port-in-use``, ``listen-unavailable``."""
    try:
        info = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(info[0], socket.SOCK_STREAM)
    except (OSError, UnicodeError) as err:
        raise HostRefusal("listen-unavailable", f"cannot listen on {host!r}: {err}", where="--listen") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(info[4])
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as err:
        sock.close()
        code = "port-in-use" if err.errno == errno.EADDRINUSE else "listen-unavailable"
        why = f"{host} port {port}: {err.strerror or err}"
        raise HostRefusal(code, why, hint="choose another with --listen ADDRESS:PORT") from None
    return sock


async def serve(
    setup: Setup,
    watching: Callable[[Callable[[], None]], Watch],
    say: Callable[[str], None],
    on_ready: Callable[[Running], None],
    tiering: Tiering | None = None,
) -> None:
    """Serve until stopped, by a signal or by ``Running.stop``. Raises HostRefusal where it cannot listen.

    ``watching`` makes the watch; what it is given is to be called where another engine answers.
    """
    allow_files(setup.limits.connections)
    loop, away = asyncio.get_running_loop(), asyncio.Event()
    with bind(*setup.listen) as sock, AccessLog(say) as log:
        # inherited by each connection, for what is left to be sent once it is closing
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(setup.limits.write_s * 1000))
        ends = setup.engine in _END_UNANSWERED
        asks = Upstream(setup.base, setup.limits, setup.ca_file, ends_unanswered=ends)
        async with asks as upstream, AsyncExitStack() as stack:
            metrics = GuardMetrics()
            counter = TokenCounter(setup.engine, partial(_count, upstream, setup.engine_key), metrics=metrics)
            watch = watching(counter.forget)
            admission = Admission(await watch.refresh(), metrics=metrics)
            forward = Forward(setup.engine, upstream, setup.limits, metrics, setup.engine_key, away.set)
            placement = await stack.enter_async_context(
                placing(tiering, upstream, setup.engine_key, metrics.registry, log.put)
            )
            guard = Guard(
                forward,
                admission,
                counter,
                setup.clients,
                setup.limits,
                lambda line: log.put(line.text()),
                metrics.refused,
                placement,
                lambda error: log.put("defect: " + "".join(traceback.format_exception(error))),
            )
            with _admin(setup.admin, admission, loop) as admin_port:

                def unread(peer: str, refusal: Refusal) -> None:
                    metrics.refused(refusal)
                    log.put(unread_line(peer, refusal.status, refusal.code).text())

                server = uvicorn.Server(_config(guard, setup.limits, unread))
                running = Running(sock.getsockname()[1], admin_port, admission, server)
                follow = asyncio.create_task(_follow(watch, admission, away))
                ready = asyncio.create_task(_when_started(server, lambda: on_ready(running)))
                try:
                    with _signals_taken(server):
                        await server.serve(sockets=[sock])
                finally:
                    follow.cancel()
                    ready.cancel()
                    await asyncio.gather(follow, ready, return_exceptions=True)


def _config(guard: Guard, limits: Limits, unread: Callable[[str, Refusal], None]) -> uvicorn.Config:
    logging.getLogger("uvicorn").addHandler(logging.NullHandler())
    return uvicorn.Config(
        cast("uvicorn._types.ASGIApplication", guard),
        loop="none",
        http=GuardProtocol.bound(limits, unread),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,  # where a client comes from is what it is told apart by: nobody may claim another place
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=int(limits.idle_s),
        timeout_graceful_shutdown=max(1, int(limits.drain_s)),
        h11_max_incomplete_event_size=limits.head_bytes,
    )


async def _follow(watch: Watch, admission: Admission, away: asyncio.Event) -> None:
    """Keep to what was verified, and look sooner where the engine was away: it may be another one when it is back."""
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(away.wait(), _EVERY_S)
        if away.is_set():
            away.clear()
            await asyncio.sleep(1.0)
        admission.set_capacity(await watch.refresh())


async def _when_started(server: uvicorn.Server, then: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    then()


async def _count(upstream: Upstream, key: str, path: str, body: bytes) -> tuple[int, bytes]:
    return await upstream.ask("POST", path, body, key, within_s=_COUNT_S)


@contextlib.contextmanager
def _signals_taken(server: uvicorn.Server) -> Iterator[None]:
    """uvicorn ends in order at SIGINT and SIGTERM, and then raises them again: they have done what they were for."""

    def stop(*_: object) -> None:
        server.should_exit = True  # one that came before uvicorn listened for it

    try:
        before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread, where no signal arrives
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _admin(
    listen: tuple[str, int] | None, admission: Admission, loop: asyncio.AbstractEventLoop
) -> Iterator[int | None]:
    """The guard's own pages, on an address of their own: every path of the other one is the engine's."""
    if listen is None:
        yield None
        return
    with serving_app(_pages(admission, loop), *listen, "--admin") as port:
        yield port


def _pages(admission: Admission, loop: asyncio.AbstractEventLoop) -> WSGIApplication:
    metrics = make_wsgi_app(admission.metrics.registry)

    async def state() -> dict[str, object]:
        now = admission.snapshot()
        return {
            "status": "ok",
            "release": now.capacity.release,
            "window_tokens": now.capacity.window_tokens,
            "pool_tokens": now.capacity.pool_tokens,
            "slots": now.capacity.slots,
            "held_tokens": now.held_tokens,
            "in_flight": now.in_flight,
            "waiting": now.waiting,
        }

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return cast("Iterable[bytes]", metrics(environ, start))
        if path != "/health":
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics or /health\n"]
        try:
            body = json.dumps(asyncio.run_coroutine_threadsafe(state(), loop).result(5.0)).encode()
        except TimeoutError:
            start("503 Service Unavailable", [("Content-Type", "application/json")])
            return [b'{"status": "stuck"}']
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return app
