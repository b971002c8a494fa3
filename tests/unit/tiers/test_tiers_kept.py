"""What outlives a guard: speeds that were measured, and no conversation longer than is said."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from archonctl.deployment.tiers import Tiers
from archonctl.tiers import measured as places
from archonctl.tiers.book import Conversation
from archonctl.tiers.counts import TierCounts
from archonctl.tiers.executor import Executor, Setup
from archonctl.tiers.filing import KEEP_S
from archonctl.tiers.measured import FILE, Measured, Speed, folders_of, kept_in, read_measured, write_measured
from archonctl.tiers.slots import SlotClient
from archonctl.tiers.speeds import Speeds
from archonctl.tiers.store import Store
from archonctl.tiers.upkeep import Upkeep
from support.staged import FINGERPRINT, prefix, saved, specs, stage

Planned = Callable[..., dict[str, Any]]


@pytest.fixture
def executor(tmp_path: Path) -> Any:
    async def nobody(*_: object) -> tuple[int, bytes]:
        raise OSError("no engine")

    store = Store(specs(tmp_path))
    yield Executor(Setup(Tiers(), lambda: None), SlotClient(nobody), store, TierCounts(CollectorRegistry()))
    store.close()


def test_a_guard_that_runs_for_weeks_lets_go_of_what_is_a_week_old(executor: Executor, tmp_path: Path) -> None:
    store, kept = executor.store, []
    for number, at in enumerate((time.time() - KEEP_S - 60, time.time())):
        id_, data = f"{number}" * 32, saved(8)
        (tmp_path / "dram" / f"{id_}.kv").write_bytes(data)
        staged = store.adopt(id_, 8, len(data), FINGERPRINT, prefix(), now=at)
        kept.append(Conversation(id_, prefix(), staged=staged, places=("dram",)))
        executor.book.know(kept[-1])
    asyncio.run(Upkeep(executor, None, lambda _: None).house())
    assert [(each.staged is not None, each.places) for each in kept] == [(False, ()), (True, ("dram",))]
    assert {each.stem for each in (tmp_path / "dram").iterdir()} == {"1" * 32}


def test_speeds_are_written_down_while_it_serves_and_known_to_the_next(executor: Executor, tmp_path: Path) -> None:
    upkeep = Upkeep(executor, tmp_path / "kept", lambda _: None)
    asyncio.run(upkeep.write())
    assert not (tmp_path / "kept").exists()  # nothing was measured
    executor.speeds.prefilled(1000, 2.0)
    executor.speeds.learn("dram", 1 << 30, 1.0)
    asyncio.run(upkeep.house())
    again = Speeds()
    again.recall(read_measured([tmp_path / "kept"]))
    assert again.measured() == executor.speeds.measured() == Measured({"dram": Speed(float(1 << 30))}, 500.0)
    (tmp_path / "kept" / FILE).unlink()
    (tmp_path / "kept").rmdir()
    (tmp_path / "kept").write_text("in the way")
    asyncio.run(upkeep.write())  # counted, not raised
    assert executor.counts._failures.labels("upkeep", "disk")._value.get() == 1


def test_the_first_failure_of_a_kind_is_told_with_its_cause_and_the_rest_are_counted() -> None:
    said: list[str] = []
    counts = TierCounts(CollectorRegistry(), said.append)
    for detail in ("Read-only file system", "again"):
        counts.failed("spill", "disk", detail)
    counts.failed("start", "adapters")
    assert said == [
        "tiers: spill: disk: Read-only file system (counted from now on)",
        "tiers: start: adapters (counted from now on)",
    ]


def test_what_the_guards_own_account_keeps_is_found_and_the_latest_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "GUARDS", tmp_path / "guards")
    state = tmp_path / "state" / "tiny"
    folders = folders_of("tiny", state, {})
    assert kept_in(state, {"STATE_DIRECTORY": str(tmp_path / "guards" / "tiny")}) == folders[1]
    assert kept_in(state, {}) == folders[0]
    for age, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / FILE).write_text(json.dumps(Measured({}, 100.0 + age).as_json()))
        os.utime(folder / FILE, (1000 - age, 1000 - age))
    assert read_measured(folders).prefill_tokens_per_s == 100
    (folders[0] / FILE).write_text("cut sho")
    assert read_measured(folders).prefill_tokens_per_s == 101
    assert folders_of("tiny", state, {"ARCHON_STATE_DIR": "x"}) == (state,)


@pytest.fixture
def planned(tmp_path: Path, tiny_gguf: Callable[..., Path], run_cli: Callable[..., Any]) -> Planned:
    """``planned(folder, *words)``: the answer of ``tiers plan`` for an endpoint whose host is not declared."""
    declaration = tmp_path / "tiny.toml"

    def plan(folder: Path, *words: str) -> dict[str, Any]:
        declaration.write_text(
            '[contract]\nseqs = 2\nlen = 1024\n[engine]\nkind = "llamacpp"\nversion = "b11434"\n'
            f'[model]\npath = "{tiny_gguf("llama")}"\n[tiers.dram]\npath = "{folder}"\ncapacity_mib = 64\n'
        )
        done = run_cli(
            "tiers",
            "plan",
            str(declaration),
            "--offline",
            "--json",
            *words,
            env={"ARCHON_STATE_DIR": str(tmp_path / "state")},
        )
        assert done.code in (0, 3), done.stderr
        return dict(json.loads(done.stdout))

    return plan


@pytest.mark.parametrize("how", ["long", "open to others", "a file"])
def test_a_folder_that_cannot_be_read_is_said_and_not_taken_for_an_empty_one(
    how: str, tmp_path: Path, planned: Planned
) -> None:
    folder = tmp_path / ("x" * 300 if how == "long" else "kv")
    if how == "a file":
        folder.touch()
    elif how == "open to others":
        folder.mkdir()
        folder.chmod(0o777)
    assert any("what is staged in dram" in each for each in planned(folder, "--set", "host.detect=true")["unknown"])


def test_what_is_staged_and_measured_counts_though_the_host_is_not_declared(tmp_path: Path, planned: Planned) -> None:
    store = Store(specs(tmp_path))
    size = store.entries[stage(store)].staged.bytes
    store.close()
    write_measured(tmp_path / "state" / "tiny", Measured({"dram": Speed(5e9), "disk": Speed(4e9)}))
    (_engine, dram) = planned(tmp_path / "dram")["tiers"]
    assert (dram["used_bytes"], dram["bandwidth_bytes_per_s"]) == (size, 5e9)
    assert [each["name"] for each in planned(tmp_path / "dram", "--set", "tiers.dram.capacity_mib=0")["tiers"]] == [
        "engine"
    ]
