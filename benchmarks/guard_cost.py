"""What the guard costs: requests through it and to the engine itself, side by side in one run, over loopback.

Three parts: latency at a fixed rate (with the real engine also over connections that the client keeps), streams
compared byte by byte with what the engine says, and the guard's memory over many requests. The engine is a real
llama-server with a tiny model, or tests/support/echo_engine.py: a simulator
that answers at once, for numbers that no model on a CPU reaches.

usage: python benchmarks/guard_cost.py [--server LLAMA_SERVER --model GGUF] [--rate 50] [--seconds 60]
                                       [--streams 10000] [--requests 100000]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tests"))

from support.echo_engine import expected_text  # noqa: E402
from support.guard_process import Process, Stand, free, guard_before, stand  # noqa: E402

CHAT = "/v1/chat/completions"
EVENTS, SIZE = 20, 60


@contextmanager
def simulated(folder: Path) -> Iterator[Stand]:
    """The guard before the simulator."""
    port = free()
    argv = [sys.executable, str(REPOSITORY / "tests/support/echo_engine.py"), str(port)]
    engine = Process(argv, folder / "engine.log", f"http://127.0.0.1:{port}", dict(os.environ))
    engine.start()
    try:
        with guard_before(engine, port, Path("/bin/true"), Path(__file__), folder) as both:
            yield both
    finally:
        engine.kill()


def share(found: list[float], part: float) -> float:
    """The value below which so much lies, in milliseconds."""
    found = sorted(found)
    return 1000 * found[min(len(found) - 1, int(part * len(found)))]


def session(*, keep: bool = False) -> aiohttp.ClientSession:
    """A client of both alike: it makes a connection a request, or keeps them (the simulator keeps none)."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=not keep, limit=0))


async def latency(both: Stand, rate: float, seconds: float, *, keep: bool = False) -> None:
    """Requests at a fixed rate to both, each in turn, whatever the answers take."""
    took: dict[tuple[str, str], list[float]] = {}
    body = {"messages": [{"role": "user", "content": "how long?"}], "max_tokens": 1}

    async def one(http: aiohttp.ClientSession, whom: str, url: str, stream: bool) -> None:
        began = time.perf_counter()
        async with http.post(url + CHAT, json={**body, "stream": stream}) as answer:
            first = await answer.content.readany()
            took.setdefault((whom, "first byte"), []).append(time.perf_counter() - began)
            assert answer.status == 200, (answer.status, first)
            await answer.read()
        took.setdefault((whom, "whole"), []).append(time.perf_counter() - began)

    async with session(keep=keep) as http:
        tasks, began = set(), time.perf_counter()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            for whom, url in (("engine", both.engine.url), ("guard", both.url)):
                tasks.add(asyncio.create_task(one(http, whom, url, number % 2 == 0)))
                await asyncio.sleep(0.5 / rate)  # not both at once: they would wait for each other
        await asyncio.gather(*tasks)
    for what in ("first byte", "whole"):
        engine, guard = took["engine", what], took["guard", what]
        for part, name in ((0.5, "p50"), (0.99, "p99")):
            direct, through = share(engine, part), share(guard, part)
            print(
                f"{what:10} {name}: engine {direct:7.2f} ms, guard {through:7.2f} ms,"
                f" added {through - direct:5.2f} ms, ratio {through / direct:.2f}"
            )


def body_of(prompt: str) -> tuple[dict[str, object], bytes]:
    """A request for a stream, and all its bytes."""
    asked = {"messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": 8}
    events = b""
    text = expected_text(prompt, EVENTS, SIZE)
    for number in range(EVENTS):
        choice = {"index": 0, "delta": {"content": text[number * SIZE : (number + 1) * SIZE]}, "finish_reason": None}
        event = {"id": "echo", "created": 1, "model": "echo", "object": "chat.completion.chunk", "choices": [choice]}
        events += b"data: " + json.dumps(event).encode() + b"\n\n"
    return {**asked, "simulate": {"pieces": EVENTS, "size": SIZE}}, events + b"data: [DONE]\n\n"


async def streams(both: Stand, count: int, at_once: int = 40) -> None:
    """Streams that are compared byte by byte."""
    wrong, size, left = 0, 0, iter(range(count))

    async def worker(http: aiohttp.ClientSession) -> None:
        nonlocal wrong, size
        for number in left:
            asked, expected = body_of(f"stream {number}")
            async with http.post(both.url + CHAT, json=asked) as answer:
                got = await answer.read()
            size += len(got)
            wrong += hashlib.sha256(got).digest() != hashlib.sha256(expected).digest()

    began = time.perf_counter()
    async with session() as http:
        await asyncio.gather(*(worker(http) for _ in range(at_once)))
    print(f"{count:,} streams, {at_once} at once: {size:,} bytes, {wrong} differ ({time.perf_counter() - began:.0f} s)")


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def memory(both: Stand, count: int, at_once: int = 32) -> None:
    """Many requests of many clients, and the guard's memory on the way."""
    assert both.guard.process is not None
    pid, done, left = both.guard.process.pid, 0, iter(range(count))
    print(f"memory: {rss_mib(pid):.1f} MiB before")

    async def worker(http: aiohttp.ClientSession) -> None:
        nonlocal done
        for number in left:
            asked = {"messages": [{"role": "user", "content": f"prompt {number} " * 20}], "max_tokens": 4}
            headers = {"Authorization": f"Bearer key-{number % 5000}"}
            async with http.post(both.url + CHAT, json=asked, headers=headers) as answer:
                await answer.read()
                assert answer.status == 200
            done += 1
            if done % max(1, count // 10) == 0:
                print(f"memory: {rss_mib(pid):.1f} MiB after {done:,} requests", flush=True)

    began = time.perf_counter()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        await asyncio.gather(*(worker(http) for _ in range(at_once)))
    print(f"{count / (time.perf_counter() - began):,.0f} requests/s, {at_once} at once")


async def everything(both: Stand, options: argparse.Namespace) -> None:
    """All parts; with a real engine the streams are the simulator's alone."""
    print("warming up:")
    await latency(both, options.rate, 2.0)
    for keep in (False, True)[: 1 + (options.server is not None)]:
        how = "connections are kept" if keep else "a connection a request"
        print(f"{options.rate:g} requests/s to each, for {options.seconds:g} s, {how}:")
        await latency(both, options.rate, options.seconds, keep=keep)
    if options.server is None and options.streams:
        await streams(both, options.streams)
    if options.requests:
        await memory(both, options.requests)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = ("-c", "8192", "-np", "8")
        made = stand(options.server, options.model, folder, *engine) if options.server else simulated(folder)
        with made as both:
            asyncio.run(everything(both, options))


if __name__ == "__main__":
    main()
