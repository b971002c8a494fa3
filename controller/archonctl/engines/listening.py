"""Where an engine is told to listen."""

from __future__ import annotations

from archonctl.deployment.schema import Endpoint
from archonctl.errors import DeclarationError


def host_and_port(endpoint: Endpoint) -> tuple[str, int]:
    """``service.listen`` taken apart; brackets around an IPv6 address are for people only.

    Raises DeclarationError ``listen-invalid``.
    """
    host, _, port = endpoint.service.listen.rpartition(":")
    if not 1 <= int(port) <= 65_535:
        message = f"service.listen names port {port}; ports go from 1 to 65535"
        raise DeclarationError("listen-invalid", message, where="service.listen")
    return host.strip("[]"), int(port)


def is_published(endpoint: Endpoint) -> bool:
    """True for a container with a network of its own: its port is published on the address of ``service.listen``."""
    return bool(endpoint.engine.image) and endpoint.container.network != "host"


def bind(endpoint: Endpoint) -> tuple[str, int]:
    """The address and port for the engine's own arguments: every address, where the runtime publishes the port."""
    host, port = host_and_port(endpoint)
    return ("0.0.0.0" if is_published(endpoint) else host), port
