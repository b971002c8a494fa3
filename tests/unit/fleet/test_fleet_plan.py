"""Placement by the plan's own laws: cards, sharing, RAM and pinned memory of several endpoints, losses and ways out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from archonctl.errors import DeclarationError, UsageError
from archonctl.fleet.answer import EndpointRow, FleetPlan, HostRow
from archonctl.fleet.declared import read_fleet
from archonctl.fleet.inventory import read_inventory
from archonctl.fleet.placement_file import placement_text
from support.tiny_gguf import write_tiny_gguf
from unit.fleet.conftest import Fleet

ENV = Path(__file__).parents[3] / "env"


def row(plan: FleetPlan, name: str) -> HostRow:
    return next(one for one in plan.hosts if one.known.name == name)


def endpoint(plan: FleetPlan, name: str) -> EndpointRow:
    return next(one for one in plan.endpoints if one.name == name)


def lies(plan: FleetPlan) -> dict[str, dict[str, tuple[int, ...] | None]]:
    return {one.known.name: {each.name: each.cards for each in one.assigned} for one in plan.hosts if one.assigned}


def codes(plan: FleetPlan, host: str) -> set[str]:
    together = row(plan, host).together
    assert together is not None
    return {one.code for one in together.findings}


# What lies where


def test_a_host_is_judged_by_the_plans_of_what_lies_on_it(fleet: Fleet) -> None:
    fleet.endpoint("chat")
    fleet.endpoint("wide", tp=2)
    fleet.host("g1", 4, {"chat": (0,), "wide": (2, 3)})
    plan = fleet.plan()
    assert plan.verdict == "holds"
    together = row(plan, "g1").together
    assert together is not None
    taken = [dict(card.taken_mib) for card in together.cards]
    assert [set(one) for one in taken] == [{"chat"}, set(), {"wide"}, {"wide"}]
    assert together.cards[1].free_mib == together.cards[1].total_mib
    assert all(card.free_mib < 0.11 * card.total_mib for card in together.cards if card.index != 1)


def test_two_endpoints_that_say_no_cards_lie_on_the_same_first_card(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.endpoint("b")
    fleet.host("g1", 2, {"a": None, "b": None})
    plan = fleet.plan()
    assert plan.verdict == "short"
    assert "fleet-card-clash" in codes(plan, "g1")


def test_one_port_of_a_host_is_one_endpoints(fleet: Fleet) -> None:
    fleet.endpoint("a", port=8000)
    fleet.endpoint("b", port=8000)
    fleet.host("g1", 2, {"a": (0,), "b": (1,)})
    assert codes(fleet.plan(), "g1") == {"fleet-port-clash"}


def test_cards_are_shared_where_both_say_so_and_the_memory_of_both_fits(fleet: Fleet) -> None:
    fleet.endpoint("a", share=0.45, seqs=2)
    fleet.endpoint("b", share=0.5, seqs=2)
    fleet.host("g1", 1, {"a": (0,), "b": (0,)}, share=True)
    assert fleet.plan().verdict == "holds"
    fleet.endpoint("b", share=0.6, seqs=2)
    assert codes(fleet.plan(), "g1") == {"memory-short"}


def test_a_card_that_is_not_there_and_a_short_contract(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.endpoint("huge", seqs=60)
    fleet.host("g1", 1, {"a": (3,)})
    fleet.host("g2", 1, {"huge": (0,)})
    plan = fleet.plan()
    for host in ("g1", "g2"):
        together = row(plan, host).together
        assert together is not None
        assert together.verdict == "short"
        assert together.endpoints[0].reasons


def test_one_host_that_is_not_known_hides_no_other(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("g1", None, {"a": None})
    fleet.host("g2", 1, {"a": (0,)})
    plan = fleet.plan()
    assert [one.verdict for one in plan.hosts] == ["unknown", "holds"]
    assert plan.verdict == "unknown"
    (fleet.folder / "g2.profile.toml").write_text("ram_mib = 'much'")
    plan = fleet.plan()
    assert plan.verdict == "invalid"
    problem = plan.hosts[1].problem
    assert problem is not None
    assert problem.code == "declaration-wrong-type"


def test_pinned_memory_of_all_endpoints_is_one_limit(fleet: Fleet) -> None:
    """Two radiance endpoints on a host of twice the cards and RAM: a target that is enough for one is not for both."""
    text = (ENV / "hosts" / "archon.toml").read_text()
    cards = "".join(text.partition("[[cards]]")[1:])
    more = cards.replace("index = 0", "index = 2").replace("index = 1", "index = 3")
    twice = (text + more).replace("ram_mib = 251_976", "ram_mib = 500_000")
    for name, port in (("one", 8001), ("two", 8002)):
        declared = (ENV / "archon.toml").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        declared = declared.replace('"env/', f'"{ENV}/')
        (fleet.folder / "env" / f"{name}.toml").write_text(declared)
    fleet.host("g1", 0, {"one": (0, 1), "two": (2, 3)})
    path = fleet.folder / "g1.profile.toml"
    path.write_text(twice)
    plan = fleet.plan()
    together = row(plan, "g1").together
    assert together is not None
    assert together.ttm_floor_mib == 2 * 150_200
    assert codes(plan, "g1") == {"fleet-ttm-short"}
    assert plan.verdict == "short"
    path.write_text(twice.replace("ttm_target_mib = 204_800", "ttm_target_mib = 301_000"))
    assert fleet.plan().verdict == "holds"
    path.write_text(twice.replace("ttm_target_mib = 204_800", ""))
    assert fleet.plan().verdict == "holds"
    assert codes(fleet.plan(), "g1") == {"fleet-ttm-short"}, "each unit raises the limit to its own floor only"
    path.write_text(twice.replace("ttm_target_mib = 204_800", "ttm_target_mib = 301_000").replace("500_000", "330_000"))
    assert codes(fleet.plan(), "g1") == {"memory-short", "fleet-ttm-short"}


def test_a_file_that_several_engines_map_lies_in_ram_once(fleet: Fleet, tmp_path: Path) -> None:
    one, other = (write_tiny_gguf(tmp_path / f"{name}.gguf", "llama") for name in ("one", "other"))

    def wanted(model: Path, more: str = "") -> int:
        for name, port, path, knobs in (("a", 8001, one, ""), ("b", 8002, model, more)):
            (fleet.folder / "env" / f"{name}.toml").write_text(
                f'contract = {{ seqs = 1, len = 64 }}\nservice = {{ listen = "127.0.0.1:{port}" }}\n'
                f'model = {{ path = "{path}" }}\n[engine]\nkind = "llamacpp"\nversion = "b11434"\n'
                f'binary = "/x"\nknobs = {{ cache-ram = 0{knobs} }}\n'
            )
        together = row(fleet.plan(), "g1").together
        assert together is not None
        assert together.ram is not None
        return together.ram.by_class["weights"]

    fleet.host("g1", 0, {"a": None, "b": None})
    assert wanted(other) == 2 * wanted(one)
    assert wanted(one, ', load-mode = "none"') == 2 * wanted(one), "a copy of its own"


# Placement


def test_replicas_lie_on_different_hosts_and_each_has_its_own_cards(fleet: Fleet) -> None:
    fleet.endpoint("chat")
    fleet.endpoint("wide", tp=2)
    for number in range(1, 4):
        fleet.host(f"g{number}", 4)
    plan = fleet.plan("[endpoints.chat]\nreplicas = 3\n[endpoints.wide]\nreplicas = 3\n")
    assert (plan.verdict, plan.proven) == ("holds", True)
    assert all(found == {"wide": (0, 1), "chat": (2,)} for found in lies(plan).values())
    assert len(lies(plan)) == 3
    assert fleet.plan("[endpoints.chat]\nreplicas = 4\n").verdict == "short"


def test_rules_pins_and_groups_are_kept(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.endpoint("b")
    for number in range(1, 5):
        fleet.host(f"g{number}", 2)
    text = 'apart = [["a", "b"]]\n[endpoints.a]\nreplicas = 2\npins = ["g3"]\nnot_hosts = ["first"]\n[endpoints.b]\n'
    found = lies(fleet.plan(text + 'hosts = ["g3", "g4"]\n'))
    assert {host for host, names in found.items() if "b" in names} == {"g4"}
    assert "a" in found["g3"]
    assert "g1" not in found
    assert all(len(names) == 1 for names in found.values())


def test_what_lies_somewhere_stays_there_with_its_cards(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.endpoint("b")
    fleet.host("g1", 2)
    fleet.host("g2", 2, {"a": (1,)})
    plan = fleet.plan("[endpoints.a]\n[endpoints.b]\n")
    assert lies(plan) == {"g2": {"a": (1,), "b": (0,)}}
    assert [(move.source, move.target) for move in plan.moves] == [("", "g2")]


def test_the_fewest_moves_make_room_and_are_proven(fleet: Fleet) -> None:
    """a lies on the only host of two cards, where wide has to be: one move."""
    fleet.endpoint("a")
    fleet.endpoint("wide", tp=2)
    fleet.host("g1", 1)
    fleet.host("g2", 2, {"a": (0,)})
    plan = fleet.plan("[endpoints.a]\n[endpoints.wide]\n")
    assert lies(plan) == {"g1": {"a": (0,)}, "g2": {"wide": (0, 1)}}
    assert plan.proven
    moves = [(move.endpoint, move.source, move.target) for move in plan.moves]
    assert moves == [("a", "g2", "g1"), ("wide", "", "g2")]


def test_what_no_fleet_file_names_stays_and_takes_its_room(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.endpoint("other")
    fleet.host("g1", 1, {"other": (0,)})
    fleet.host("g2", 1)
    assert lies(fleet.plan("[endpoints.a]\n")) == {"g1": {"other": (0,)}, "g2": {"a": (0,)}}


def test_cards_are_shared_only_between_those_that_say_so(fleet: Fleet) -> None:
    for name in ("a", "b", "c"):
        fleet.endpoint(name, share=0.45, seqs=2)
    fleet.host("g1", 2)
    text = "[endpoints.a]\nshare_cards = true\n[endpoints.b]\nshare_cards = true\n[endpoints.c]\n"
    found = lies(fleet.plan(text))["g1"]
    assert found["a"] == found["b"] != found["c"]
    assert fleet.plan(text.replace("true", "false")).verdict == "short"


def test_a_replica_over_hosts_takes_equal_empty_ones_whole(fleet: Fleet) -> None:
    fleet.endpoint("long", tp=4)
    fleet.endpoint("a")
    for number in range(1, 4):
        fleet.host(f"g{number}", 2)
    plan = fleet.plan("[endpoints.long]\nnodes = 2\n[endpoints.a]\n")
    assert lies(plan) == {"g1": {"long": (0, 1)}, "g2": {"long": (0, 1)}, "g3": {"a": (0,)}}
    assert endpoint(plan, "long").placed == 1
    short = fleet.plan("[endpoints.long]\nnodes = 2\nreplicas = 2\n[endpoints.a]\n")
    assert endpoint(short, "long").ways[0].text == "2 more hosts like g1"


def test_engines_that_run_on_one_host_are_not_spread_over_several(fleet: Fleet) -> None:
    fleet.host("g1", 2)
    fleet.host("g2", 2)
    plan = fleet.plan(f'[endpoints.archon]\ndeclaration = "{ENV / "archon.toml"}"\nnodes = 2\n')
    problem = endpoint(plan, "archon").problem
    assert problem is not None
    assert problem.code == "nodes-unsupported"
    assert plan.verdict == "invalid"


def test_what_uses_cards_goes_nowhere_without_them(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("c1", 0)
    fleet.host("g1", 1)
    assert lies(fleet.plan("[endpoints.a]\n")) == {"g1": {"a": (0,)}}


# What lies nowhere, and losses


@pytest.mark.parametrize(
    ("text", "reason", "way"),
    [
        ("[endpoints.a]\nreplicas = 4\n", "0 of 1 cards free, 1 wanted", "1 more host like g1"),
        ('[endpoints.a]\nhosts = ["g9"]\n', "3 hosts: not allowed there", "allow more hosts, such as g1"),
        (
            'apart = [["a", "b"]]\n[endpoints.b]\nreplicas = 2\n[endpoints.a]\nreplicas = 2\n',
            "apart from",
            "apart without",
        ),
        ("[endpoints.huge]\n", "tokens", "promise"),
        ('[endpoints.a]\npins = ["g9"]\n', "pinned to g9, where it does not fit", ""),
    ],
)
def test_what_lies_nowhere_has_a_reason_and_a_way_out_that_was_tried(
    fleet: Fleet, text: str, reason: str, way: str
) -> None:
    for name in ("a", "b", "busy"):
        fleet.endpoint(name)
    fleet.endpoint("huge", seqs=80)
    fleet.host("g1", 1)
    fleet.host("g2", 2)
    fleet.host("g3", 1)
    fleet.host("g9", 1, {"busy": (0,)})
    plan = fleet.plan(text)
    told = next(one for one in plan.endpoints if one.reason)
    assert reason in told.reason
    assert plan.verdict == "short"
    if way:
        assert any(way in one.text for one in told.ways), told.ways


def test_what_the_solver_had_no_time_for_is_unknown_and_not_short(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("g1", 1)
    text = "[endpoints.a]\nreplicas = 2\n"
    assert [fleet.plan(text, limit_s=seconds).verdict for seconds in (0.0, 60.0)] == ["unknown", "short"]


def test_the_loss_of_a_host_is_survived_or_told_with_what_would(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.endpoint("b")
    for number in range(1, 4):
        fleet.host(f"g{number}", 1)
    text = "spare = 1\n[endpoints.a]\n[endpoints.b]\n"
    plan = fleet.plan(text)
    assert plan.verdict == "holds"
    assert [one.survived for one in plan.hosts] == [True, True, None]
    plan = fleet.plan("spare = 1\n[endpoints.a]\nreplicas = 2\n[endpoints.b]\n")
    assert plan.verdict == "short"
    assert plan.spare_proven
    assert {host for loss in plan.losses for host in loss.hosts} == {"g1", "g2", "g3"}
    assert plan.spare_ways[0].text == "1 more host like g1"


def test_without_a_host_the_rest_takes_what_it_can_and_moves_what_it_must(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.endpoint("wide", tp=2)
    fleet.host("g1", 2, {"wide": (0, 1)})
    fleet.host("g2", 2, {"a": (0,)})
    fleet.host("g3", 1)
    plan = fleet.plan("", "g1")
    assert plan.verdict == "holds"
    assert {(move.endpoint, move.source, move.target) for move in plan.moves} == {
        ("a", "g2", "g3"),
        ("wide", "g1", "g2"),
    }
    plan = fleet.plan("", "g1", "g3")
    assert plan.verdict == "short"
    lost = next(one for one in plan.endpoints if one.placed < (one.wanted or 0))
    assert lost.before == 1
    assert lost.reason
    assert lost.ways
    with pytest.raises(UsageError, match="fleet-host-unknown"):
        fleet.plan("", "g7")


def test_the_same_question_has_the_same_answer(fleet: Fleet) -> None:
    for name in ("a", "b", "c"):
        fleet.endpoint(name)
    for number in range(12):
        fleet.host(f"g{number}", 1 + number % 3)
    text = "spare = 1\n" + "".join(f"[endpoints.{name}]\nreplicas = 5\n" for name in ("a", "b", "c"))
    assert lies(fleet.plan(text)) == lies(fleet.plan(text))


def test_a_placement_written_down_is_an_inventory_that_says_the_same(fleet: Fleet) -> None:
    fleet.endpoint("a", share=0.45, seqs=2)
    fleet.endpoint("b", share=0.45, seqs=2)
    fleet.host("g1", 1)
    fleet.host("g2", None)
    plan = fleet.plan("[endpoints.a]\nshare_cards = true\n[endpoints.b]\nshare_cards = true\n")
    text = placement_text(plan, fleet.folder)
    assert "declaration: env/a.toml" in text
    path = fleet.folder / "placement.yml"
    path.write_text(text)
    read = read_inventory([str(path)], os.environ)
    assert [host.name for host in read.hosts] == ["g1"], "of g2 nothing is known, so nothing is said"
    assert read.hosts[0].endpoints == row(plan, "g1").assigned
    fleet.host("g3", 2)
    plan = fleet.plan('[endpoints.a]\npins = ["g3"]\n[endpoints.b]\npins = ["g3"]\n')
    path.write_text(placement_text(plan, fleet.folder))
    given = {one.name: dict(one.env) for one in read_inventory([str(path)], os.environ).host("g3").endpoints}
    assert [env["CUDA_VISIBLE_DEVICES"] for env in given.values()] == ["0", "1"]


# The fleet file


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spare = 2\n[endpoints.a]\n", "fleet.toml:1: spare is 2"),
        ("[endpoints.a]\nreplica = 2\n", "did you mean endpoints.a.replicas"),
        ('[endpoints.a]\ndeclaration = "env/b.toml"\n', "declared by b.toml"),
        ('apart = [["a", "zz"]]\n[endpoints.a]\n', "'zz', which is no endpoint"),
        ('[endpoints.a]\npins = ["x", "y"]\n', "1 replicas and 2 pins"),
        ("[endpoints.a]\nnodes = 2\ncards = 1\n", "spans 2 hosts"),
        ("endpoints = {}\n", "endpoints"),
        ("[endpoints.a\n", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_fleet_file_is_told_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(DeclarationError) as caught:
        read_fleet(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_host_that_the_inventory_does_not_have_is_told_with_the_line(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("g1", 1)
    with pytest.raises(DeclarationError, match=r"fleet\.toml:3.*fleet-host-unknown|fleet-host-unknown.*fleet\.toml:3"):
        fleet.plan('[endpoints.a]\nreplicas = 1\nhosts = ["nowhere"]\n')
    fleet.host("g2", 1)
    with pytest.raises(DeclarationError, match=r"pins means 2 hosts, and there is 1 replicas"):
        fleet.plan('[endpoints.a]\npins = ["g*"]\n')


def test_a_declaration_that_cannot_be_read_hides_no_other(fleet: Fleet) -> None:
    fleet.endpoint("a")
    fleet.host("g1", 1)
    plan = fleet.plan("[endpoints.a]\n[endpoints.gone]\n")
    assert lies(plan) == {"g1": {"a": (0,)}}
    assert endpoint(plan, "gone").problem is not None
    assert plan.verdict == "invalid"
