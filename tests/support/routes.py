"""A fleet as routing sees it: an inventory, and what its hosts said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archonctl.fleet.backends import Backend
from archonctl.fleet.host_variables import FleetHost
from archonctl.fleet.inventory import Inventory


def backend(host: str, address: str, verified: bool | None, seqs: int | None = 2, **more: Any) -> Backend:
    """One backend of the endpoint "chat", of 4,096 tokens a conversation where it is verified."""
    size = seqs if verified else None
    length = 4096 if size else None
    tokens = size * 4096 if size else None
    values: dict[str, Any] = {"endpoint": "chat", "model": "m", "engine": "llamacpp", **more}
    return Backend(host, values.pop("endpoint"), address, verified, values.pop("model"), size, length, tokens, **values)


def inventory(**hosts: Mapping[str, object]) -> Inventory:
    """Hosts with their ``archon_`` variables; the address of the n-th is 10.0.0.n."""
    found = tuple(
        FleetHost(name, address=f"10.0.0.{number}", archon_vars=values)
        for number, (name, values) in enumerate(hosts.items(), 1)
    )
    return Inventory(("inventory",), found, {})


def row(endpoint: str = "chat", word: str = "holds", **more: object) -> dict[str, object]:
    """An endpoint as ``archonctl status`` tells it."""
    common = {"seqs": 3, "len_tokens": 1000, "listen": "0.0.0.0:8000", "verdict_at": 1.8e9, "engine": "llamacpp b1"}
    return {"endpoint": endpoint, "word": word, **common, "remark": None, **more}


def told(**hosts: object) -> dict[str, object]:
    """``archonctl fleet status --json``: a list of rows a host, or the message of a fault."""
    rows = [
        {"host": name, "word": "checked", "fault": None, "endpoints": said}
        if isinstance(said, list)
        else {"host": name, "word": "unreachable", "fault": {"code": "x", "message": said}, "endpoints": []}
        for name, said in hosts.items()
    ]
    return {"schema": "archonctl.fleet-hosts/1", "action": "status", "hosts": rows}
