"""Image references: the engine's version by the tag, and whether a digest pins the image (``images.toml``)."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter

FLOATING = re.compile(
    r"|latest|nightly.*|main.*|master|edge|dev|stable|rolling|server|server-(cuda|rocm|vulkan|musa|intel)|full.*"
)
"""Tags that move by design; ``server`` is what llama.cpp's newest build is called."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Image:
    """One row."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    engine: str
    repository: str
    version: str
    source: str


@dataclass(frozen=True, slots=True)
class ImageName:
    """An image reference taken apart; ``digest`` is empty where there is none that pins it."""

    repository: str
    tag: str
    digest: str


@cache
def _rows() -> tuple[Image, ...]:
    data = tomllib.loads(Path(__file__).with_name("images.toml").read_text(encoding="utf-8"))
    return TypeAdapter(tuple[Image, ...]).validate_python(data["image"])


def parse_image(text: str) -> ImageName:
    """``registry:5000/name:tag@sha256:...`` as its parts. Source: the reference grammar of distribution/reference."""
    text = re.sub(r"^(docker|oci)://", "", text)
    name, _, digest = text.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = name, ""
    return ImageName(repository, tag, digest if _DIGEST.fullmatch(digest) else "")


def engine_version(engine: str, text: str) -> str:
    """The version of an engine that an image's tag names; empty where it does not say."""
    name = parse_image(text)
    for row in _rows():
        if row.engine == engine and re.fullmatch(row.repository, name.repository):
            found = re.search(row.version, name.tag)
            return found[1] if found else ""
    return ""


def is_known(engine: str, text: str) -> bool:
    """True for an image that is an engine's own, rather than a build of somebody's that may hold anything."""
    name = parse_image(text)
    return any(row.engine == engine and re.fullmatch(row.repository, name.repository) for row in _rows())


def why_unpinned(text: str) -> str:
    """Why an image is not pinned, in words; empty where a digest pins it."""
    name = parse_image(text)
    if name.digest:
        return ""
    if "@" in text:
        return "its digest is none (sha256: and 64 hex digits)"
    if FLOATING.fullmatch(name.tag):
        return (
            f"{f'the tag {name.tag}' if name.tag else 'no tag'} moves: tomorrow's start is not what was checked today"
        )
    return "a tag can be pushed again with other contents"
