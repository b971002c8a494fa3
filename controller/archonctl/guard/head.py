"""The head of a request: what a proxy must not pass on, because the next reader could understand it otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence

from archonctl.guard.values import Refusal, Refused

Headers = Sequence[tuple[bytes, bytes]]

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
_HALF_ESCAPED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_ONCE = (b"host", b"content-length", b"transfer-encoding", b"content-type", b"authorization")


def check_head(method: str, target: str, version: str, headers: Headers) -> str:
    """Path and query to ask the engine for. Raises Refused.

    An absolute target is one for this server (RFC 9112, 3.2.2). Content-Length beside Transfer-Encoding is an attempt
    at smuggling (RFC 9112, 6.1), whoever would be fooled: nothing is sent on, and the connection is closed.
    """
    if version not in ("1.0", "1.1"):
        raise Refused(Refusal(505, "request-malformed", f"HTTP/{version[:8]} is not spoken here, HTTP/1.1 is"))
    if method not in _METHODS:
        raise Refused(Refusal(405, "method-not-allowed", f"{method[:20]} is not passed on"))
    names = [name.lower() for name, _ in headers]
    if b"content-length" in names and b"transfer-encoding" in names:
        why = "Content-Length and Transfer-Encoding are both given: where the body ends would depend on the reader"
        raise Refused(Refusal(400, "request-ambiguous", why))
    for name in _ONCE:
        if names.count(name) > 1:
            why = f"the header {name.decode()} is given {names.count(name)} times"
            raise Refused(Refusal(400, "request-ambiguous", why))
    if found := _ABSOLUTE.match(target):
        rest = target[found.end() :]
        target = rest if rest.startswith("/") else f"/{rest}"
    if not target.startswith("/") or "#" in target or "\\" in target:
        raise Refused(Refusal(400, "request-malformed", "the target of the request is no path"))
    if _HALF_ESCAPED.search(target.partition("?")[0]):  # cpp-httplib reads %u0063 as a letter, others do not
        why = "the path has a % that two hexadecimal digits do not follow (RFC 3986, 2.1)"
        raise Refused(Refusal(400, "request-malformed", why))
    return target


def stated_length(headers: Headers) -> int | None:
    """The body's length as stated; h11 has judged that it is a number."""
    stated = next((value for name, value in headers if name.lower() == b"content-length"), None)
    return int(stated) if stated is not None else None
