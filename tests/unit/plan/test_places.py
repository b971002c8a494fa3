"""An error about a value names the line, the flag or the variable that set it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def declared(tmp_path: Path, repository: Path) -> Any:
    def write(old: str, new: str) -> Path:
        text = (repository / "env" / "archon.toml").read_text()
        assert old in text
        path = tmp_path / "mine.toml"
        path.write_text(text.replace(old, new, 1))
        return path

    return write


@pytest.mark.parametrize(
    ("old", "new", "code", "key"),
    [
        ("host-pool-mib = 45_568", 'host-pool-mib = "lots"', "knob-bad-value", "engine.knobs.host-pool-mib"),
        ("host-pool-mib = 45_568", "host-pol-mib = 45_568", "knob-unknown", "engine.knobs.host-pol-mib"),
        ('kv_dtype = "fp8"', 'kv_dtype = "int3"', "kv-dtype-unknown", "contract.kv_dtype"),
    ],
)
def test_a_bad_value_names_its_line(run_cli: Any, declared: Any, old: str, new: str, code: str, key: str) -> None:
    path = declared(old, new)
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if text.startswith(new))
    done = run_cli("plan", path)
    assert done.code == 2
    assert f"{code}: " in done.stderr
    assert f"mine.toml:{line}: {key}: " in done.stderr


def test_an_unknown_knob_is_suggested(run_cli: Any, declared: Any) -> None:
    done = run_cli("plan", declared("host-pool-mib = 45_568", "host-pol-mib = 45_568"))
    assert "did you mean host-pool-mib?" in done.stderr


def test_a_bad_flag_is_named_as_the_place(run_cli: Any) -> None:
    done = run_cli("plan", "env/archon.toml", "--set", "engine.knobs.host-pool-mib=lots")
    assert done.code == 2
    assert "flag --set" in done.stderr


def test_a_boot_whose_size_contradicts_its_tokens_is_refused(run_cli: Any, declared: Any) -> None:
    done = run_cli("plan", declared('kv_gib = "4.20"', 'kv_gib = "42.0"'))
    assert done.code == 2
    assert "boot-bad-value" in done.stderr
    assert "79.16 KiB a token" in done.stderr


@pytest.mark.parametrize("mib", [0, 38_527, 51_329, 60_000, 1_000_000])
def test_a_boot_too_far_away_says_nothing_about_today(run_cli: Any, mib: int) -> None:
    done = run_cli("plan", "env/archon.toml", "--set", f"engine.knobs.host-pool-mib={mib}", "--set", "host.profile=")
    assert done.code == 3, done.stdout
    assert "farther from it than 6,400 MiB" in " ".join(done.stdout.split())
