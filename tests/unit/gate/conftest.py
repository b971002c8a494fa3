"""``judge(text, name)``: the findings of one file, written into a fresh folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl.findings import Finding
from archonctl.gate.paths import Options, check_paths

Judge = Callable[..., tuple[Finding, ...]]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    def run(text: str | bytes, name: str, **options: object) -> tuple[Finding, ...]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        settings = Options(**{"verify_units": False, **options})  # type: ignore[arg-type]
        return check_paths([path], settings).findings

    return run


def codes(findings: tuple[Finding, ...], *severities: str) -> list[str]:
    """The codes found, of some severities or of all."""
    return [one.code for one in findings if not severities or one.severity in severities]
