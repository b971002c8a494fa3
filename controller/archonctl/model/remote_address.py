"""Where a remote model is: an address taken apart, and the addresses of its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from archonctl.errors import ModelError

DEFAULT_ENDPOINT = "https://huggingface.co"
DEFAULT_REVISION = "main"
_REPOSITORY = re.compile(
    r"hf:(?P<repo>[A-Za-z0-9][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9][A-Za-z0-9_.-]{0,95})"
    r"(?:@(?P<revision>refs/(?:pr|convert)/[A-Za-z0-9_.-]{1,100}|[A-Za-z0-9_.-]{1,200}))?"
    r"(?:/(?P<file>[^\s?#\\]{1,1000}))?"
)
_HUB_PATH = re.compile(r"/([^/]+/[^/]+)(?:/(?:resolve|blob)/([^/]+)/(.+))?/?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder on the network. ``base`` ends with "/"; ``listing`` is the address that lists it, "" where none does.

    ``shown`` is its name for messages; ``file`` the one file that is meant, "" for the folder.
    """

    shown: str
    base: str
    file: str = ""
    listing: str = ""
    hub: str = ""
    """The hub's own part of addresses ("https://host"): where its token may go; "" for any other server."""

    def url(self, name: str) -> str:
        """The address of one of its files."""
        parts = urlsplit(self.base)
        query = parts.query if name == self.file else ""
        return urlunsplit((parts.scheme, parts.netloc, parts.path + quote(name), query, ""))

    @property
    def is_fixed(self) -> bool:
        """True where the revision is a commit, whose files never change."""
        return bool(self.hub) and _COMMIT.fullmatch(urlsplit(self.base).path.rstrip("/").rpartition("/")[2]) is not None


def hub_endpoint(environ: Mapping[str, str]) -> str:
    """HF_ENDPOINT without a slash at its end, or the public hub. Raises ModelError ``model-remote-address``."""
    text = environ.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_ENDPOINT
    _checked(text, "HF_ENDPOINT")
    return text


def parse_repository(text: str) -> tuple[str, str, str]:
    """Repository, revision and file ("" for none) of ``hf:...``. Raises ModelError ``model-remote-address``."""
    found = _REPOSITORY.fullmatch(text)
    if found is None or ".." in text:
        raise _wrong(text[:200], "is not hf:ORG/NAME, hf:ORG/NAME@REVISION or hf:ORG/NAME@REVISION/FILE")
    return found["repo"], found["revision"] or DEFAULT_REVISION, found["file"] or ""


def parse_address(text: str, environ: Mapping[str, str]) -> Place:
    """Where ``hf:...`` or ``https://...`` points. Raises ModelError ``model-remote-address``."""
    endpoint = hub_endpoint(environ)
    if text.startswith("hf:"):
        return hub_place(endpoint, *parse_repository(text))
    parts = _checked(text, "the address")
    if _origin(text) == _origin(endpoint):
        under = parts.path.removeprefix(urlsplit(endpoint).path)
        if found := _HUB_PATH.fullmatch(under):
            return hub_place(endpoint, found[1], found[2] or DEFAULT_REVISION, found[3] or "")
    folder, _, name = parts.path.rpartition("/")
    if not name:
        raise _wrong(_shown(parts), "names no file")
    base = urlunsplit((parts.scheme, parts.netloc, f"{folder}/", parts.query, ""))
    # a name is quoted again as the address is made of it
    return Place(_shown(parts)[: -len(name)].rstrip("/"), base, _unquoted(name))


def hub_place(endpoint: str, repo: str, revision: str, file: str = "") -> Place:
    """A repository of the hub at a revision; a file below a folder of it makes that folder the place."""
    folder, _, name = file.rpartition("/")
    sub = f"/{folder}" if folder else ""
    return Place(
        shown=f"hf:{repo}@{revision}{sub}" if revision != DEFAULT_REVISION or sub else f"hf:{repo}",
        base=f"{endpoint}/{repo}/resolve/{quote(revision, safe='')}{quote(sub)}/",
        file=name,
        listing="" if sub else f"{endpoint}/api/models/{repo}/revision/{quote(revision, safe='')}",
        hub=_origin(endpoint),
    )


def may_carry_token(url: str, hub: str) -> bool:
    """True for an address of the hub itself, over TLS or within this machine."""
    parts = urlsplit(url)
    return bool(hub) and _origin(url) == hub and (parts.scheme == "https" or parts.hostname in _LOCAL_HOSTS)


def is_local(url: str) -> bool:
    """True for an address of this machine."""
    return urlsplit(url).hostname in _LOCAL_HOSTS


def without_query(url: str) -> str:
    """An address as it may be shown: a query may hold a signature."""
    try:
        return _shown(urlsplit(url))
    except ValueError:
        return "an address that cannot be understood"


def _checked(text: str, what: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as err:
        raise _wrong(what, f"cannot be understood: {err}") from None
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0 or len(text) > 8000:
        raise _wrong(what, "is no address of the form https://HOST/...")
    if parts.username is not None or parts.password is not None:
        raise _wrong(what, "holds a user or a password: a command line is seen by every user of the machine")
    if any(ord(c) <= 32 or ord(c) == 127 for c in text):
        raise _wrong(what, "holds blanks or control characters")
    return parts


def _origin(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    return f"{parts.scheme}://{parts.hostname}:{port}"


def _shown(parts: SplitResult) -> str:
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return urlunsplit((parts.scheme, f"[{host}]{port}" if ":" in host else f"{host}{port}", parts.path, "", ""))


def _unquoted(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)


def _wrong(where: str, message: str) -> ModelError:
    return ModelError("model-remote-address", message, where=where, hint="hf:ORG/NAME[@REVISION][/FILE] or https://...")
