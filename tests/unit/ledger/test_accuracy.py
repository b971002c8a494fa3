"""Every miss over 1 % on the real boots is explained, and no explanation outlives its miss."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_miss_is_explained() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "accuracy"), "--all"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "NOT EXPLAINED" not in done.stdout
    assert "vllm" in done.stdout


def test_an_unexplained_miss_fails(tmp_path: Path) -> None:
    line = (
        '{"id": "new", "engine": "vllm", "engine_version": "0.11.0", "model_config": {"layers": 32, "kv_heads": 8, '
        '"head_dim": 128}, "log_lines": ["INFO [gpu_worker.py:298] Available KV cache memory: 10.00 GiB", '
        '"INFO [kv_cache_utils.py:1087] GPU KV cache size: 40,000 tokens"]}'
    )
    (tmp_path / "case.jsonl").write_text(line + "\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "accuracy"), str(tmp_path / "case.jsonl")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "new" in done.stderr
