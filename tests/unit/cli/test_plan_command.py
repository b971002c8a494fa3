"""``archonctl plan`` as people and tools see it, on the declarations that ship."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def plan_json(run_cli: Any) -> Any:
    def run(*args: str, code: int = 0) -> dict[str, Any]:
        done = run_cli("plan", *args, "--json")
        assert done.code == code, done.stderr
        value = json.loads(done.stdout)
        assert isinstance(value, dict)
        return value

    return run


def test_the_archon_endpoint_holds_after_its_cutover(plan_json: Any) -> None:
    plan = plan_json("env/archon.toml", "--seqs", "3", "--len", "200000")
    assert plan["schema"] == "archonctl.plan/1"
    assert plan["verdict"] == "holds"
    assert plan["contract"] == {
        "seqs": 3,
        "len": 200_000,
        "kv_dtype": "fp8",
        "margin": 0.01,
        "tokens": 600_000,
        "tokens_with_margin": 606_000,
    }
    assert plan["capacity"]["kv_tokens"] >= 606_000
    assert plan["capacity"]["kv_tokens_low"] >= 600_000
    assert plan["host"] == {"ttm_floor_mib": 150_200, "ttm_floor_pages": 38_451_200}
    assert [card["index"] for card in plan["cards"]] == [0, 1]
    assert {"total_mib", "ceiling_mib", "slab_mib", "pool_mib", "pool_needed_mib", "margin_mib"} <= set(
        plan["cards"][0]
    )
    assert plan["cards"][0]["total_mib"] == 31_856


def test_the_first_boot_of_the_cutover_is_found_short_with_its_lever(plan_json: Any) -> None:
    plan = plan_json("env/archon.toml", "--set", "engine.knobs.host-pool-mib=44928", code=1)
    assert plan["verdict"] == "short"
    assert plan["capacity"]["kv_tokens"] == 556_348
    assert plan["capacity"]["sessions"] == 2.782
    assert plan["capacity"]["margin_tokens"] == -43_652
    assert plan["host"]["ttm_floor_mib"] == 148_920
    assert plan["levers"][0]["set"] == {"engine.knobs.host-pool-mib": 45_568}


def test_the_lever_makes_it_hold(plan_json: Any) -> None:
    short = plan_json("env/archon.toml", "--set", "engine.knobs.host-pool-mib=44928", code=1)
    settings = [f"{key}={value}" for key, value in short["levers"][0]["set"].items()]
    assert plan_json("env/archon.toml", *(word for text in settings for word in ("--set", text)))["verdict"] == "holds"


def test_the_pair_era_funds_what_its_pool_says(plan_json: Any) -> None:
    plan = plan_json("env/archon-pair.toml")
    assert plan["verdict"] == "holds"
    assert abs(plan["capacity"]["kv_tokens"] - 608_028) <= 1
    assert plan["cards"][0]["slab_mib"] == 25_600
    assert plan["cards"][0]["pool_mib"] == 5_120


def test_a_fourth_conversation_does_not_fit_the_pair(plan_json: Any) -> None:
    plan = plan_json("env/archon-pair.toml", "--seqs", "4", "--margin", "0", code=1)
    assert plan["verdict"] == "short"
    assert round(plan["cards"][0]["pool_needed_mib"]) == 6_601


def test_without_an_argument_the_endpoint_named_archon_is_planned_and_said(run_cli: Any) -> None:
    done = run_cli("plan", "--seqs", "3", "--len", "200000")
    assert done.code == 0
    assert "env/archon.toml" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("HOLDS")


@pytest.mark.parametrize("value", ["0", "-1", "1000000000", "three", "", "1e3", "nan"])
def test_a_senseless_number_of_sequences_is_one_message(run_cli: Any, value: str) -> None:
    done = run_cli("plan", "env/archon.toml", f"--seqs={value}")
    assert done.code == 2
    assert done.stdout == ""
    assert "seqs" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_also_an_object_where_json_was_asked_for(run_cli: Any) -> None:
    done = run_cli("plan", "env/archon.toml", "--seqs", "0", "--json")
    value = json.loads(done.stdout)
    assert value["schema"] == "archonctl.error/1"
    assert value["exit_code"] == done.code == 2
    assert value["error"]["code"] in done.stderr


def test_the_environment_overrides_the_file_and_a_flag_the_environment(run_cli: Any) -> None:
    env = {"ARCHON__CONTRACT__SEQS": "2", "ARCHON__ENGINE__KNOBS__HOST_POOL_MIB": "44928"}
    two = json.loads(run_cli("plan", "env/archon.toml", "--json", env=env).stdout)
    assert (two["contract"]["seqs"], two["host"]["ttm_floor_mib"]) == (2, 148_920)
    three = json.loads(run_cli("plan", "env/archon.toml", "--seqs", "3", "--json", env=env).stdout)
    assert three["contract"]["seqs"] == 3


def test_a_stale_variable_is_refused_and_not_ignored(run_cli: Any) -> None:
    done = run_cli("plan", "env/archon.toml", env={"ARCHON__CONTRACT__SEQ": "4"})
    assert done.code == 2
    assert "ARCHON__CONTRACT__SEQ" in done.stderr


def test_the_screen_fits_a_narrow_terminal_and_has_a_bar_a_card(run_cli: Any) -> None:
    lines = run_cli("plan", "env/archon.toml", env={"COLUMNS": "80"}).stdout.splitlines()
    bars = [line for line in lines if line.startswith("card ")]
    assert len(bars) == 2
    assert all(len(line) <= 80 for line in bars)
    assert {len(line) for line in bars} == {len(bars[0])}


def test_an_ascii_terminal_gets_ascii_bars(run_cli: Any) -> None:
    done = run_cli("plan", "env/archon.toml", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.code == 0
    assert "[###" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    ("args", "env", "coloured"),
    [
        ((), {}, False),
        (("--color", "always"), {}, True),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        (("--color", "never"), {}, False),
    ],
)
def test_colour_is_only_where_it_is_wanted(
    run_cli: Any, args: tuple[str, ...], env: dict[str, str], coloured: bool
) -> None:
    assert ("\x1b[" in run_cli("plan", "env/archon.toml", *args, env=env).stdout) is coloured


def test_every_contradiction_of_the_sources_is_on_the_screen(run_cli: Any) -> None:
    screen = run_cli("plan", "env/archon.toml", env={"COLUMNS": "120"}).stdout
    for figure in ("7.3125", "7.92", "8.11", "14.89", "29,122", "29,120", "30,969", "116,319.6", "116,322"):
        assert figure in screen, figure
    pair = run_cli("plan", "env/archon-pair.toml").stdout
    for figure in ("458", "249"):
        assert figure in pair, figure


def test_nothing_is_written_by_a_plan(run_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "x.toml").write_text(
        '[contract]\nseqs = 1\nlen = 4096\n[engine]\nkind = "llamacpp"\n[model]\npath = "none.gguf"\n'
    )
    before = sorted(tmp_path.rglob("*"))
    assert run_cli("plan", cwd=tmp_path).code == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_boot_that_would_be_refused_is_not_said_to_start(run_cli: Any) -> None:
    refused = run_cli("plan", "archon", "--set", "engine.knobs.vram-kv-mib=5120")
    assert (refused.code, "it would not start as declared" in refused.stdout) == (1, True)
    short = run_cli("plan", "archon", "--set", "engine.knobs.host-pool-mib=44928")
    assert (short.code, "it would start, and refuse what was promised" in short.stdout) == (1, True)
