"""The hub's token: from the environment or from a file that only its user can read, never from a command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from archonctl.errors import ModelError

_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
_LARGEST_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Token:
    """A token and where it is from. Printing it shows the latter alone."""

    value: str = field(repr=False)
    source: str

    def __str__(self) -> str:
        return f"the token of {self.source}"


def hub_token(environ: Mapping[str, str]) -> Token | None:
    """HF_TOKEN, else the file HF_TOKEN_PATH, $HF_HOME/token or ~/.cache/huggingface/token; None without any.

    As huggingface_hub does (``utils/_auth.py``, ``constants.py``), with HF_HUB_DISABLE_IMPLICIT_TOKEN for none.
    Raises ModelError ``model-token-unusable``.
    """
    if environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").upper() in ("1", "ON", "YES", "TRUE"):
        return None
    if text := (environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN") or "").strip():
        return _checked(text, "HF_TOKEN")
    path = _file(environ)
    try:
        with path.open("rb") as file:
            raw = file.read(_LARGEST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as err:
        if "HF_TOKEN_PATH" not in environ:
            return None  # a home that this user may not read: not asked for
        raise ModelError("model-token-unusable", f"cannot be read: {err.strerror}", where=str(path)) from None
    text = raw.decode("utf-8", "replace").strip()
    return _checked(text, str(path)) if text else None


def _file(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("HF_TOKEN_PATH"):
        return Path(chosen)
    home = environ.get("HOME") or os.sep
    cache = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
    return Path(environ.get("HF_HOME") or f"{cache}/huggingface", "token")


def _checked(text: str, source: str) -> Token:
    if not _TOKEN.fullmatch(text):
        message = "holds blanks, line breaks or characters that no token has"
        raise ModelError("model-token-unusable", message, where=source, hint="write the token alone, on one line")
    return Token(text, source)
