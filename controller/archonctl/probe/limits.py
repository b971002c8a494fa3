"""The bounds of a probe. Everything is bounded; tests shorten it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds unless the name says otherwise.

    ``generation_s`` bounds one short answer. ``floor_s`` and ``cap_s`` bound what the capacity legs derive from a
    measured prefill speed; a leg goes on for as long as no silence lasts ``floor_s``, up to ``cap_s``. ``hang_s`` is
    the least silence that is ever called a hang.
    """

    connect_s: float = 5.0
    read_s: float = 15.0
    tokenize_s: float = 60.0
    generation_s: float = 120.0
    calibrate_s: float = 180.0
    calibrate_s_per_token: float = 0.05
    floor_s: float = 120.0
    cap_s: float = 7200.0
    hang_s: float = 5.0
    idle_s: float = 30.0
    """How long to wait for the engine to become idle before full-height requests are sent."""
    patient_s: float = 3600.0
    """The same with ``--when-idle``."""
    settled_s: float = 3.0
    """With ``--when-idle``: how long it must stay idle before it counts as idle."""
    body_bytes: int = 4 * 1024 * 1024
    stream_bytes: int = 256 * 1024 * 1024
    contract_tokens: int = 100_000_000
    """Above this the prompts themselves would not fit in this machine's memory."""
