#!/usr/bin/env python3
"""A stand-in for an engine that misbehaves on demand: ``fake_engine.py BEHAVIOUR [--port N] [--once FILE]``.

Only what a test needs of an engine's outside: lines on stderr, a health path, an exit. For what an engine
really prints and answers there is the real one.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def say(text: str) -> None:
    """One line, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def serve(port: int, delay_s: float, once: str, late_s: float | None) -> None:
    """Health 503 until ``delay_s`` has passed and the file ``once`` is there, then 200.

    A last line only ``late_s`` after the first answer of 200.
    """
    began, late = time.monotonic(), [late_s] if late_s is not None else []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ready = time.monotonic() - began >= delay_s and (not once or os.path.exists(once))  # noqa: PTH110
            self.send_response(200 if ready else 503)
            self.end_headers()
            if ready and late:
                threading.Timer(late.pop(), say, ("the last line",)).start()
            self.wfile.write(b'{"status":"ok"}' if ready else b'{"error":{"message":"Loading model"}}')

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    say(f"listening on http://127.0.0.1:{port}")
    server.serve_forever()


def main() -> int:
    """Do as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("behaviour")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--once", default="")
    parser.add_argument("--late", type=float)
    args = parser.parse_args()
    if args.behaviour == "crash":
        say("loading")
        say("error: invalid argument: --no-such-flag")
        return 1
    if args.behaviour == "exit":
        return 3
    if args.behaviour == "killed":
        say("loading")
        os.kill(os.getpid(), signal.SIGKILL)
    if args.behaviour == "silent":
        time.sleep(1000)
    if args.behaviour == "hang":
        say("loading model")
        time.sleep(1000)
    if args.behaviour == "ignore-term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        say("ignoring SIGTERM")
        time.sleep(1000)
    if args.behaviour == "family":
        for _ in range(2):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(1000)
                os._exit(0)
        say("has a family")
        serve(args.port, args.delay, args.once, args.late)
    if args.behaviour == "flood":
        block = b"".join(b"line %d of a flood of words that nobody reads\n" % n for n in range(20000))
        if os.fork() == 0:
            while True:
                os.write(2, block)
        serve(args.port, args.delay, args.once, args.late)
    if args.behaviour == "closed":
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for the rest of this process
        os.close(1)
        os.close(2)
    if args.behaviour == "deaf":
        import socket

        listener = socket.create_server(("127.0.0.1", args.port))
        say("listening, not answering")
        time.sleep(1000)
        listener.close()
    serve(args.port, args.delay, args.once, args.late)
    return 0


if __name__ == "__main__":
    sys.exit(main())
