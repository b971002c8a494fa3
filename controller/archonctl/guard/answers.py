"""Refusals as OpenAI's clients read them. Pure.

The error object is that of OpenAI's API reference (``error.message``, ``type``, ``param``, ``code``), which the
``openai`` package turns into BadRequestError, RateLimitError or InternalServerError by the status; the numbers lie
beside them, under ``error.capacity``. The package retries 429 and 5xx by itself and honours ``Retry-After``.
"""

from __future__ import annotations

import json

from archonctl.guard.values import Refusal

_INVALID = "invalid_request_error"
_TYPES = {400: _INVALID, 401: "authentication_error", 404: _INVALID, 413: _INVALID, 429: "rate_limit_error"}


def error_json(refusal: Refusal) -> dict[str, object]:
    """The body as plain values."""
    capacity: dict[str, object] = {
        "class": refusal.kv_class,
        "want_tokens": refusal.want_tokens,
        "budget_tokens": refusal.budget_tokens,
        "largest_max_tokens": refusal.largest_max_tokens,
        "retry_after_s": refusal.retry_after_s,
        "breakdown_tokens": dict(refusal.breakdown),
    }
    if refusal.want_tokens is not None and refusal.budget_tokens is not None:
        capacity["margin_tokens"] = refusal.budget_tokens - refusal.want_tokens
    error = {
        "message": refusal.message,
        "type": _TYPES.get(refusal.status, "server_error" if refusal.status >= 500 else _INVALID),
        "param": None,
        "code": refusal.code,
    }
    has_numbers = refusal.want_tokens is not None or refusal.budget_tokens is not None
    return {"error": {**error, "capacity": capacity} if has_numbers else error}


def error_body(refusal: Refusal) -> bytes:
    """The JSON body."""
    return json.dumps(error_json(refusal)).encode()


def error_headers(refusal: Refusal) -> tuple[tuple[str, str], ...]:
    """What goes with it: ``Retry-After`` in whole seconds where a time is known."""
    headers = [("Content-Type", "application/json")]
    if refusal.retry_after_s is not None:
        headers.append(("Retry-After", str(refusal.retry_after_s)))
    return tuple(headers)
