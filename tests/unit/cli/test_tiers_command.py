"""``archonctl tiers`` as a user types it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archonctl.tiers.store import Store
from support.staged import specs, stage

RunCli = Callable[..., Any]

DECLARATION = """
[contract]
seqs = 2
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
[model]
path = "/x/model.gguf"
[service]
listen = "127.0.0.1:8000"
[tiers.dram]
path = "{root}/dram"
[tiers.disk]
path = "{root}/disk"
"""


@pytest.fixture
def declared(tmp_path: Path) -> str:
    """A declaration whose folders hold one conversation."""
    store = Store(specs(tmp_path))
    stage(store)
    store.close()
    path = tmp_path / "staged.toml"
    path.write_text(DECLARATION.format(root=tmp_path))
    return str(path)


@pytest.mark.parametrize("hours", ["-1", "nan", "inf", "1e999", "soon", ""])
def test_an_age_that_is_none_removes_nothing(run_cli: RunCli, declared: str, tmp_path: Path, hours: str) -> None:
    done = run_cli("tiers", "clean", declared, f"--older-than={hours}")
    assert (done.code, "is no number of hours" in done.stderr) == (2, True)
    assert len([*(tmp_path / "dram").iterdir()]) == 2


def test_an_age_removes_what_is_older_and_nothing_else(run_cli: RunCli, declared: str, tmp_path: Path) -> None:
    assert run_cli("tiers", "clean", declared, "--older-than", "1").code == 0
    assert len([*(tmp_path / "dram").iterdir()]) == 2
    assert "1 conversation" in run_cli("tiers", "status", declared).stdout
    assert run_cli("tiers", "clean", declared, "--older-than", "0").code == 0
    assert not [*(tmp_path / "dram").iterdir()]


def test_a_folder_full_of_conversations_is_summed_up(
    run_cli: RunCli, declared: str, tmp_path: Path, tiny_gguf: Callable[..., Path]
) -> None:
    store = Store(specs(tmp_path))
    for _ in range(69):
        stage(store)
    store.close()
    words = ("--offline", "--set", f"model.path={tiny_gguf('llama')}", "--set", "tiers.prefill_tokens_per_s=900")
    done = run_cli("tiers", "plan", declared, *words)
    assert done.code == 0, done.stderr
    assert "  and 8 more (--json has them all): 8 keep" in done.stdout  # 70, and the contract's two


def test_the_disk_tier_that_an_upgrade_takes_away_is_told_in_seconds_of_prefill(
    run_cli: RunCli, repository: Path
) -> None:
    done = run_cli("tiers", "plan", str(repository / "env" / "archon-pair.toml"), "--to", "1.8.1", "--offline")
    assert done.code == 0, done.stderr
    assert "radiance 1.8.1 has no prefix-cache-disk-mib" in done.stdout
    assert "68,719,476,736 bytes" in done.stdout
    assert "1,257 to 1,438 s of prefill (21.0 min to 24.0 min)" in done.stdout
