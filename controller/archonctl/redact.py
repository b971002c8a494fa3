"""Excerpts that are safe to show: secrets out, control characters out, bounded."""

from __future__ import annotations

import re

EXCERPT_CHARS = 400
_LOOK_AT = 64 * 1024
_NAMES = r"api[-_ ]?keys?|access[-_]?key|secret|password|passwd|authorization|cookie"
_IS = r"[\"']?\s*[:=]\s*"
_SHAPES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(://)[^\s/@:]{1,200}:[^\s/@]{1,200}@"), r"\1***@"),
    (re.compile(r"([?&](?:key|sig|signature|auth)=)[^\s&\"']{4,}", re.I), r"\1***"),
    (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}", re.I), r"\1 ***"),
    (re.compile(r"\b(sk|hf|ghp|gho|glpat|xox[abp])[-_][A-Za-z0-9_-]{6,}"), r"\1-***"),
    # vLLM prints all keys of the server as a list
    (re.compile(rf"((?:{_NAMES}){_IS})\[[^\]\n]*\]?", re.I), r"\1[***]"),
    (re.compile(rf"((?:{_NAMES}){_IS}[\"']?)[^\s\"',;}}&]{{4,}}", re.I), r"\1***"),
    # not the number of a token, of which logs are full
    (re.compile(rf"((?<![a-z])token{_IS}[\"']?)(?!\d+\b)[^\s\"',;}}&]{{4,}}", re.I), r"\1***"),
    (re.compile(r"(--[a-z-]{0,40}(?:api-key|token|secret|password)\s+)(?!-)\S{4,}", re.I), r"\1***"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def without_secrets(text: str) -> str:
    """The text without whatever has the shape of a secret; the same again for what it returns."""
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text


class Redactor:
    """Removes the given secrets, and whatever has the shape of one, from text that an engine sent."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = tuple(sorted((s for s in secrets if s), key=len, reverse=True))

    def clean(self, text: str) -> str:
        """The text without secrets and without control characters (a terminal obeys those)."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", without_secrets(text))

    def excerpt(self, body: bytes | str, limit: int = EXCERPT_CHARS) -> str:
        """At most ``limit`` characters on one line. Cleaned before it is cut: half a key is a secret, too."""
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        text = " ".join(self.clean(text[:_LOOK_AT]).split())
        return text if len(text) <= limit else text[: limit - 1] + "…"
