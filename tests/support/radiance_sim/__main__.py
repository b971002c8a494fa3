"""``python -m support.radiance_sim``: a SIMULATOR of radiance, see the package."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from support.radiance_sim.boot import boot
from support.radiance_sim.budget import Budget, Refused
from support.radiance_sim.config import Simulation, read
from support.radiance_sim.engine import Engine
from support.radiance_sim.flags import BadCommandLine, Options, parse
from support.radiance_sim.log import Log
from support.radiance_sim.server import NAME, Server
from support.radiance_sim.web import Web

FATAL = 70
USAGE = 2
"""What public 1.0.x exits with after a bad command line; later versions end as after any fatal error."""
MAX_BODY_MIB = 512


def main(argv: Sequence[str]) -> int:
    """Boot and serve until SIGTERM."""
    simulation, words = read(argv, os.environ)
    banner = f"radiance SIMULATOR {simulation.version}: no device and no model, only radiance's words and arithmetic"
    if list(words) == ["--version"]:
        sys.stdout.write(banner + "\n")
        return 0
    if set(words) & {"-h", "--help"}:
        sys.stderr.write(banner + "\nusage: radiance --model FILE [options]\n")
        return 0
    log = Log()
    log.say("I", banner)
    try:
        options = parse(words, simulation.release)
    except BadCommandLine as bad:
        log.say("E", str(bad))
        if simulation.release < (1, 1, 0):
            sys.stderr.write("usage: radiance --model FILE [options]\n")
            return USAGE
        return fatal(str(bad))
    log.ranks = options.number("--tp", 1)
    if options.values.get("--debug-graph"):
        log.say("I", "graph: 48 layers declared (SIMULATED); nothing is placed and nothing is served")
        return 0
    try:
        budget = boot(options, simulation, log)
        return asyncio.run(serve(budget, options, simulation, log))
    except Refused as refused:
        log.say("E", str(refused))
        return fatal(refused.reason)
    except OSError as err:
        return fatal(f"cannot listen on {options.text('--host')}:{options.number('--port')}: {err.strerror}")


def fatal(why: str) -> int:
    """Say it and give the exit code."""
    sys.stderr.write(f"radiance: fatal: {why}\n")
    return FATAL


async def serve(budget: Budget, options: Options, simulation: Simulation, log: Log) -> int:
    """Until SIGTERM or SIGINT: the step in flight is finished, streams end with an error, and the process goes."""
    engine = Engine(budget, options, simulation, (lambda said: log.say("I", said)) if log.steps else None)
    server = Server(engine, options, simulation)
    web = Web(server, f"{NAME}/{simulation.version}", options.number("--max-body-mib", MAX_BODY_MIB) * 1024 * 1024)
    host, port = options.text("--host", "0.0.0.0"), options.number("--port", 8000)
    listening = await asyncio.start_server(web.connection, host, port, limit=2**20, backlog=128)
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    steps = asyncio.create_task(engine.run())
    log.say("I", f"server: {server.model} on http://{host}:{port} (SIMULATOR)")
    await stop.wait()
    log.say("I", "server: stopping")
    engine.stop()
    await asyncio.sleep(0.05)
    listening.close()
    steps.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await steps
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
