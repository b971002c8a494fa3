"""Facts of a model on the network, from the beginnings of its files: headers by range requests, nothing more."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from archonctl.errors import ModelError
from archonctl.model.blob import Blob
from archonctl.model.geometry import ModelFacts
from archonctl.model.gguf import SPLIT_NAME, read_gguf_file
from archonctl.model.gguf_cursor import MAGIC
from archonctl.model.hf_folder import CONFIG, INDEX, read_hf_files
from archonctl.model.other_formats import not_a_model
from archonctl.model.remote_address import Place, hub_endpoint, hub_place, parse_address
from archonctl.model.remote_cache import Entry, HeaderCache
from archonctl.model.remote_token import hub_token
from archonctl.model.remote_web import LIMITS, Limits, Part, Web
from archonctl.model.safetensors import parse_object

FIRST_BYTES = 256 * 1024
"""The first request: all of most safetensors headers and configs."""
STEP_BYTES = 1024 * 1024
LISTING_BYTES = 32 * 1024 * 1024
SINGLE = "model.safetensors"
_NO_LISTING = ("model-missing", "model-remote-failed", "model-remote-no-ranges", "model-header-hostile")
"""What a server that is no hub answers to the question for a list: then the usual names are tried."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


def inspect_remote(
    address: str,
    environ: Mapping[str, str] | None = None,
    limits: Limits = LIMITS,
    transport: httpx.AsyncBaseTransport | None = None,
) -> ModelFacts:
    """Facts of ``hf:org/name[@revision][/file]`` or of the file at an address.

    The environment gives HF_ENDPOINT, HF_TOKEN and its files, the proxies and the cache's folder. Raises ModelError:
    ``model-remote-address``, ``model-token-unusable``, those of ``Web.get``, of the readers of files and folders, and
    ``model-is-directory`` for a repository of several GGUF files.
    """
    environ = os.environ if environ is None else environ
    place = parse_address(address, environ)
    token = hub_token(environ) if place.hub else None
    with Web(place.hub, token, limits, transport) as web:
        files = RemoteFiles(place, web, HeaderCache.of(environ))
        return _facts(files, place.file)


