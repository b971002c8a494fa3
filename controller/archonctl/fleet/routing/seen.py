"""From what ``fleet status`` saw of the hosts to backends. Pure, but for the declarations that are read."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from archonctl.deployment.load import load_endpoint
from archonctl.deployment.schema import Endpoint
from archonctl.errors import ArchonError, UsageError
from archonctl.fleet.backends import Backend
from archonctl.fleet.host_variables import FleetHost
from archonctl.fleet.inventory import Inventory

ROUTE, METRICS = "archon_route", "archon_metrics"
"""Host variables: ``{endpoint: host:port or URL}`` as a router reaches it, and ``host:port`` of the exporter."""

EXPORTER_PORT = 9487
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?):[0-9]{1,5}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_MOST = 1 << 40
_SCHEMA = "archonctl.fleet-hosts/1"
_WORDS = {"holds": True, "broken": False, "down": False}
"""Every other word of ``archonctl.status/1`` is unknown: nothing shows that it holds, nothing that it does not."""


def backends_seen(inventory: Inventory, value: object, where: str = "") -> tuple[Backend, ...]:
    """Every endpoint that a host has, or should have by the inventory, in the order of the hosts.

    A host that was not reached is unknown with all its endpoints. Raises UsageError ``fleet-status-unreadable``.
    """
    if not isinstance(value, dict) or value.get("schema") != _SCHEMA or value.get("action") != "status":
        raise UsageError(
            "fleet-status-unreadable",
            "this is not what archonctl fleet status --json printed",
            where=where,
            hint="archonctl fleet status -i INVENTORY --json > status.json",
        )
    said = {str(row.get("host")): row for row in _tables(value.get("hosts"))}
    return tuple(each for host in inventory.hosts for each in _of_host(host, said.get(host.name, {})))


def _of_host(host: FleetHost, said: Mapping[str, Any]) -> Iterator[Backend]:
    rows = {name: row for row in _rows(said.get("endpoints")) if _NAME.fullmatch(name := str(row.get("endpoint")))}
    declared = {each.name: each.declaration for each in host.endpoints}
    fault = said.get("fault")
    unseen = str(fault.get("message")) if isinstance(fault, dict) else str(said.get("word") or "it was not looked at")
    for name in sorted({*rows, *declared}):
        yield _backend(host, name, rows.get(name), _declared(declared.get(name)), unseen)


def _rows(value: object) -> Iterator[Mapping[str, Any]]:
    """The rows of each endpoint, in the answers of a host."""
    for row in _tables(value):
        if row.get("schema") == "archonctl.status/1":
            yield from _tables(row.get("endpoints"))
        else:
            yield row


def _tables(value: object) -> Iterator[Mapping[str, Any]]:
    """Part of it was said by a host: whatever else it may be, only tables of a list are looked at."""
    yield from (row for row in value if isinstance(row, dict)) if isinstance(value, list) else ()


def _backend(
    host: FleetHost, name: str, row: Mapping[str, Any] | None, declared: Endpoint | None, unseen: str
) -> Backend:
    listen = str((row or {}).get("listen") or (declared.service.listen if declared else ""))
    address, https = _address(host, name, listen)
    unknown = Backend(
        host=host.name,
        endpoint=name,
        address=address,
        verified=None,
        model=_model(declared, name),
        engine=declared.engine.kind if declared else str((row or {}).get("engine") or "").partition(" ")[0],
        metrics=_reachable(str(host.archon_vars.get(METRICS) or _joined(host.address, EXPORTER_PORT))),
        https=https,
        reason=unseen,
    )
    if row is None:
        return unknown
    word, seqs, length = str(row.get("word")), _count(row.get("seqs")), _count(row.get("len_tokens"))
    seen = replace(
        unknown,
        verified=_WORDS.get(word),
        reason=": ".join(filter(None, (word, str(row.get("remark") or "")))),
    )
    if not seen.verified:
        return seen
    tokens = seqs * length if seqs and length else None
    return replace(seen, capacity_seqs=seqs, capacity_len=length, capacity_tokens=tokens, reason="")


def _address(host: FleetHost, name: str, listen: str) -> tuple[str, bool]:
    """Where a router reaches it, and whether by TLS; empty where it listens on its own loopback only, or nowhere."""
    routes = host.archon_vars.get(ROUTE)
    declared = routes.get(name) if isinstance(routes, dict) else None
    if isinstance(declared, str) and declared:
        found = urlsplit(declared if "://" in declared else f"//{declared}")
        return _reachable(found.netloc), found.scheme == "https"
    own, _, port = listen.rpartition(":")
    own = own.strip("[]")
    if not port.isdigit() or own == "localhost":
        return "", False
    try:
        own_address = ipaddress.ip_address(own)
    except ValueError:
        return _reachable(listen), False
    if own_address.is_loopback:
        return "", False
    return _reachable(_joined(host.address, int(port)) if own_address.is_unspecified else listen), False


def _reachable(address: str) -> str:
    """The address if it is one. It goes into files of other programs, and part of it was said by a host."""
    return address if _ADDRESS.fullmatch(address) and int(address.rpartition(":")[2]) <= 65_535 else ""


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _model(declared: Endpoint | None, name: str) -> str:
    """The id that requests name: as served, else as engines make one up of the model's path."""
    if declared is None:
        return name
    path = declared.model.path
    if declared.engine.kind == "radiance":
        return declared.model.served_name or PurePosixPath(path).name
    return declared.model.served_name or path


@cache
def _declared(path: Path | None) -> Endpoint | None:
    """The declaration, where it can be read here: it only adds the model's id."""
    if path is None:
        return None
    try:
        return load_endpoint(path, {}, {}).endpoint
    except ArchonError:
        return None


def _count(value: object) -> int | None:
    """A figure that a host said, where it is one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else None


def endpoints_of(backends: Sequence[Backend]) -> dict[str, tuple[Backend, ...]]:
    """The backends of each endpoint, by its name."""
    names = sorted({each.endpoint for each in backends})
    return {name: tuple(each for each in backends if each.endpoint == name) for name in names}
