"""Telling systemd how a start goes: the status line of ``systemctl status``, and that more time is needed.

Protocol: sd_notify(3), a datagram to ``$NOTIFY_SOCKET``. (pystemd has the same, but a unit must start without it.)
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

STATUS_CHARS = 300


class Notifier:
    """Sends to the service manager that started this process; does nothing where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")

    def status(self, text: str, *, more_s: float = 0.0) -> None:
        """One line of status, printable. ``more_s``: the start may take so many seconds from now on."""
        shown = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
        line = shown[:STATUS_CHARS]
        self._send(f"STATUS={line}" + (f"\nEXTEND_TIMEOUT_USEC={int(more_s * 1e6)}" if more_s else ""))

    def ready(self, text: str) -> None:
        """The start is over (``Type=notify``)."""
        self._send("READY=1")
        self.status(text)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(text.encode("utf-8", "replace"), address)
