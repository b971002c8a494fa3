"""Small engines to start, and the proof that nothing of them is left."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from archonctl.service.process import EngineProcess, StartSpec
from support.engines import FAKE_ENGINE, Launch, Mark


@pytest.fixture
def mark() -> Iterator[Mark]:
    """Kills what a failed test left behind."""
    found = Mark()
    yield found
    for pid in found.pids():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def launch(mark: Mark, tmp_path: Path) -> Iterator[Launch]:
    """``launch("crash", "--port", "1", detach=True)`` starts a fake engine; ``launch(argv=(...))`` anything."""
    started: list[EngineProcess] = []

    def start(*words: str, argv: tuple[str, ...] = (), grace_s: float = 30.0, **options: object) -> EngineProcess:
        argv = argv or (sys.executable, "-I", "-S", str(FAKE_ENGINE), *words)
        spec = StartSpec(argv, argv[0], mark.env, tmp_path / "boot.log", grace_s=grace_s, **options)  # type: ignore[arg-type]
        process = EngineProcess.launch(spec)
        started.append(process)
        return process

    yield start
    for process in started:
        process.hurry()
        process.close()
