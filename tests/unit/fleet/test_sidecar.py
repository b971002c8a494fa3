"""The sidecar: one verdict a start, no evidence asked for again, a recheck not taken takes nothing away."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from archonctl.errors import NoEvidence
from archonctl.fleet.sidecar import watch as module
from archonctl.fleet.sidecar.pod_log import PodLog
from archonctl.fleet.sidecar.watch import AGAIN_MOST_S, AGAIN_S, State, Watch
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.values import BootLedger
from archonctl.probe.values import Leg, Verdict, VerdictWord
from archonctl.release.load import load_release
from archonctl.service.follow import Health, HealthWord
from support.cluster import as_config_map, cluster_api, of_kind, rendered


@dataclass
class World:
    """An engine that listens on sockets ``start``, and what a probe of it would say."""

    start: frozenset[int] = frozenset()
    health: HealthWord = "refused"
    word: VerdictWord = "holds"
    now: float = 1000.0
    probes: list[tuple[str, bool]] = field(default_factory=list)

    def probe(self, *_words: object, legs: str, extras: object, **_more: object) -> Verdict:
        self.probes.append((legs, getattr(extras, "when_idle", False)))
        return Verdict(self.word, (Leg("a", "pass", "x"),), () if self.word == "holds" else ("why",), {})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(module, "listening", lambda _port: found.start)
    monkeypatch.setattr(module, "http_health", lambda *_words, **_more: Health(found.health))
    monkeypatch.setattr(module, "probe_endpoint", found.probe)
    monkeypatch.setattr(module.time, "monotonic", lambda: found.now)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: setattr(found, "now", found.now + seconds))
    return found


@pytest.fixture
def release(tmp_path: Path) -> Path:
    more = '[kubernetes]\nmemory_mib = 1\n[kubernetes.volumes]\n"/models/qwen3-8b" = "pvc:m"\n'
    bundle = rendered(tmp_path, "vllm", more)
    return as_config_map(of_kind(bundle, "ConfigMap")[0]["data"], tmp_path / "mounted") / "..data"


def boot() -> BootLedger:
    return LedgerReader("vllm").result()


def test_a_verdict_is_of_one_start(world: World, release: Path) -> None:
    heard: list[State] = []
    watch = Watch(load_release(release), boot, recheck_s=0, on_verdict=heard.append)
    watch.step()
    assert (watch.state.word, watch.ready(), world.probes) == ("loading", "loading", [])
    world.start, world.health = frozenset({1}), "loading"
    watch.step()
    assert watch.state.word == "loading"
    world.health = "ready"
    watch.step()
    watch.step()
    assert (watch.state.word, watch.ready(), world.probes) == ("holds", "", [("full", False)])
    world.health = "silent"
    assert watch.ready() == "silent"
    world.start = frozenset({2})
    assert watch.ready().startswith("the engine was started anew")
    watch.step()
    assert watch.state.word == "loading"
    world.health, world.word = "ready", "broken"
    watch.step()
    world.now += 1e6
    watch.step()
    assert (watch.ready(), len(world.probes)) == ("broken: why", 2), "a broken start is not asked for ever"
    assert [each.word for each in heard] == ["holds", "broken"]


def test_no_evidence_is_asked_for_again_with_a_growing_delay(world: World, release: Path) -> None:
    watch = Watch(load_release(release), boot)
    world.start, world.health, world.word = frozenset({1}), "ready", "no evidence"
    watch.step()
    for delay in (AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S, 8 * AGAIN_S, AGAIN_MOST_S, AGAIN_MOST_S):
        before = len(world.probes)
        world.now += delay - 1
        watch.step()
        assert len(world.probes) == before
        world.now += 1
        watch.step()
        assert len(world.probes) == before + 1
    assert watch.state.word == "no evidence"
    world.now, world.word = world.now + AGAIN_MOST_S, "holds"
    watch.step()
    assert watch.ready() == ""


def test_a_recheck_gives_way_and_only_a_verdict_changes_the_word(world: World, release: Path) -> None:
    watch = Watch(load_release(release), boot, recheck_s=3600)
    world.start, world.health = frozenset({1}), "ready"
    watch.step()
    world.now, world.word = world.now + 3600, "no evidence"
    watch.step()
    assert (watch.ready(), world.probes[-1]) == ("", ("admission", True))
    world.now, world.word = world.now + AGAIN_MOST_S, "broken"
    watch.step()
    assert watch.ready() == "broken: why"


def test_a_log_that_cannot_be_read_is_no_evidence(world: World, release: Path) -> None:
    def unreadable() -> BootLedger:
        raise NoEvidence("pod-log-unreadable", "HTTP 403")

    watch = Watch(load_release(release), unreadable)
    world.start, world.health = frozenset({1}), "ready"
    watch.step()
    assert (watch.state.word, watch.state.reasons) == ("no evidence", ("boot-log: pod-log-unreadable: HTTP 403",))
    assert world.probes == []


def test_a_pods_log_is_read_with_its_own_token_and_every_refusal_says_why(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a line\n")
    account = tmp_path / "account"
    with cluster_api(account, tmp_path / "log") as environ:
        assert PodLog.of("engine", environ, account).read() == b"a line\n"
        for change, said in (
            ({"POD_NAME": "other"}, "HTTP 404"),
            ({"KUBERNETES_SERVICE_PORT_HTTPS": "1"}, "ConnectError"),
        ):
            with pytest.raises(NoEvidence, match=said):
                PodLog.of("engine", environ | change, account).read()
        (account / "token").write_text("another")
        with pytest.raises(NoEvidence, match="HTTP 403") as refused:
            PodLog.of("engine", environ, account).read()
        assert (refused.value.code, refused.value.hint) == (
            "pod-log-unreadable",
            "the pod's account needs the right get on pods/log",
        )
        (account / "token").unlink()
        with pytest.raises(NoEvidence, match="FileNotFoundError"):
            PodLog.of("engine", environ, account).read()
    with pytest.raises(NoEvidence, match="POD_NAMESPACE, POD_NAME not set"):
        PodLog.of("engine", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
