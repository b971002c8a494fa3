"""Excerpts that are safe to show: secrets out, control characters out, bounded."""

from __future__ import annotations

import re

EXCERPT_CHARS = 400
_LOOK_AT = 64 * 1024
_TOKEN_SHAPES = (
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"),
    re.compile(r"\b(sk|hf|ghp|gho|glpat|xox[abp])[-_][A-Za-z0-9_-]{6,}"),
    re.compile(r"(?i)\b(api[-_]?key|token|secret|password|authorization)([\"']?\s*[:=]\s*[\"']?)[^\s\"',;}]{4,}"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Redactor:
    """Removes the given secrets, and whatever has the shape of one, from text that an engine sent."""

    def __init__(self, secrets: tuple[str, ...] = ()) -> None:
        self._secrets = tuple(sorted((s for s in secrets if s), key=len, reverse=True))

    def clean(self, text: str) -> str:
        """The text without secrets and without control characters (a terminal obeys those)."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = _TOKEN_SHAPES[0].sub(lambda m: f"{m[1]} ***", text)
        text = _TOKEN_SHAPES[1].sub(lambda m: f"{m[1]}-***", text)
        text = _TOKEN_SHAPES[2].sub(lambda m: f"{m[1]}{m[2]}***", text)
        return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)

    def excerpt(self, body: bytes | str, limit: int = EXCERPT_CHARS) -> str:
        """At most ``limit`` characters on one line. Cleaned before it is cut: half a key is a secret, too."""
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else body
        text = " ".join(self.clean(text[:_LOOK_AT]).split())
        return text if len(text) <= limit else text[: limit - 1] + "…"