def remote_models(address: str, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names of the GGUF models of a repository, as ``inspect_remote`` takes them. Raises ModelError as it does."""
    environ = os.environ if environ is None else environ
    place = parse_address(address, environ)
    token = hub_token(environ) if place.hub else None
    with Web(place.hub, token, LIMITS, None) as web:
        return tuple(_gguf_models(RemoteFiles(place, web, HeaderCache.of(environ)).names()))


def hub_commit(repo: str, revision: str, environ: Mapping[str, str] | None = None) -> str:
    """The commit that a revision is now; "" where the hub does not tell. Raises as ``inspect_remote``."""
    environ = os.environ if environ is None else environ
    place = hub_place(hub_endpoint(environ), repo, revision)
    with Web(place.hub, hub_token(environ), LIMITS, None) as web:
        return RemoteFiles(place, web, HeaderCache.of(environ)).commit()


@dataclass(slots=True)
class RemoteFiles:
    """A folder on the network, as ``Files``. What was read once is not asked for again."""

    place: Place
    web: Web
    cache: HeaderCache
    blobs: dict[str, RemoteBlob] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """The address as a person writes it."""
        return self.place.shown

    def shown(self, name: str) -> str:
        """The same, with a file."""
        return f"{self.place.shown}/{name}"

    @contextmanager
    def open(self, name: str) -> Iterator[Blob]:
        """One of its files; what was read of it is kept in the cache. Raises ModelError."""
        blob = self.blobs.get(name)
        if blob is None:
            blob = self.blobs[name] = self._begin(name)
        try:
            yield blob
        finally:
            blob.keep()

    def prefetch(self, names: Sequence[str]) -> None:
        """The beginnings of many files at once. One that fails is asked for again, and told, as it is opened."""
        wanted = [name for name in names if name not in self.blobs and self.cache.load(self.place.url(name)) is None]
        urls = [self.place.url(name) for name in wanted]
        for name, part in zip(wanted, self.web.get_many(urls, FIRST_BYTES), strict=True):
            if isinstance(part, Part):
                self.blobs[name] = self._blob(name, part)

    def has(self, name: str) -> bool:
        """True if the file is there."""
        try:
            with self.open(name):
                return True
        except ModelError as err:
            if err.code != "model-missing":
                raise
            return False

    def names(self) -> list[str]:
        """The names in the folder: as the hub lists them, else those that a model's folder would have.

        A revision that the hub lists as a commit becomes that commit, whose files never change.
        """
        listed = self._listed()
        if listed is not None:
            return sorted(name for name in listed if "/" not in name)
        found = [name for name in (CONFIG, INDEX) if self.has(name)]
        if INDEX not in found and self.has(SINGLE):
            found.append(SINGLE)
        if not found:
            message = f"has none of {CONFIG}, {INDEX} and {SINGLE}, and nothing lists its files"
            raise ModelError("model-missing", message, where=self.where, hint="correct the address, or name the file")
        return found

    def commit(self) -> str:
        """The commit that the hub names for the revision, or ""."""
        self._listed()
        return urlsplit(self.place.base).path.rstrip("/").rpartition("/")[2] if self.place.is_fixed else ""

    def _listed(self) -> list[str] | None:
        if not self.place.listing:
            return None
        try:
            said = parse_object(self._whole(self.place.listing), self.place.listing)
        except ModelError as err:
            if err.code not in _NO_LISTING:
                raise
            return None
        siblings, commit = said.get("siblings"), said.get("sha")
        if not isinstance(siblings, list):
            return None
        if isinstance(commit, str) and _COMMIT.fullmatch(commit) and not self.blobs:
            self._fix(commit)
        found = (each.get("rfilename") for each in siblings if isinstance(each, dict))
        return [name for name in found if isinstance(name, str) and 0 < len(name) < 1000] or None

    def _whole(self, url: str) -> bytes:
        known = self.cache.load(url) if self.place.is_fixed else None
        if known is not None and len(known.head) == known.size:
            return known.head
        part = self.web.get(url, 0, LISTING_BYTES)
        if part.size > len(part.data):
            message = f"has {part.size:,} bytes; at most {LISTING_BYTES:,} are read"
            raise ModelError("model-remote-failed", message, where=url)
        if self.place.is_fixed:
            self.cache.store(url, Entry(part.etag, part.size, part.data))
        return part.data

    def _fix(self, commit: str) -> None:
        endpoint, _, rest = self.place.listing.partition("/api/models/")
        shown = self.place.shown
        fixed = hub_place(endpoint, rest.rpartition("/revision/")[0], commit, self.place.file)
        self.place = Place(shown, fixed.base, fixed.file, fixed.listing, fixed.hub)

    def _begin(self, name: str) -> RemoteBlob:
        """From the cache: without a question where the revision is a commit, and after one byte's worth elsewhere."""
        url = self.place.url(name)
        known = self.cache.load(url)
        if known is not None and not self.place.is_fixed:
            part = self.web.get(url, 0, 1)
            known = known if (part.etag, part.size) == (known.etag, known.size) else None
        if known is None:
            return self._blob(name, self.web.get(url, 0, FIRST_BYTES))
        return self._blob(name, Part(0, known.head, known.size, known.etag), len(known.head))

    def _blob(self, name: str, part: Part, kept: int = 0) -> RemoteBlob:
        return RemoteBlob(self.shown(name), part.size, self, name, bytearray(part.data), part.etag, kept)


@dataclass(slots=True)
class RemoteBlob:
    """One remote file, as ``Blob``: ``head`` is what was read of its beginning, and grows as more is asked for."""

    path: str
    size: int
    files: RemoteFiles
    name: str
    head: bytearray
    etag: str
    kept: int = 0

    def read(self, count: int, position: int) -> bytes:
        """Up to ``count`` bytes; fewer only at the end of the file. Raises ModelError, as ``Web.get``."""
        end = min(position + count, self.size)
        while len(self.head) < end:
            start = len(self.head)
            want = min(max(end - start, STEP_BYTES), self.size - start)
            part = self.files.web.get(self.files.place.url(self.name), start, want)
            if part.size != self.size or part.etag != self.etag:
                message = f"changed while it was read: {self.size:,} bytes before, {part.size:,} now"
                raise ModelError("model-remote-lied", message, where=self.path, hint="try again")
            if not part.data:
                raise ModelError("model-remote-lied", f"sends nothing from byte {start:,} on", where=self.path)
            self.head += part.data
        return bytes(self.head[position:end])

    def keep(self) -> None:
        """Put what was read into the cache, where the server gave a validator for it."""
        if len(self.head) > self.kept and (self.etag or self.files.place.is_fixed):
            self.files.cache.store(self.files.place.url(self.name), Entry(self.etag, self.size, bytes(self.head)))
            self.kept = len(self.head)


def _facts(files: RemoteFiles, name: str) -> ModelFacts:
    if not name:
        return _folder(files)
    with files.open(name) as blob:
        if blob.size == 0:
            raise ModelError("model-empty", "the file is empty (0 bytes)", where=blob.path)
        start, size = blob.read(512, 0), blob.size
    if start.startswith(MAGIC):
        return read_gguf_file(files, name, files.shown(name))
    if name.endswith(".safetensors"):
        around = [each for each in (CONFIG, INDEX) if files.has(each)]
        return read_hf_files(files, [*around, name])
    if name in (CONFIG, INDEX):
        return _folder(files)
    raise not_a_model(files.shown(name), start, size)


def _folder(files: RemoteFiles) -> ModelFacts:
    names = files.names()
    if INDEX in names or any(name.endswith(".safetensors") for name in names):
        return read_hf_files(files, names)
    models = _gguf_models(names)
    if len(models) == 1:
        return read_gguf_file(files, models[0], files.shown(models[0]))
    if models:
        message = f"holds {len(models)} GGUF models"
        hint = f"name one of them, such as {files.shown(models[0])}"
        raise ModelError("model-is-directory", message, where=files.where, hint=hint)
    if CONFIG in names:
        return read_hf_files(files, names)
    message = f"none of its {len(names)} files is a model that this release reads"
    raise ModelError("model-format-unsupported", message, where=files.where, hint="use its GGUF or safetensors")


def _gguf_models(names: Sequence[str]) -> list[str]:
    """GGUF files that are models of their own: of a split one its first part, and no projectors for pictures."""
    found = []
    for name in names:
        part = SPLIT_NAME.match(name)
        if name.endswith(".gguf") and not name.startswith("mmproj") and (part is None or int(part["part"]) == 1):
            found.append(name)
    return found
