"""The order of an engine's versions: builds of llama.cpp (``b11434``), dotted and PEP 440 versions of the others."""

from __future__ import annotations

import re
from functools import lru_cache

from packaging.version import InvalidVersion, Version

from archonctl.errors import UsageError

_EXAMPLES = {"llamacpp": "b11434", "radiance": "1.8.1", "vllm": "0.9.2", "sglang": "0.4.6.post1"}
_FLAVOUR = re.compile(r"(?<=[0-9])[-+][A-Za-z].*")
"""What an image tag appends to a version: ``v0.4.6.post1-cu124``, ``0.32.0+cpu``. It says nothing about flags."""


@lru_cache(maxsize=4096)
def version_key(engine: str, text: str) -> Version:
    """A version of an engine as something that can be compared.

    Raises UsageError ``engine-version-invalid``, and ``engine-version-missing`` for an empty one.
    """
    example = f"such as {_EXAMPLES.get(engine, '1.2.3')}"
    plain = text.strip()
    if not plain:
        raise UsageError(
            "engine-version-missing", f"flags depend on the version of {engine}, none is given", hint=example
        )
    try:
        if engine == "llamacpp":
            found = re.fullmatch(r"b?([0-9]{1,9})", plain)
            return Version(found[1] if found else "?")
        return Version(_FLAVOUR.sub("", plain) if not re.search(r"[-.]?(rc|post|dev|a|b)[0-9]+$", plain) else plain)
    except InvalidVersion:
        raise UsageError("engine-version-invalid", f"{text[:40]!r} is no version of {engine}", hint=example) from None
