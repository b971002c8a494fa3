"""The fuzzing harness runs, and a few seconds of it find nothing. By hand it runs for as long as one likes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.optional  # atheris has wheels for x86_64 alone
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("target", ["ledger", "answer", "readers"])
def test_a_few_seconds_of_fuzzing_find_nothing(target: str, repository: Path, tmp_path: Path) -> None:
    harness = str(repository / "tests/fuzz/harness.py")
    options = ["-max_total_time=2", "-seed=1", "-timeout=60", "-rss_limit_mb=2048"]
    done = subprocess.run(
        [sys.executable, harness, target, str(tmp_path / "corpus"), *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done " in done.stderr
