"""Whole command lines as people reported them, program and all: those that failed by a flag, and those that ran."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from archonctl.foreign.program import check_line

_FILE = Path(__file__).parents[2] / "golden" / "public_lines.txt"
LINES = [tuple(line.split(" | ")) for line in _FILE.read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("verdict", "engine", "version", "line", "source"), LINES)
def test_a_reported_command_line_is_judged_as_it_went(
    verdict: str, engine: str, version: str, line: str, source: str
) -> None:
    found = [one for one in check_line(engine, version, shlex.split(line)).findings if one.severity == "error"]
    assert bool(found) == (verdict == "bad"), (source, found)
