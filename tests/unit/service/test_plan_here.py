"""A plan beside the endpoint's own engine: what that holds now is free for its next start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.errors import HostRefusal
from archonctl.host.profile import Card, Host
from archonctl.service import lookup, plan_here

DECLARATION = """
[contract]
seqs = 2
len = 2048
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/bin/true"
knobs = { n-gpu-layers = 99 }
[model]
path = "%s"
[host]
detect = true
[service]
listen = "127.0.0.1:18201"
"""


@pytest.fixture
def loaded(tmp_path: Path, tiny_gguf: Callable[[str], Path]) -> LoadedEndpoint:
    path = tmp_path / "busy.toml"
    path.write_text(DECLARATION % tiny_gguf("llama"))
    return load_endpoint(path, {}, {})


def beside(monkeypatch: pytest.MonkeyPatch, *, free_mib: int | None, runs: bool | HostRefusal) -> None:
    """A card of 24 GiB that an engine fills."""
    card = Card(index=0, name="NVIDIA RTX A5000", total_mib=24_240, free_mib=free_mib, maker="nvidia", target="8.6")
    host = Host(source="sysfs", ram_mib=64_000, available_mib=free_mib, cards=(card,))
    monkeypatch.setattr(plan_here, "load_host", lambda _loaded: host)

    def found(_state: object) -> object:
        if isinstance(runs, HostRefusal):
            raise runs
        return object() if runs else None

    monkeypatch.setattr(lookup, "find_running", found)


def test_what_its_own_engine_holds_does_not_count_against_its_next_start(
    loaded: LoadedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(monkeypatch, free_mib=8, runs=True)
    plan = plan_here.plan_here(loaded)
    assert plan.verdict == "holds", plan.reasons
    assert any("its own engine runs" in note for note in plan.notes)


@pytest.mark.parametrize("runs", [False, HostRefusal("systemctl-failed", "no bus")], ids=["nothing runs", "unknown"])
def test_memory_that_somebody_else_holds_counts(
    loaded: LoadedEndpoint, monkeypatch: pytest.MonkeyPatch, runs: bool | HostRefusal
) -> None:
    beside(monkeypatch, free_mib=8, runs=runs)
    plan = plan_here.plan_here(loaded)
    assert plan.verdict != "holds"
    assert not any("its own engine runs" in note for note in plan.notes)


def test_a_plan_that_holds_asks_nobody(loaded: LoadedEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    beside(monkeypatch, free_mib=20_000, runs=HostRefusal("systemctl-failed", "must not be asked"))
    monkeypatch.setattr(lookup, "find_running", lambda _state: pytest.fail("it was asked"))
    assert plan_here.plan_here(loaded).verdict == "holds"
