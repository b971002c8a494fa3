"""Where to probe, and with which key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from archonctl.deployment.schema import Endpoint, Service
from archonctl.errors import DeclarationError

_ANY = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "*": "127.0.0.1"}
_KEY_BYTES = 4096


def base_url(listen: str) -> str:
    """``http://host:port`` for a ``host:port`` that is listened on; any-address becomes this machine's loopback.

    Raises DeclarationError ``listen-invalid`` if the port is not one.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise DeclarationError(
            "listen-invalid", f"service.listen is {listen!r}, host:port with a port to 65535 is wanted"
        )
    return f"http://{_ANY.get(host, host)}:{int(port)}"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where to ask. ``own`` is the engine itself: health, tokenizer, metrics. ``public`` is where its clients go."""

    own: str
    public: str
    ca_file: str = ""

    @property
    def is_tls(self) -> bool:
        """True if clients speak TLS."""
        return self.public.startswith("https:")

    def base(self, path: str) -> str:
        """Clients' requests go where clients send them; a proxy need not pass on anything else."""
        return self.public if path.startswith("/v1/") else self.own


def speaks_tls(service: Service) -> bool:
    """True if the engine itself speaks TLS: ``public_url`` is https on the very port that is listened on."""
    return addresses(service).own.startswith("https:")


def addresses(service: Service) -> Addresses:
    """The addresses of an endpoint. Where ``public_url`` is https on the port that is listened on, the engine itself
    speaks TLS, and everything goes there. Raises DeclarationError ``listen-invalid``, ``public-url-invalid``.
    """
    own = base_url(service.listen)
    if not service.public_url:
        return Addresses(own, own)
    try:
        found = urlsplit(service.public_url)
        port = found.port or (443 if found.scheme == "https" else 80)
    except ValueError as err:
        raise DeclarationError("public-url-invalid", f"service.public_url is {service.public_url!r}: {err}") from None
    public = service.public_url.rstrip("/").removesuffix("/v1")
    speaks_tls = found.scheme == "https" and port == urlsplit(own).port
    return Addresses(public if speaks_tls else own, public, service.ca_file)


def read_key(path: str) -> str:
    """The API key in a file: one line, surrounding white space ignored. An empty path means no key.

    Raises DeclarationError ``api-key-file-invalid``; the message never holds the content.
    """
    if not path:
        return ""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_KEY_BYTES + 1)
    except OSError as err:
        raise DeclarationError(
            "api-key-file-invalid", f"the API key cannot be read: {err.strerror or err}", where=path
        ) from err
    text = raw.decode("ascii", "replace").strip()
    if not text:
        raise DeclarationError("api-key-file-invalid", "the API key file is empty", where=path)
    if len(raw) > _KEY_BYTES or not all("!" <= char <= "~" for char in text):
        raise DeclarationError(
            "api-key-file-invalid",
            f"the API key file holds {len(raw):,} bytes; one line of printable ASCII without spaces is wanted",
            where=path,
        )
    return text


def model_names(endpoint: Endpoint, id_from_file: bool) -> tuple[str, ...]:
    """Every id under which the declared model may be served; empty if the declaration does not say."""
    model = endpoint.model
    if model.served_name:
        return (model.served_name,)
    if not id_from_file:
        return ()
    path = Path(model.path)
    return tuple(dict.fromkeys((model.path, path.name, path.stem)))
