"""The archon endpoint from its shipped declarations to a verdict, on the radiance simulator: both eras, and faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from archonctl.service import procfs
from support.simulated_radiance import write_model, write_radiance

NAME = "qwen3.8-next-flash-fp8-iq4r-moe.rad"


class Result(Protocol):
    """What the command answered."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Archon:
    """The shipped declarations, with only what belongs to the machine replaced: program, paths, address, user."""

    run_cli: Callable[..., Result]
    folder: Path
    port: int

    def up(self, declaration: str, *words: str, version: str = "1.8.1", **simulate: object) -> Result:
        """``archonctl up env/<declaration>.toml --once`` on a simulator of ``version``."""
        program = write_radiance(self.folder, version=version, **simulate)
        here = {
            "engine.image": "",
            "engine.binary": program,
            "model.path": self.folder / "models" / NAME,
            "service.listen": f"127.0.0.1:{self.port}",
            "service.user": "",
        }
        sets = [word for key, value in here.items() for word in ("--set", f"{key}={value}")]
        env = {"ARCHON_STATE_DIR": str(self.folder / "state")}
        command = ("up", f"env/{declaration}.toml", "--foreground", "--once", *sets, *words)
        return self.run_cli(*command, env=env, timeout=150)

    @property
    def log(self) -> Path:
        """The engine's log of the archon endpoint."""
        return self.folder / "state" / "archon" / "boot.log"

    def left(self) -> list[int]:
        """Engines that still run."""
        return [s.pid for s in procfs.all_stats() if f"--port {self.port}" in procfs.command(s.pid, limit=4000)]


@pytest.fixture
def archon(run_cli: Callable[..., Result], tmp_path: Path, free_port: int) -> Archon:
    write_model(tmp_path / "models" / NAME)
    return Archon(run_cli, tmp_path, free_port)


def legs(done: Result) -> dict[str, dict[str, Any]]:
    return {leg["id"]: leg for leg in json.loads(done.stdout)["probe"]["legs"]}


def test_three_times_200_000_hold_with_the_host_pool_as_declared(archon: Archon) -> None:
    done = archon.up("archon", "--json")
    assert done.code == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "holds"
    found = legs(done)
    assert {found[name]["status"] for name in ("ledger", "engine-report", "capacity", "refusal", "alive")} == {"pass"}
    assert "3 x 200,000 tokens were held at once" in found["capacity"]["message"]
    assert archon.left() == []
    log = archon.log.read_text()
    assert "SIMULATOR" in log
    assert "(600000 tokens)" in log


def test_the_first_1_8_1_boot_is_refused_and_when_forced_found_broken_with_both_numbers(archon: Archon) -> None:
    short = ("--set", "engine.knobs.host-pool-mib=44928")
    done = archon.up("archon", *short)
    assert done.code == 4, done.stderr
    assert "contract-short" in done.stderr
    assert "+640 MiB" in done.stderr
    assert not archon.log.exists()
    done = archon.up("archon", *short, "--force", "--json")
    assert done.code == 1, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "broken"
    found = legs(done)
    assert "556,348 KV tokens, the contract needs 600,000: 43,652 short" in found["ledger"]["message"]
    assert found["health"]["status"] == found["generation"]["status"] == "pass"
    assert (found["capacity"]["status"], "HTTP 400" in found["capacity"]["message"]) == ("fail", True)
    assert "cut at least 43652 tokens" in found["capacity"]["message"]
    assert archon.left() == []


def test_the_pair_era_holds_on_1_2_0(archon: Archon) -> None:
    done = archon.up("archon-pair", "--leg", "admission", "--json", version="1.2.0")
    assert done.code == 0, done.stdout + done.stderr
    assert "607,740 KV tokens for 3 x 200,000" in legs(done)["ledger"]["message"]


def test_a_small_window_on_a_quick_engine_is_held_as_well(archon: Archon) -> None:
    done = archon.up("archon-pair", "--set", "contract.len=2000", "--force", "--json", version="1.2.0")
    assert done.code == 0, done.stdout + done.stderr
    assert legs(done)["capacity"]["status"] == "pass"


def test_what_was_foretold_of_the_cutover_is_scored(archon: Archon) -> None:
    done = archon.up("archon", "--leg", "admission", "--json")
    assert done.code == 0, done.stdout + done.stderr
    probe = json.loads(done.stdout)["probe"]
    found = {each["name"]: each for each in probe["predictions"]}
    assert set(found) == {"prefill_tps_43k", "kv_tokens"}
    assert found["kv_tokens"]["actual"] == 600_000
    assert found["kv_tokens"]["score"] == "hit"
    measured = found["prefill_tps_43k"]
    assert measured["actual"] == legs(done)["prefill"]["numbers"]["prefill_tps_43k"]
    env = {"ARCHON_STATE_DIR": str(archon.folder / "state")}
    told = archon.run_cli("predictions", "env/archon.toml", "--json", env=env)
    assert {each["name"] for each in json.loads(told.stdout)["predictions"]} == set(found)
    assert archon.run_cli("verdict", "replay", "archon", env=env).code == 0


def test_in_the_pair_era_a_small_pool_preempts_and_is_never_called_enough(archon: Archon) -> None:
    small = {"contract.len": 2000, "vram-kv-mib": 808, "vram-weights-mib": 26_000}
    sets = [w for k, v in small.items() for w in ("--set", f"{k if '.' in k else f'engine.knobs.{k}'}={v}")]
    done = archon.up("archon-pair", *sets, "--force", "--json", version="1.2.0")
    assert done.code == 1, done.stdout + done.stderr
    found = legs(done)
    assert found["ledger"]["code"] == "kv-tokens-short"
    assert found["capacity"]["status"] != "pass"


def test_knobs_of_the_pair_are_refused_on_1_8_1_before_anything_is_started(archon: Archon) -> None:
    done = archon.up("archon-pair", "--set", "engine.version=1.8.1")
    assert done.code == 4, done.stderr
    assert "knob-retired" in done.stderr
    assert "prefix-cache-host-mib" in done.stderr
    assert not (archon.folder / "state" / "archon-pair" / "boot.log").exists()


@pytest.mark.parametrize(
    ("version", "simulate", "said", "code"),
    [
        ("1.3.0", {}, "unknown option '--prefix-cache-mib'", "unknown-argument"),
        ("1.8.1", {"cards": 1}, "--tp 2 needs 2 devices", "devices-too-few"),
        ("1.8.1", {"card_mib": 24_000}, "SHORT BY", "budget-short"),
        ("1.8.1", {"fail": "exit"}, "a device was lost", "engine-start-failed"),
    ],
)
def test_an_engine_that_exits_70_is_told_with_its_words(
    archon: Archon, version: str, simulate: dict[str, object], said: str, code: str
) -> None:
    done = archon.up("archon", version=version, **simulate)
    assert done.code == 1, done.stderr
    for word in ("engine-exited-at-boot", "exit 70", said, code):
        assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert archon.left() == []


def test_a_kernel_that_pins_too_little_ends_the_boot_by_name(archon: Archon) -> None:
    limit = archon.folder / "pages_limit"
    limit.write_text("32252928\n")
    done = archon.up("archon", pages_limit=limit)
    assert done.code == 1, done.stderr
    assert "cannot be pinned" in done.stderr
    limit.write_text("52428800\n")
    assert archon.up("archon", "--leg", "ledger", pages_limit=limit).code == 0
