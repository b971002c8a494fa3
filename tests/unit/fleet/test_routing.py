"""Who is in rotation: verified capacity as weight, broken and unknown out; no host writes lines of its own."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from archonctl.cli.fleet.route import TARGETS
from archonctl.errors import DeclarationError, GateRefusal, HostRefusal, UsageError
from archonctl.fleet.backends import Backend
from archonctl.fleet.host_variables import Assigned, FleetHost
from archonctl.fleet.inventory import Inventory
from archonctl.fleet.routing.rotation import LARGEST_WEIGHT, rotations
from archonctl.fleet.routing.seen import backends_seen
from archonctl.fleet.routing.text import RELOAD, RENDERERS
from archonctl.fleet.routing.write import write_route
from support.routes import backend, inventory, row, told


def weights(*backends: Backend, **options: bool) -> dict[str, int]:
    return {m.backend.host: m.weight for each in rotations(backends, **options) for m in each.members}


def test_weights_are_in_proportion_to_what_was_verified() -> None:
    found = weights(backend("a", "h:1", True, 4), backend("b", "h:2", True, 6), backend("c", "h:3", True, 2))
    assert found == {"a": 2, "b": 3, "c": 1}


def test_what_is_broken_or_unknown_is_out_and_the_unknown_comes_in_with_the_least_weight_if_asked() -> None:
    hosts = (
        backend("a", "h:1", True, 4),
        backend("b", "h:2", False),
        backend("c", "h:3", None),
        backend("d", "h:4", True, 2),
    )
    assert weights(*hosts) == {"a": 2, "b": 0, "c": 0, "d": 1}
    assert weights(*hosts, include_unverified=True) == {"a": 2, "b": 0, "c": 1, "d": 1}


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20))
def test_every_verified_backend_has_a_weight_that_a_router_takes(seqs: list[int]) -> None:
    found = weights(*(backend(str(n), f"h:{n}", True, size) for n, size in enumerate(seqs, 1)))
    assert all(1 <= weight <= max(LARGEST_WEIGHT, 1) for weight in found.values())
    assert found[str(seqs.index(max(seqs)) + 1)] == max(found.values())


def test_what_is_not_known_never_empties_a_rotation_unless_forced() -> None:
    broken, unknown = backend("a", "h:1", False, reason="broken: 1 short"), backend("b", "h:2", None, reason="cut off")
    gone = (broken, unknown, backend("c", "h:3", None, endpoint="other"))
    with pytest.raises(
        GateRefusal, match=r"serves chat, other is verified \(b: cut off; a: broken: 1 short"
    ) as refused:
        rotations(gone)
    assert refused.value.code == "fleet-route-empty"
    assert [each.serving for each in rotations(gone, force=True)] == [(), ()]
    with pytest.raises(GateRefusal, match="no endpoint on any host"):
        rotations(())
    for render in (RENDERERS["nginx"], RENDERERS["envoy"], RENDERERS["litellm"], RENDERERS["file-sd"]):
        assert render(rotations(gone, force=True))


def test_what_is_known_to_be_broken_leaves_rotation_even_if_nobody_is_left_and_holds_up_no_other() -> None:
    chat = (backend("a", "h:1", False), backend("b", "h:2", False))
    other = (backend("a", "h:3", True, 4, endpoint="other"), backend("b", "h:4", False, endpoint="other"))
    assert [[m.weight for m in each.members] for each in rotations((*chat, *other))] == [[0, 0], [1, 0]]
    assert "    server h:4 down;" in RENDERERS["nginx"](rotations((*chat, *other)))


def test_only_a_verified_backend_needs_an_address() -> None:
    with pytest.raises(DeclarationError, match="no address of chat on a is known") as refused:
        rotations((backend("a", "", True),))
    assert refused.value.code == "fleet-route-address"
    assert weights(backend("a", "", False), backend("b", "h:1", True)) == {"a": 0, "b": 1}


def test_envoy_takes_no_names() -> None:
    with pytest.raises(DeclarationError, match="takes an IP address"):
        RENDERERS["envoy"](rotations((backend("a", "gpu1.example:8000", True),)))


def test_hosts_are_seen_as_their_status_says() -> None:
    hosts = inventory(
        a={}, b={"archon_route": {"chat": "https://gpu2.example:8443"}}, c={}, d={"archon_metrics": "m:1"}, e={}
    )
    seen = told(
        a=[row()],
        b=[row(listen="127.0.0.1:8000", word="broken", remark="1 short")],
        c=[row(listen="127.0.0.1:8000", word="unverified")],
        d=[row(listen="10.1.1.1:9000"), row("code", listen="[::]:9001")],
        e="ssh: no route",
    )
    a, b, c, d_chat, d_code = backends_seen(hosts, seen)
    assert (a.address, a.state, a.capacity_seqs, a.capacity_tokens, a.metrics) == (
        "10.0.0.1:8000",
        "verified",
        3,
        3000,
        "10.0.0.1:9487",
    )
    assert (b.address, b.https, b.state, b.reason, b.capacity_seqs) == (
        "gpu2.example:8443",
        True,
        "broken",
        "broken: 1 short",
        None,
    )
    assert (c.address, c.state) == ("", "unknown")
    assert (d_chat.address, d_chat.metrics, d_code.address) == ("10.1.1.1:9000", "m:1", "10.0.0.4:9001")


def test_a_host_that_was_not_reached_is_unknown_with_all_that_the_inventory_puts_there(repository: Path) -> None:
    host = FleetHost("a", address="10.0.0.1", endpoints=(Assigned(repository / "env/archon.toml"),))
    hosts = Inventory(("i",), (host,), {})
    (found,) = backends_seen(hosts, told(a="ssh: no route"))
    assert (found.endpoint, found.state, found.reason) == ("archon", "unknown", "ssh: no route")
    assert (found.model, found.engine) == ("qwen3.8-next-flash", "radiance")


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:8000;\n}", "x y:1", "0.0.0.0:99999", ":1", "", "0.0.0.0", "-x:1", "a:1 weight=9"]
)
def test_what_is_no_address_never_gets_into_a_file(listen: str) -> None:
    hosts = inventory(a={}, b={})
    seen = told(a=[row(listen=listen, word="broken")], b=[row()])
    text = RENDERERS["nginx"](rotations(backends_seen(hosts, seen)))
    assert text.count("server ") == 1


def test_a_host_cannot_write_lines_of_its_own() -> None:
    hosts = inventory(a={}, b={})
    seen = told(a=[row(word="broken", remark="x\n    server evil:1;"), row("bad name;")], b=[row()])
    text = RENDERERS["nginx"](rotations(backends_seen(hosts, seen)))
    assert [line.split(";")[0].strip() for line in text.splitlines() if line.strip().startswith("server")] == [
        "server 10.0.0.1:8000 down",
        "server 10.0.0.2:8000 weight=1 max_conns=3",
    ]


@pytest.mark.parametrize(
    "value", [None, [], {}, {"schema": "archonctl.status/1"}, {"schema": "archonctl.fleet-hosts/1", "action": "no"}]
)
def test_anything_but_a_fleet_status_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="not what archonctl fleet status --json printed"):
        backends_seen(inventory(a={}), value)


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["holds", "broken", "h:1", "archonctl.status/1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
SAID = st.fixed_dictionaries(
    {"host": st.just("a") | ANYTHING},
    optional={
        "endpoints": ANYTHING
        | st.lists(
            st.dictionaries(st.sampled_from(["schema", *row(), "endpoints", "remark"]), ANYTHING | st.just(10**400)),
            max_size=2,
        ),
        "fault": ANYTHING,
        "word": ANYTHING,
    },
)


@given(ANYTHING | st.lists(SAID, max_size=2))
def test_whatever_a_host_says_there_is_an_answer(hosts: object) -> None:
    value = {"schema": "archonctl.fleet-hosts/1", "action": "status", "hosts": hosts}
    seen = backends_seen(inventory(a={"archon_route": {"holds": "10.0.0.9:1"}}), value)
    with contextlib.suppress(DeclarationError):  # verified, and no address that a router reaches
        for target in set(TARGETS) - {"vllm-router"}:
            assert RENDERERS[target](rotations(seen, force=True))


def test_litellm_gets_weights_limits_and_only_what_serves() -> None:
    hosts = (
        backend("a", "h:1", True, 4),
        backend("b", "h:2", False),
        backend("c", "h:3", True, 2, engine="vllm", https=True),
    )
    found = yaml.safe_load(RENDERERS["litellm"](rotations(hosts)))
    first, second = (each["litellm_params"] for each in found["model_list"])
    assert (first["model"], first["api_base"], first["weight"], first["max_parallel_requests"]) == (
        "openai/m",
        "http://h:1/v1",
        2,
        4,
    )
    assert (second["model"], second["api_base"]) == ("hosted_vllm/m", "https://h:3/v1")
    assert found["model_list"][0]["model_info"] == {"id": "chat@a", "max_input_tokens": 4096}


def test_vllm_router_is_told_its_workers_and_serves_one_endpoint() -> None:
    one = rotations((backend("a", "h:1", True, 4), backend("b", "h:2", False), backend("c", "h:3", True, 2)))
    assert (
        RENDERERS["vllm-router"](one).splitlines()[1]
        == "VLLM_ROUTER_ARGS=--worker-urls http://h:1 http://h:3 --max-concurrent-requests 6"
    )
    two = rotations((backend("a", "h:1", True), backend("a", "h:2", True, endpoint="other")))
    with pytest.raises(UsageError, match="2 endpoints: chat, other"):
        RENDERERS["vllm-router"](two)


def test_prometheus_sees_what_is_broken_too() -> None:
    hosts = (backend("a", "h:1", True, metrics="h:9487"), backend("b", "k:2", False, metrics="k:9487"))
    found = json.loads(RENDERERS["file-sd"](rotations(hosts)))
    assert [(each["targets"], each["labels"]["archon_target"]) for each in found] == [
        (["h:9487"], "exporter"),
        (["k:9487"], "exporter"),
        (["h:1"], "engine"),
        (["k:2"], "engine"),
    ]


def test_every_target_is_offered_rendered_and_published(repository: Path) -> None:
    schema = json.loads((repository / "docs/schemas/fleet-route-1.json").read_text())
    assert set(schema["properties"]["target"]["enum"]) == set(TARGETS) == set(RENDERERS) == set(RELOAD)


def test_a_file_is_written_whole_once_and_behind_a_link(tmp_path: Path) -> None:
    place, link = tmp_path / "real.conf", tmp_path / "link.conf"
    place.write_text("old")
    place.chmod(0o640)
    link.symlink_to(place)
    assert write_route(link, "new\n")
    before = place.stat()
    assert not write_route(link, "new\n")
    assert (place.read_text(), place.stat(), link.is_symlink()) == ("new\n", before, True)
    assert place.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
    for path in (tmp_path, tmp_path / "no" / "such" / "folder", Path("/proc/nope"), Path("/dev/null")):
        with pytest.raises(HostRefusal) as refused:
            write_route(path, "x")
        assert refused.value.code == "fleet-route-unwritable"
