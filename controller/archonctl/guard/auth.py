"""Who a client is: known by a key of the guard's own, or told apart by what it shows to the engine.

A file of keys has a line a client, ``NAME:KEY`` or ``NAME:sha256:HEX``; ``#`` begins a comment. Several lines may have
one name (a key that is being changed).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from archonctl.errors import DeclarationError
from archonctl.guard.values import Refusal, Refused

Headers = Sequence[tuple[bytes, bytes]]

_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_KEY = re.compile(r"[!-~]{8,512}")
_HASH = re.compile(r"sha256:([0-9a-fA-F]{64})")
_CARRIERS = (b"authorization", b"x-api-key", b"api-key")
"""Where clients put a key: OpenAI, Anthropic, Azure."""
_OPEN = frozenset((("GET", "/health"), ("HEAD", "/health"), ("GET", "/ping"), ("HEAD", "/ping")))
"""Asked by load balancers; every engine answers them without a key."""


@dataclass(frozen=True)
class Client:
    """Who asks, and the headers to send on."""

    name: str
    headers: list[tuple[bytes, bytes]]


def read_keys(path: Path) -> tuple[tuple[str, bytes], ...]:
    """Names and SHA-256 digests of a file of keys. Raises DeclarationError ``guard-keys-invalid``, never with a key."""
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES + 1)
        lines = raw.decode("ascii").splitlines()
    except OSError as err:
        raise DeclarationError("guard-keys-invalid", err.strerror or str(err), where=str(path)) from None
    except UnicodeDecodeError:
        raise DeclarationError("guard-keys-invalid", "it is not ASCII", where=str(path)) from None
    if len(raw) > _FILE_BYTES:
        raise DeclarationError("guard-keys-invalid", f"it has more than {_FILE_BYTES:,} bytes", where=str(path))
    found = []
    for number, line in enumerate(lines, 1):
        if not (text := line.strip()) or text.startswith("#"):
            continue
        name, _, key = text.partition(":")
        hashed = _HASH.fullmatch(key)
        if not _NAME.fullmatch(name) or not (hashed or _KEY.fullmatch(key)):
            why = "NAME:KEY with 8 to 512 printable characters, or NAME:sha256:HEX, is wanted"
            raise DeclarationError("guard-keys-invalid", why, where=f"{path}:{number}")
        found.append((name, bytes.fromhex(hashed[1]) if hashed else hashlib.sha256(key.encode()).digest()))
    if not found:
        hint = "leave out --keys to let every client through that the engine lets through"
        raise DeclarationError("guard-keys-invalid", "it has no key: nobody could ask", where=str(path), hint=hint)
    return tuple(found)


class OwnKeys:
    """Only clients with a key of the file get in; the engine sees its own key, or none, in place of theirs."""

    def __init__(self, keys: Sequence[tuple[str, bytes]], engine_key: str = "") -> None:
        self._keys, self._engine_key = tuple(keys), engine_key

    def client(self, method: str, path: str, headers: Headers, _peer: str) -> Client:
        """Who asks. Raises Refused."""
        kept = [(name, value) for name, value in headers if name.lower() not in _CARRIERS]
        if method == "OPTIONS" or (method, path) in _OPEN:  # browsers ask OPTIONS without a key
            return Client("anybody", kept)
        name = self._name(_shown(headers))
        if self._engine_key:
            kept.append((b"Authorization", b"Bearer " + self._engine_key.encode()))
        return Client(name, kept)

    def _name(self, shown: bytes | None) -> str:
        if shown is None:
            raise Refused(Refusal(401, "key-missing", "a key is needed: Authorization: Bearer KEY"))
        digest, found = hashlib.sha256(shown).digest(), ""
        for name, known in self._keys:  # all of them, always: how long it takes tells nothing
            if hmac.compare_digest(digest, known):
                found = name
        if not found:
            raise Refused(Refusal(401, "key-unknown", "this key is not known here"))
        return found


class PassThrough:
    """The engine judges keys. Clients are told apart by a digest of what they show, else by where they come from."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(32)

    def client(self, _method: str, _path: str, headers: Headers, peer: str) -> Client:
        """Who asks: a digest that means nothing outside this process, or an address."""
        shown = _shown(headers)
        if shown is None:
            return Client(f"from-{peer}", list(headers))
        digest = hashlib.blake2b(shown, key=self._salt, digest_size=6).hexdigest()
        return Client(f"key-{digest}", list(headers))


def _shown(headers: Headers) -> bytes | None:
    for carrier in _CARRIERS:
        for name, value in headers:
            if name.lower() == carrier:
                scheme, _, key = value.strip().partition(b" ")
                return key.strip() if scheme.lower() == b"bearer" and key else value.strip()
    return None
