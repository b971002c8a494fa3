"""What is written down beside each staged file, with a digest of itself: a half-written manifest is none."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import asdict, dataclass

from archonctl.tiers.prefix import Prefix

SCHEMA = "archonctl.staged/1"
_ID = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Staged:
    """A conversation whose KV cache lies in a verified file."""

    id: str
    """32 hexadecimal digits; the file is ``<id>.kv``."""
    fingerprint: str
    """Of the model, the engine and its arguments: no other engine may be given it."""
    tokens: int
    bytes: int
    sha256: str
    prefix: Prefix
    uses: int = 0
    at: float = 0.0
    """When it was staged, as Unix time."""

    @property
    def kv(self) -> str:
        """The name of the file."""
        return f"{self.id}.kv"

    @property
    def json(self) -> str:
        """The name of its manifest."""
        return f"{self.id}.json"


def is_id(word: str) -> bool:
    """True for what an id looks like."""
    return bool(_ID.fullmatch(word))


def dump(staged: Staged) -> bytes:
    """The manifest."""
    told = {"schema": SCHEMA, **asdict(staged)}
    return json.dumps({**told, "check": _check(told)}, sort_keys=True).encode()


def load(data: bytes) -> Staged:
    """Read a manifest. Raises ValueError for one that is cut short, changed or of another kind."""
    try:
        value = json.loads(data)
        check, schema = value.pop("check"), value["schema"]
        if schema != SCHEMA or check != _check(value):
            raise ValueError("not the digest that it names, or another schema")
        prefix = value["prefix"]
        staged = Staged(
            value["id"],
            str(value["fingerprint"]),
            _count(value["tokens"]),
            _count(value["bytes"]),
            value["sha256"],
            Prefix(_count(prefix["bytes"]), str(prefix["digest"]), tuple(str(each) for each in prefix["blocks"])),
            _count(value["uses"]),
            float(value["at"]),
        )
        if not (is_id(staged.id) and _SHA256.fullmatch(staged.sha256) and math.isfinite(staged.at) and staged.bytes):
            raise ValueError("no id, no digest or no size")
    except (AttributeError, KeyError, TypeError, RecursionError) as err:
        raise ValueError(f"no manifest: {err!r}") from None
    return staged


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _check(told: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
