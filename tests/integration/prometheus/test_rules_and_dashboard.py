"""The shipped rules and dashboard: against the table of metrics, by promtool, and in a real Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from archonctl.observe.board import Board
from archonctl.observe.catalogue import metrics
from archonctl.observe.endpoint_look import UNIT_STATES, VERDICTS
from archonctl.observe.serve import serving, text
from archonctl.observe.values import one_hot, sample
from support.prometheus_server import Prometheus

OBSERVE = Path(__file__).resolve().parents[3] / "observe"
RULES = OBSERVE / "prometheus/archon.rules.yml"
GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
RECORDS = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
_NAME = re.compile(r"\b(?:archon_[a-z_]+|archon:[a-z_0-9:]+)\b")


def unknown(expr: str) -> set[str]:
    return set(_NAME.findall(expr)) - set(metrics()) - RECORDS


def test_the_rules_are_sound(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_alert_fires_and_rests_as_its_test_says(promtool: str) -> None:
    tests = RULES.with_name("archon.rules.test.yml")
    done = subprocess.run(
        [promtool, "test", "rules", tests.name], cwd=tests.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = yaml.safe_load(tests.read_text(encoding="utf-8"))["tests"]
    fired = {case["alertname"] for each in cases for case in each["alert_rule_test"] if case.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize("rule", [r for g in GROUPS for r in g["rules"]], ids=lambda r: r.get("alert") or r["record"])
def test_a_rule_names_metrics_that_exist(rule: dict[str, str]) -> None:
    assert unknown(rule["expr"]) == set()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda r: r["alert"])
def test_an_alert_links_a_page_that_exists_and_says_what_it_is_about(
    rule: dict[str, dict[str, str]], repository: Path
) -> None:
    code = rule["labels"]["code"]
    assert rule["annotations"]["runbook"] == f"runbooks/{code}.md"
    assert (repository / "runbooks" / f"{code}.md").is_file()
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert re.search(r"\$labels\.(endpoint|instance)", rule["annotations"]["summary"])


def test_the_dashboard_is_made_from_its_table(repository: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "archon.json"
    subprocess.run([sys.executable, repository / "scripts/gen-dashboard", fresh], check=True, timeout=60)
    assert fresh.read_text() == (OBSERVE / "grafana/archon.json").read_text(), "run scripts/gen-dashboard"


def test_the_command_prints_what_ships(run_cli: Callable[..., Any]) -> None:
    for name, path in (("rules", RULES), ("dashboard", OBSERVE / "grafana/archon.json")):
        assert run_cli("exporter", "--print", name).stdout == path.read_text(encoding="utf-8")


def expressions() -> list[str]:
    board = json.loads((OBSERVE / "grafana/archon.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]


def test_no_panel_names_a_metric_that_does_not_exist() -> None:
    found = expressions()
    assert len(found) > 20
    assert set().union(*map(unknown, found)) == set()
    shown = set().union(*(_NAME.findall(each) for each in found))
    assert {"archon_verdict", "archon_contract_spare_tokens", "archon_plan_bytes"} <= shown


def test_two_hosts_with_endpoints_of_one_name_are_told_apart() -> None:
    board = json.loads((OBSERVE / "grafana/archon.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            assert "{{instance}}" in target["legendFormat"], panel["title"]
            assert all("instance" in labels for labels in re.findall(r"\bby \(([^)]*)\)", target["expr"]))
            assert target["format"] == ("table" if panel["type"] == "table" else "time_series")


def left_out(ours: object, theirs: object, place: str = "") -> list[str]:
    """What of ours is not in theirs, or is there as something else."""
    if isinstance(ours, dict):
        said = {key: value for key, value in ours.items() if value is not None}
        inner = theirs if isinstance(theirs, dict) else {}
        return [each for key, value in said.items() for each in left_out(value, inner.get(key), f"{place}/{key}")]
    if isinstance(ours, list):
        inner = theirs if isinstance(theirs, list) and len(theirs) == len(ours) else [None] * len(ours)
        return [each for i, value in enumerate(ours) for each in left_out(value, inner[i], f"{place}/{i}")]
    return [] if ours == theirs else [place]


def test_grafanas_own_model_of_a_dashboard_takes_every_key() -> None:
    register_default_plugins()  # panels and queries of the kinds that Grafana brings along
    board = json.loads((OBSERVE / "grafana/archon.json").read_text(encoding="utf-8"))
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(board)))
    # an option of the Prometheus plugin's annotations, which the model of the core does not list; and the size of bars
    # and the place of their names, which the model of 10.1 has not yet (@grafana/schema, BarGaugePanelCfg)
    newer = {"titleFormat", "sizing", "minVizHeight", "maxVizHeight", "namePlacement"}
    assert {place.rsplit("/", 1)[-1] for place in left_out(board, read)} <= newer


@pytest.mark.parametrize(("metric", "words"), [("archon_verdict", VERDICTS), ("archon_unit_state", UNIT_STATES)])
def test_a_timeline_has_a_colour_for_every_word_of_its_metric(metric: str, words: tuple[str, ...]) -> None:
    panels = tomllib.loads((OBSERVE / "grafana/panels.toml").read_text(encoding="utf-8"))["panel"]
    (states,) = [panel["states"] for panel in panels if panel.get("metric") == metric]
    assert sorted(word for word, _ in states) == sorted(words)


def test_panels_do_not_overlap() -> None:
    board = json.loads((OBSERVE / "grafana/archon.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def eventually(what: Callable[[], object], wanted: object, seconds: float = 180) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while (found := what()) != wanted:
        assert time.monotonic() < end, found
        time.sleep(0.3)


def verdict(board: Board, word: str) -> None:
    board.put("a", "state", [*one_hot("archon_verdict", "a", VERDICTS, word)])


def test_a_real_prometheus_takes_every_panel_and_an_alert_fires_and_resolves(
    prometheus: tuple[Prometheus, int], promtool: str
) -> None:
    server, port = prometheus
    board = Board()
    board.put("", "host", [sample("archon_ttm_limit_bytes", value=1000)])
    board.put("a", "plan", [sample("archon_ttm_floor_bytes", "a", value=900)])
    verdict(board, "holds")
    with serving(board, "127.0.0.1", port):
        eventually(lambda: server.value('archon_verdict{verdict="holds"}'), 1.0)
        verdict(board, "broken")
        eventually(lambda: server.alerts().get("ArchonContractBroken"), "firing")
        verdict(board, "holds")
        eventually(lambda: server.alerts().get("ArchonContractBroken"), None)
        assert server.value("archon:ttm_spare:bytes") == 100
        for expr in expressions():
            plain = expr.replace("$__rate_interval", "1m").replace("$endpoint", "a").replace("$instance", ".*")
            server.ask("query", query=plain)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text(board), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_promtool_has_nothing_to_say_of_any_metric_there_is(promtool: str) -> None:
    board = Board()
    board.put("a", "state", [sample(row.name, *("a" for _ in row.labels), value=1) for row in metrics().values()])
    shown = text(board)
    assert all(f"# HELP {row.name} " in shown for row in metrics().values())
    done = subprocess.run([promtool, "check", "metrics"], input=shown, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
