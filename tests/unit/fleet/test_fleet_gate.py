"""The gate over hosts: each by itself with its own profile and cards, equal ones once, and the verb's exit codes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from archonctl.fleet import gating
from archonctl.fleet.gating import FleetGate, gate_fleet
from support.fleet_files import profile
from unit.fleet.conftest import Fleet


def words(gate: FleetGate) -> dict[str, str]:
    return {host.known.name: host.word for host in gate.hosts}


def test_each_host_is_judged_with_its_own_profile_and_cards(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("big", 2, {"a": (1,)})
    fleet.host("small", 1, {"a": (0,)}, card_mib=24_000)
    fleet.host("empty", None)
    gate = gate_fleet(fleet.inventory, fleet.folder, {})
    assert words(gate) == {"big": "clean", "small": "refused", "empty": "clean"}
    assert gate.word == "refused"
    (short,) = [one for one in gate.hosts[1].findings if one.severity == "error"][:1]
    assert short.place.path.endswith("env/a.toml")


def test_what_is_wrong_with_endpoints_together_is_found(fleet: Fleet) -> None:
    fleet.endpoint("a", port=8000)
    fleet.endpoint("b", port=8000)
    fleet.host("g1", 2, {"a": None, "b": None})
    found = {one.code for one in gate_fleet(fleet.inventory, fleet.folder, {}).hosts[0].findings}
    assert {"fleet-port-clash", "fleet-card-clash"} <= found


def test_an_engine_that_is_not_kept_to_its_cards_is_refused(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("g1", 4, {"a": (2,)})
    fleet.hosts.append(replace(fleet.hosts[0], name="g2", endpoints=(replace(fleet.hosts[0].endpoints[0], env=()),)))
    gate = gate_fleet(fleet.inventory, fleet.folder, {})
    assert words(gate) == {"g1": "clean", "g2": "refused"}
    (found,) = [one for one in gate.hosts[1].findings if one.severity == "error"]
    assert found.code == "fleet-cards-not-given"
    assert "it would take 0" in found.message
    assert "CUDA_VISIBLE_DEVICES: '2'" in found.fix


def test_hosts_that_cannot_be_judged_hide_no_other_and_are_not_clean(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("g1", None, {"a": None})
    fleet.host("g2", 1, {"gone": (0,)})
    fleet.host("g3", 1, {"a": (0,)})
    fleet.host("g4", 1, {"a": (0,)})
    (fleet.folder / "g4.profile.toml").write_text("cards = 7\n")
    gate = gate_fleet(fleet.inventory, fleet.folder, {})
    assert words(gate) == {"g1": "unread", "g2": "refused", "g3": "clean", "g4": "invalid"}
    assert [one.code for one in gate.hosts[1].findings] == ["declaration-not-found"]


def test_equal_declarations_on_equal_hosts_are_judged_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = gating.check_endpoint

    def counted(*args: Any, **how: Any) -> Any:
        calls.append(how["shown"])
        return real(*args, **how)

    monkeypatch.setattr(gating, "check_endpoint", counted)
    fleet.endpoint("a")
    copy = fleet.folder / "copies" / "a.toml"
    copy.parent.mkdir()
    copy.write_text("# another comment\n" + fleet.endpoint("a", port=8101).read_text().replace("8101", "8101"))
    fleet.endpoint("a", port=8101).write_text("# a comment\n" + (fleet.folder / "env" / "a.toml").read_text())
    for number in range(50):
        fleet.host(f"g{number}", 1, {"a" if number % 2 else "../copies/a": (0,)})
    gate = gate_fleet(fleet.inventory, fleet.folder, {})
    assert len(calls) == 1
    assert {one.place.path for one in gate.hosts[1].findings if one.place.path} == {
        str(fleet.folder / "env" / "a.toml")
    }
    assert {Path(one.place.path).parts[-2:] for one in gate.hosts[0].findings} == {("copies", "a.toml")}


def test_a_variable_that_overrides_one_declaration_is_not_for_a_fleet(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("g1", 1, {"a": (0,)})
    assert gate_fleet(fleet.inventory, fleet.folder, {"ARCHON__CONTRACT__SEQS": "64000"}).word == "clean"


@pytest.fixture
def files(fleet: Fleet) -> Path:
    fleet.endpoint("a")
    fleet.endpoint("huge", seqs=80)
    for name, cards in (("g1", 1), ("g2", 1)):
        (fleet.folder / f"{name}.toml").write_text(profile(name, cards))
    return fleet.folder


def write_hosts(folder: Path, **lies: object) -> Path:
    path = folder / "hosts.yml"
    hosts = {name: {"archon_endpoints": some} for name, some in lies.items()}
    path.write_text(json.dumps({"all": {"hosts": hosts}}))
    return path


@pytest.mark.parametrize(
    ("lies", "plan_code", "gate_code"),
    [
        ({"g1": ["env/a.toml"], "g2": []}, 0, 0),
        ({"g1": ["env/a.toml"], "g2": ["env/huge.toml"]}, 1, 4),
        ({"g1": 7, "g2": ["env/a.toml"]}, 2, 2),
        ({"g1": ["env/a.toml"], "g9": ["env/a.toml"]}, 3, 3),
    ],
    ids=["holds", "short", "invalid", "unread"],
)
def test_the_exit_codes_of_plan_and_gate(
    run_cli: Any, files: Path, lies: dict[str, object], plan_code: int, gate_code: int
) -> None:
    hosts = write_hosts(files, **lies)
    plan = run_cli("fleet", "plan", "-i", hosts, "--facts", files)
    gate = run_cli("fleet", "gate", "-i", hosts, "--facts", files)
    assert (plan.code, gate.code) == (plan_code, gate_code), plan.stdout + plan.stderr + gate.stdout + gate.stderr
    for host in lies:
        assert host in plan.stdout + gate.stdout


def test_a_placement_of_the_command_is_read_back_by_the_command(run_cli: Any, files: Path) -> None:
    hosts = write_hosts(files, g1=[], g2=[])
    (files / "fleet.toml").write_text("spare = 1\n[endpoints.a]\n")
    out = files / "placement.yml"
    made = run_cli("fleet", "plan", "-i", hosts, files / "fleet.toml", "--facts", files, "--out", out)
    assert made.code == 0
    assert "spare: the loss of any one host is survived" in made.stdout
    assert "start  a on g1" in made.stdout
    again = run_cli("fleet", "plan", "-i", hosts, "-i", out, files / "fleet.toml", "--facts", files, "--without", "g1")
    assert again.code == 0
    assert "move   a: g1 -> g2" in again.stdout
    # The solver says its name on stdout unless it is kept from it.
    (files / "fleet.toml").write_text("spare = 1\n[endpoints.a]\nreplicas = 2\n")
    solved = run_cli("fleet", "plan", "-i", hosts, files / "fleet.toml", "--facts", files, "--json")
    value = json.loads(solved.stdout)
    assert (solved.code, value["verdict"], value["spare"]["survived"]) == (1, "short", False)
    os.mkfifo(files / "pipe")
    refused = run_cli("fleet", "plan", "-i", hosts, files / "fleet.toml", "--facts", files, "--out", files / "pipe")
    assert (refused.code, (files / "pipe").is_fifo()) == (5, True)
    assert "fleet-placement-not-written" in refused.stderr
