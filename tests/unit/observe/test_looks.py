"""What the exporter sees of an installed endpoint, and what a scrape shows of it."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from archonctl.deployment.load import load_endpoint
from archonctl.deployment.schema import Endpoint, Prediction
from archonctl.errors import HostRefusal
from archonctl.observe.board import Board
from archonctl.observe.catalogue import metrics
from archonctl.observe.endpoint_look import Verdicts, state_look, unit_look
from archonctl.observe.engine_look import engine_look
from archonctl.observe.exporter import EVERY_S, PLAN_EVERY_S, Looker
from archonctl.observe.host_look import host_look
from archonctl.observe.plan_look import plan_look
from archonctl.observe.serve import serving, text
from archonctl.observe.values import Sample, sample
from archonctl.plan.build import plan_endpoint
from archonctl.probe.faults import Fault
from archonctl.probe.limits import Limits
from archonctl.service.installed import Installed
from archonctl.service.unit import UnitState
from archonctl.service.verdict_store import keep
from support.simd import NAME, Simd, do_apply, endpoint, machine

Values = dict[tuple[str, ...], float]


@pytest.fixture
def simd(tmp_path: Path) -> Simd:
    """A machine with an endpoint that holds."""
    found = machine(tmp_path)
    do_apply(found, "a")
    return found


def values(samples: list[Sample]) -> Values:
    return {(each.metric, *each.labels): each.value for each in samples}


def state_of(simd: Simd) -> UnitState:
    return simd.show(simd.installed.unit)


def stored(simd: Simd, tokens: object, invocation: str, **facts: object) -> None:
    """A verdict in the store, as ``archonctl verify`` leaves it."""
    value = {
        "schema": "archonctl.verify/1",
        "endpoint": NAME,
        "verdict": "holds",
        "reasons": [],
        "invocation": invocation,
        "probe": {"legs": [], "facts": {"kv_tokens_logged": tokens, **facts}},
    }
    keep(simd.installed.folder, simd.installed.current(), "verify", value, time.time())


def test_contract_verdict_and_age_are_shown(simd: Simd) -> None:
    found = values(state_look(simd.installed, state_of(simd)))
    assert found["archon_contract_tokens", NAME] == 1024
    assert found["archon_verdict", NAME, "holds"] == 1
    assert sum(value for key, value in found.items() if key[0] == "archon_verdict") == 1
    assert 0 <= found["archon_evidence_age_seconds", NAME] < 3600
    assert found["archon_endpoint_info", NAME, "llamacpp", "", simd.installed.current()] == 1


def test_no_boot_log_is_no_capacity_and_not_zero(simd: Simd) -> None:
    assert not any("capacity" in key[0] for key in values(state_look(simd.installed, state_of(simd))))


@pytest.mark.parametrize(("tokens", "spare"), [(1500, 476), (1000, -24)])
def test_the_live_capacity_is_what_this_very_start_logged(simd: Simd, tokens: int, spare: int) -> None:
    stored(simd, 9999, "another start")
    stored(simd, tokens, state_of(simd).invocation)
    stored(simd, 9999, "yet another")
    found = values(state_look(simd.installed, state_of(simd)))
    assert found["archon_live_capacity_tokens", NAME] == tokens
    assert found["archon_contract_spare_tokens", NAME] == spare
    down = replace(state_of(simd), active="failed")
    assert ("archon_live_capacity_tokens", NAME) not in values(state_look(simd.installed, down))


@pytest.mark.parametrize(
    ("said", "shown"), [("b11434-unknown", True), ('x"}\n', False), ("v" * 99, False), (7, False), (None, False)]
)
def test_the_version_that_runs_is_what_it_stated_where_a_label_can_hold_it(
    simd: Simd, said: object, *, shown: bool
) -> None:
    stored(simd, 1500, state_of(simd).invocation, engine_version=said)
    stored(simd, None, state_of(simd).invocation)
    found = values(state_look(simd.installed, state_of(simd)))
    assert (("archon_engine_info", NAME, said) in found) is shown
    assert found["archon_live_capacity_tokens", NAME] == 1500, "of the earlier look: the later had no log any more"


@pytest.mark.parametrize("tokens", [None, "many", [], {}])
def test_a_stored_verdict_that_makes_no_sense_has_no_capacity(simd: Simd, tokens: object) -> None:
    stored(simd, tokens, state_of(simd).invocation)
    assert ("archon_live_capacity_tokens", NAME) not in values(state_look(simd.installed, state_of(simd)))


def test_the_latest_refusal_is_shown_by_its_code(simd: Simd) -> None:
    run = simd.root / "run/archon"
    run.mkdir(parents=True)
    (run / f"{NAME}.preflight").write_text("refused i-1 ttm-below-floor host\nwords\n")
    found = values(unit_look(simd.installed, state_of(simd)))
    assert found["archon_unit_refusal", NAME, "ttm-below-floor"] > 0
    (run / f"{NAME}.preflight").write_text("ok i-1\n")
    assert not [key for key in values(unit_look(simd.installed, state_of(simd))) if "refusal" in key[0]]


def test_labels_stay_bounded_whatever_is_declared_or_left_in_a_file(
    simd: Simd, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["long" * 100, *(f"p{number}" for number in range(500))]
    scored = [{"name": name, "expect": 1.0, "band": 0.1, "score": "hit", "off": 0.01} for name in names]
    foretold = tuple(Prediction(name=name, expect=1.0, band=0.1) for name in names)
    release = simd.installed.stored(simd.installed.current())
    declared = release.loaded.endpoint.model_copy(update={"predict": foretold})
    hostile = replace(release, loaded=replace(release.loaded, endpoint=declared))
    monkeypatch.setattr(Installed, "stored", lambda *_: hostile)
    value = {"invocation": "x", "probe": {"legs": [], "predictions": scored}}
    keep(simd.installed.folder, release.digest, "verify", value, time.time())
    found = values(state_look(simd.installed, state_of(simd)))
    shown = [key[2] for key in found if key[0] == "archon_prediction_error_ratio"]
    assert len(shown) == 50
    assert max(map(len, shown)) < 100
    assert found["archon_predictions", NAME, "hit"] == 501
    (simd.root / "run/archon").mkdir(parents=True)
    (simd.root / f"run/archon/{NAME}.preflight").write_text(f'refused i-1 {"a" * 3000}"\x00 host\n')
    assert not [key for key in values(unit_look(simd.installed, state_of(simd))) if "refusal" in key[0]]


def test_another_command_line_than_the_releases_is_seen(simd: Simd) -> None:
    assert values(unit_look(simd.installed, state_of(simd)))["archon_release_runs", NAME] == 1
    state = state_of(simd)
    (simd.root / "proc" / str(state.main_pid) / "cmdline").write_bytes(b"/bin/engine\0--other\0")
    assert values(unit_look(simd.installed, state))["archon_release_runs", NAME] == 0


def test_a_plan_is_shown_by_class_scope_and_card(repository: Path) -> None:
    plan = plan_endpoint(load_endpoint(repository / "env/archon.toml", {}, {}))
    found = values(plan_look("archon", plan))
    assert found["archon_plan_bytes", "archon", "ddr_cache", "host", "", ""] == 8192 << 20
    assert found["archon_ttm_floor_bytes", "archon"] == 150_200 << 20
    tokens = [found["archon_planned_capacity_tokens", "archon", bound] for bound in ("low", "best", "high")]
    assert tokens == [600_348, 639_137, 645_969]
    want, budget = (found[f"archon_plan_{each}_bytes", "archon", "host", ""] for each in ("want", "budget"))
    assert found["archon_plan_margin_bytes", "archon", "host", ""] == budget - want


def test_the_hosts_memory_and_limit_are_shown(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 400 kB\nMlocked: x kB\n")
    limit = tmp_path / "sys/module/ttm/parameters"
    limit.mkdir(parents=True)
    (limit / "pages_limit").write_text("1000\n")
    found = values(host_look(tmp_path))
    assert found["archon_host_memory_bytes", "total"] == 1000 * 1024
    assert found["archon_ttm_limit_bytes",] == 1000 * 4096
    assert ("archon_host_memory_bytes", "locked") not in found


@pytest.fixture
def engine() -> Iterator[tuple[int, dict[str, bytes]]]:
    """A server that answers paths with what is put for them, and 404 else."""
    pages: dict[str, bytes] = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            if body == b"hang":
                time.sleep(3)
            self.send_response(200 if body is not None else 501)
            self.end_headers()
            self.wfile.write(body or b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port, pages
    server.shutdown()
    server.server_close()


def declared(port: int) -> Endpoint:
    found = endpoint("a").endpoint
    return found.model_copy(update={"service": found.service.model_copy(update={"listen": f"127.0.0.1:{port}"})})


def test_an_engine_without_metrics_still_tells_its_busy_slots(engine: tuple[int, dict[str, bytes]]) -> None:
    port, pages = engine
    pages["/slots"] = b'[{"id":0,"is_processing":true},{"id":1,"is_processing":false}]'
    assert values(engine_look(NAME, declared(port))) == {("archon_engine_requests_running", NAME): 1}


def test_a_key_that_may_not_be_read_keeps_nobody_from_open_metrics(engine: tuple[int, dict[str, bytes]]) -> None:
    port, pages = engine
    pages["/metrics"] = b"llamacpp:requests_processing 1\n"
    found = declared(port)
    service = found.service.model_copy(update={"api_key_file": "/no/such/key"})
    assert engine_look(NAME, found.model_copy(update={"service": service}))


def test_an_engine_that_publishes_nothing_is_a_failed_look(engine: tuple[int, dict[str, bytes]]) -> None:
    with pytest.raises(Fault, match="/slots: HTTP 501"):
        engine_look(NAME, declared(engine[0]))


@pytest.mark.parametrize("body", [b"hang", b"\xff\xfe{", b"[[[[", b"llamacpp:requests_processing NaN\n"])
def test_an_engine_that_hangs_or_talks_nonsense_is_a_failed_look(
    engine: tuple[int, dict[str, bytes]], body: bytes
) -> None:
    port, pages = engine
    pages["/metrics"] = pages["/slots"] = body
    with pytest.raises(Fault):
        engine_look(NAME, declared(port), Limits(connect_s=0.3, read_s=0.3))


def test_what_is_not_looked_at_any_more_is_withdrawn_and_its_age_stays() -> None:
    now = [0.0]
    board = Board(stale_s=60, clock=lambda: now[0])
    board.put("a", "unit", [sample("archon_unit_restarts_total", "a", value=3)])
    now[0] = 50.0
    board.fail("a", "unit")
    found = values(board.samples())
    assert found["archon_unit_restarts_total", "a"] == 3
    assert (found["archon_look_up", "a", "unit"], found["archon_look_age_seconds", "a", "unit"]) == (0, 50)
    now[0] = 61.0
    found = values(board.samples())
    assert ("archon_unit_restarts_total", "a") not in found
    assert found["archon_look_age_seconds", "a", "unit"] == 61
    board.keep_only(["b"])
    assert board.samples() == []


class Rounds:
    """A looker over one simulated machine whose systemd can be made to fail."""

    def __init__(self, simd: Simd) -> None:
        self.simd, self.board, self.said, self.dead = simd, Board(), list[str](), False
        self.names = [NAME]
        self.looker = Looker(self.board, self.endpoints, self.show, self.said.append)

    def endpoints(self) -> list[Installed]:
        return [Installed(name, self.simd.root) for name in self.names]

    def show(self, installed: Installed) -> UnitState:
        if self.dead:
            raise HostRefusal("systemctl-failed", "no bus")
        return self.simd.show(installed.unit)


@pytest.fixture
def rounds(simd: Simd) -> Iterator[Rounds]:
    found = Rounds(simd)
    yield found
    found.looker.close()


def test_a_look_that_fails_is_said_once_and_when_it_is_well_again(rounds: Rounds) -> None:
    rounds.looker.once(wait_s=120)
    rounds.dead = True
    rounds.looker.once(wait_s=120)
    rounds.looker.once(wait_s=120)
    found = values(rounds.board.samples())
    assert found["archon_look_up", NAME, "unit"] == 0
    assert found["archon_verdict", NAME, "holds"] == 1
    rounds.dead = False
    rounds.looker.once(wait_s=120)
    assert [each for each in rounds.said if ": unit: " in each] == [
        f"{NAME}: unit: no bus",
        f"{NAME}: unit: well again",
    ]


def test_an_engine_that_is_dead_and_a_model_that_is_gone_cost_their_own_looks_only(rounds: Rounds) -> None:
    rounds.looker.once(wait_s=120)
    found = values(rounds.board.samples())
    assert [found["archon_look_up", NAME, look] for look in ("state", "unit", "engine", "plan")] == [1, 1, 0, 0]


def test_endpoints_that_cannot_be_listed_are_not_gone(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds.looker.once(wait_s=120)

    def unreadable() -> list[Installed]:
        raise HostRefusal("state-unreadable", "Permission denied")

    monkeypatch.setattr(rounds.looker, "_list", unreadable)
    rounds.looker.once()
    found = values(rounds.board.samples())
    assert (found["archon_look_up", "", "state"], found["archon_verdict", NAME, "holds"]) == (0, 1)
    assert "host: state: Permission denied" in rounds.said


def test_a_defect_in_one_look_is_a_look_that_failed_and_ends_nothing(
    rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archonctl.observe.exporter.unit_look", lambda *_: 1 / 0)
    rounds.looker.once()
    assert values(rounds.board.samples())["archon_look_up", NAME, "unit"] == 0
    assert f"{NAME}: unit: division by zero" in rounds.said
    with pytest.raises(ZeroDivisionError):
        rounds.looker.once(wait_s=120)


def test_a_systemd_that_hangs_is_asked_once_a_round(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def hangs(installed: Installed) -> UnitState:
        asked.append(installed.name)
        raise HostRefusal("systemctl-failed", "systemctl show did not return in 10 s")

    monkeypatch.setattr("archonctl.observe.exporter.HUNG_S", -1.0)
    monkeypatch.setattr(rounds.looker, "_show", hangs)
    rounds.names = [NAME, "b", "c"]
    rounds.looker.once()
    assert asked == [NAME]
    found = values(rounds.board.samples())
    assert [found["archon_look_up", name, look] for name in rounds.names for look in ("unit", "state")] == [0] * 6


def test_kept_verdicts_are_read_again_only_when_there_is_another(simd: Simd, monkeypatch: pytest.MonkeyPatch) -> None:
    from archonctl.observe import endpoint_look

    read: list[Path] = []
    load = endpoint_look.load
    monkeypatch.setattr(endpoint_look, "load", lambda path: read.append(path) or load(path))  # type: ignore[func-returns-value]
    verdicts, now = Verdicts(), state_of(simd)
    stored(simd, 1500, now.invocation)
    first = values(state_look(simd.installed, now, verdicts))
    count = len(read)
    again = values(state_look(simd.installed, now, verdicts))
    assert count == len(read)
    assert {k for k in first if "age" not in k[0]} == {k for k in again if "age" not in k[0]}
    stored(simd, 1600, now.invocation)
    assert values(state_look(simd.installed, now, verdicts))["archon_live_capacity_tokens", NAME] == 1600


def test_an_endpoint_that_is_gone_is_forgotten(rounds: Rounds) -> None:
    rounds.looker.once(wait_s=120)
    rounds.names = []
    rounds.looker.once(wait_s=120)
    assert {each.labels[0] for each in rounds.board.samples() if each.metric == "archon_look_up"} == {""}


def test_a_scrape_is_prometheus_text_or_openmetrics_and_every_metric_has_its_help(rounds: Rounds) -> None:
    rounds.looker.once(wait_s=120)
    with serving(rounds.board, "127.0.0.1", 0) as port:
        url = f"http://127.0.0.1:{port}/metrics"
        with urlopen(url, timeout=60) as plain:
            families = list(text_string_to_metric_families(plain.read().decode()))  # type: ignore[no-untyped-call]
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        with urlopen(Request(url, headers=accept), timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            open_families = list(openmetrics(answer.read().decode()))
    rows = metrics()
    for family in families:
        row = rows[family.name if family.name in rows else f"{family.name}_total"]
        assert family.documentation == row.help
        assert all(set(each.labels) == set(row.labels) for each in family.samples)
    assert {f.name.removesuffix("_total") for f in families} == {f.name for f in open_families}


def test_a_port_that_is_taken_is_refused_by_name(rounds: Rounds) -> None:
    with (
        serving(rounds.board, "127.0.0.1", 0) as port,
        pytest.raises(HostRefusal, match="port-in-use"),
        serving(rounds.board, "127.0.0.1", port),
    ):
        pass


def test_a_client_that_says_nothing_keeps_nobody_waiting(rounds: Rounds) -> None:
    with serving(rounds.board, "127.0.0.1", 0) as port, ExitStack() as silent:
        for _ in range(8):
            silent.enter_context(socket.create_connection(("127.0.0.1", port)))
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.status == 200


def test_hostile_label_values_stay_within_their_quotes() -> None:
    board = Board()
    board.put("a", "unit", [sample("archon_unit_refusal", "a", 'x"}\n# HELP evil', value=1)])
    lines = [line for line in text(board).splitlines() if "evil" in line]
    assert lines == [r'archon_unit_refusal{code="x\"}\n# HELP evil",endpoint="a"} 1.0']


def test_a_plan_is_made_again_before_the_one_before_is_withdrawn() -> None:
    assert Board().stale_s > PLAN_EVERY_S + 2 * EVERY_S


def test_an_exporter_loads_no_library_for_terminals() -> None:
    look = "import sys, archonctl.observe.exporter; print({'httpx', 'click', 'rich', 'pygments'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "{'httpx'}\n"
