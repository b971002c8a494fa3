"""Refusals as an OpenAI client reads them."""

from __future__ import annotations

import json
from dataclasses import asdict

from archonctl.guard.values import Refusal


def error_body(refusal: Refusal) -> bytes:
    """The JSON body: OpenAI's error object, with the numbers beside it under ``capacity``."""
    numbers = {k: v for k, v in asdict(refusal).items() if k not in {"status", "code", "message"}}
    error = {"message": refusal.message, "type": "invalid_request_error", "param": None, "code": refusal.code}
    return json.dumps({"error": {**error, "capacity": numbers}}).encode()


def error_headers(refusal: Refusal) -> tuple[tuple[str, str], ...]:
    """What goes with it: ``Retry-After`` where a time is known."""
    return () if refusal.retry_after_s is None else (("Retry-After", str(refusal.retry_after_s)),)
