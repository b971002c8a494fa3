"""From a declaration, options and credentials to what the guard serves with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Endpoint
from archonctl.errors import DeclarationError
from archonctl.guard.app import Clients
from archonctl.guard.auth import OwnKeys, PassThrough, read_keys
from archonctl.guard.capacity import CapacityWatch
from archonctl.guard.limits import Limits
from archonctl.guard.serve import Setup, Watch
from archonctl.probe.address import addresses, read_key
from archonctl.service.installed import Installed
from archonctl.service.preflight import split_listen

CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Where systemd puts what LoadCredential= names (systemd.exec(5))."""


def setup_of(
    endpoint: Endpoint, listen: str, admin: str, limits: Limits, keys: str | None, environ: Mapping[str, str]
) -> Setup:
    """What to serve; without ``keys`` the credential of that name. Raises DeclarationError, and HostRefusal
    ``listen-unavailable``.
    """
    found = addresses(endpoint.service)
    engine_key = read_key(endpoint.service.api_key_file)
    file = keys or _credential(environ, "keys")
    clients: Clients = OwnKeys(read_keys(Path(file)), engine_key) if file else PassThrough()
    return Setup(
        endpoint.engine.kind,
        found.own,
        clients,
        split_listen(listen),
        None if admin == "off" else split_listen(admin),
        limits,
        engine_key,
        found.ca_file,
    )


def started_json(name: str, setup: Setup, port: int, admin_port: int | None) -> dict[str, object]:
    """A guard that has begun to serve, under docs/schemas/guard-1.json."""
    return {
        "schema": "archonctl.guard/1",
        "endpoint": name,
        "engine": setup.base,
        "listen": _url(setup.listen[0], port),
        "admin": None if setup.admin is None or admin_port is None else _url(setup.admin[0], admin_port),
        "own_keys": isinstance(setup.clients, OwnKeys),
    }


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def with_credentials(loaded: LoadedEndpoint, environ: Mapping[str, str]) -> LoadedEndpoint:
    """The endpoint, with the credential ``engine-key`` in place of a key file that this account may not read."""
    if not (path := _credential(environ, "engine-key")):
        return loaded
    service = loaded.endpoint.service.model_copy(update={"api_key_file": path})
    return replace(loaded, endpoint=loaded.endpoint.model_copy(update={"service": service}))


def watching(
    loaded: LoadedEndpoint, installed: Installed | None, environ: Mapping[str, str], trouble: Callable[[str], None]
) -> Callable[[Callable[[], None]], Watch]:
    """Who knows what the running release was verified to hold, once it is told whom to call for another engine."""
    return lambda on_new_engine: CapacityWatch(loaded, installed, environ, on_new_engine, trouble)


def _credential(environ: Mapping[str, str], name: str) -> str:
    """Its path; empty where there is none. One that cannot be seen is an error: without keys everybody would get in."""
    if not (folder := environ.get(CREDENTIALS, "")):
        return ""
    try:
        return str(Path(folder, name)) if name in os.listdir(folder) else ""  # noqa: PTH208
    except OSError as err:
        why = f"the unit's credentials cannot be read: {err.strerror or err}"
        raise DeclarationError("guard-keys-invalid", why, where=folder) from None
