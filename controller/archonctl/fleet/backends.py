"""An endpoint on a host as a router sees it: where requests go, and what was verified of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BackendState = Literal["verified", "broken", "unknown"]


@dataclass(frozen=True, slots=True)
class Backend:
    """One endpoint on one host.

    ``address`` is ``host:port`` (``[v6]:port``) as the router reaches it, ``https`` whether TLS is spoken there.
    ``verified`` is True where the latest verdict on the running start holds, False where its contract is broken or it
    is down, None where nothing is known. ``capacity_seqs`` conversations of ``capacity_len`` tokens at once are what
    was verified, ``capacity_tokens`` the KV tokens that its boot log or its plan names; None where unknown, never 0.
    ``model`` is the id that requests name; ``metrics`` is ``host:port`` of the host's exporter; ``reason`` says in
    words why it is not verified.
    """

    host: str
    endpoint: str
    address: str
    verified: bool | None
    model: str = ""
    capacity_seqs: int | None = None
    capacity_len: int | None = None
    capacity_tokens: int | None = None
    engine: str = ""
    metrics: str = ""
    https: bool = False
    reason: str = ""

    @property
    def state(self) -> BackendState:
        """``verified``, ``broken`` or ``unknown``."""
        if self.verified is None:
            return "unknown"
        return "verified" if self.verified else "broken"
