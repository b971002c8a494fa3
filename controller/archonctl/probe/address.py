"""Where to probe, and with which key."""

from __future__ import annotations

from pathlib import Path

from archonctl.deployment.schema import Endpoint
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
