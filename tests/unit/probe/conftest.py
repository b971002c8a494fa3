"""Fixtures of the probe's tests."""

from __future__ import annotations

import pytest

from archonctl.probe import capacity, hold


@pytest.fixture
def one_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """For engines whose hold can never be proven: the tries after the first only take time."""
    monkeypatch.setattr(capacity, "ATTEMPTS", 1)
    monkeypatch.setattr(capacity, "QUICK_ATTEMPTS", 1)


@pytest.fixture
def quick_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence that stands still for half a second is stalled."""
    monkeypatch.setattr(hold, "STALL_S", 0.5)
