"""Ports to listen on a little later."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

_LEAST = 20_000
_GIVEN: set[int] = set()
"""By this process already: what had a port may be asked at it again."""


def free() -> int:
    """A TCP port that nobody has, and that nobody is given by chance before it is used.

    The kernel gives one of a range to each connection and to each server that asks for any port (port 0): a port of
    that range may be gone a moment later, and a client that tries one again and again may even meet itself.
    """
    most = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(1000):
        port = random.randrange(_LEAST, max(most, _LEAST + 1000))
        if port not in _GIVEN:
            with suppress(OSError), socket.socket() as probe:
                probe.bind(("", port))
                _GIVEN.add(port)
                return port
    raise OSError(f"no free port between {_LEAST} and {most}")
