"""The exporter as it is installed, beside a real llama-server, journal and Prometheus, on a real systemd."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.sdbox.box import Box
from support.sdbox.endpoint import Applied, applied, eventually

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

PORT = 18210
PROMETHEUS = """
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [/srv/prometheus/rules.yml]
scrape_configs:
  - job_name: archon
    static_configs: [{targets: ['127.0.0.1:9487']}]
"""
REFUSED = """
import json, sys, urllib.error, urllib.request
body = json.dumps({"prompt": list(range(3, 203)) * 3, "n_predict": 1}).encode()
request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
try:
    urllib.request.urlopen(request, timeout=60)
except urllib.error.HTTPError as err:
    error = json.load(err)["error"]
    print(err.code, error.get("type"), error.get("code"))
"""
GET = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"

FORETOLD = """
[[predict]]
name = "kv_tokens"
expect = 1024
[[predict]]
name = "ttft_s"
expect = 4096
"""
Values = dict[tuple[str, ...], float]


@pytest.fixture(scope="module")
def seen(box: Box, repository: Path, llama_server: Path) -> Iterator[Applied]:
    """The box with an endpoint that was applied and holds, and the exporter enabled."""
    with applied(box, repository, llama_server, "seen", PORT, "threads = 1, metrics = true", FORETOLD) as found:
        drop_in = "[Service]\nExecStart=\nExecStart=/usr/bin/archonctl exporter --every 1\n"
        box.put("/etc/systemd/system/archon-exporter.service.d/quick.conf", drop_in)
        box("systemctl", "daemon-reload")
        box("systemctl", "start", "archon-exporter")
        yield found
        box.run("systemctl", "stop", "archon-exporter", "archon-guard@seen", "prometheus-test")
        drop_ins = [f"/etc/systemd/system/{unit}.service.d" for unit in ("archon-exporter", "archon-guard@seen")]
        box.run("rm", "-rf", *drop_ins, "/srv/prometheus")


@pytest.fixture
def running(seen: Applied) -> Box:
    """The box that it runs in."""
    return seen.box


def get(box: Box, url: str) -> str:
    return box("/usr/bin/python3", "-I", "-c", GET, url)


def scraped(box: Box) -> Values:
    """Every sample, by its name and the values of its labels in the order of their names."""
    families = text_string_to_metric_families(get(box, "http://127.0.0.1:9487/metrics"))  # type: ignore[no-untyped-call]
    return {
        (each.name, *(value for _, value in sorted(each.labels.items()))): each.value
        for family in families
        for each in family.samples
    }


def value(box: Box, *key: str) -> float | None:
    try:
        return scraped(box).get(key)
    except AssertionError:
        return None


def test_it_shows_what_was_promised_planned_and_seen_and_runs_without_privileges(seen: Applied) -> None:
    running, said = seen.box, lambda: seen.journal("archon-exporter")
    eventually(lambda: value(running, "archon_engine_requests_running", "seen"), 0.0, said)
    found = scraped(running)
    assert found["archon_verdict", "seen", "holds"] == 1
    assert found["archon_contract_tokens", "seen"] == 1024
    assert found["archon_live_capacity_tokens", "seen"] >= 1024
    assert found["archon_planned_capacity_tokens", "best", "seen"] == found["archon_live_capacity_tokens", "seen"]
    assert found["archon_predictions", "seen", "hit"] == 1
    assert found["archon_predictions", "seen", "falsified"] == 1
    assert found["archon_prediction_error_ratio", "seen", "kv_tokens"] == 0
    assert found["archon_release_runs", "seen"] == 1
    assert found["archon_unit_state", "seen", "active"] == 1
    eventually(lambda: {key: up for key, up in scraped(running).items() if key[0] == "archon_look_up" and not up}, {})
    pid = running.show("archon-exporter", "MainPID")["MainPID"]
    assert running("stat", "-c", "%U", f"/proc/{pid}") not in ("root", "archon")
    assert "CapEff:\t0000000000000000" in running("cat", f"/proc/{pid}/status")


def test_a_hanging_engine_costs_a_scrape_nothing_and_is_seen(running: Box) -> None:
    pid = running.show("archon@seen", "MainPID")["MainPID"]
    running("kill", "-STOP", pid)
    try:
        eventually(lambda: value(running, "archon_look_up", "seen", "engine"), 0.0)
        assert value(running, "archon_verdict", "seen", "holds") == 1
    finally:
        running("kill", "-CONT", pid)
    eventually(lambda: value(running, "archon_look_up", "seen", "engine"), 1.0)


def test_memory_that_ran_out_is_counted_by_class_and_its_site_is_found(running: Box) -> None:
    assert running.run("/usr/bin/archonctl", "failures").returncode == 0
    line = "CUDA error: out of memory"
    # the engine's own words: written by a process of its unit
    running.put("/etc/systemd/system/archon@seen.service.d/50-says.conf", f"[Service]\nExecStartPre=/bin/echo {line}\n")
    running("systemctl", "daemon-reload")
    running("systemctl", "restart", "archon@seen", timeout=240)
    running("rm", "/etc/systemd/system/archon@seen.service.d/50-says.conf")
    running("systemctl", "daemon-reload")
    eventually(lambda: value(running, "archon_memory_failures_total", "engine", "unknown", "seen"), 1.0)
    done = running.run("/usr/bin/archonctl", "failures", "seen", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert [(each["endpoint"], each["by"], each["site"]) for each in found["failures"]] == [("seen", "engine", line)]


def test_a_real_request_that_the_engine_refuses_is_counted_by_class_and_reason(seen: Applied) -> None:
    key = ("archon_admission_refusals_total", "engine", "kv_cache", "seen", "never_fits")
    eventually(lambda: value(seen.box, *key) is not None, True, lambda: seen.journal("archon-exporter"))
    before = value(seen.box, *key) or 0  # a verification asks for such a one too
    for _ in range(2):
        said = seen.box("/usr/bin/python3", "-I", "-c", REFUSED, f"http://127.0.0.1:{PORT}/completion")
        assert said == "400 exceed_context_size_error 400"
    eventually(lambda: value(seen.box, *key), before + 2, seen.journal)
    assert value(seen.box, "archon_memory_failures_total", "engine", "kv_cache", "seen") == 0, "nothing ran out"


def test_what_a_real_guard_turns_away_is_counted_as_the_guards(seen: Applied) -> None:
    where = "[Service]\nEnvironment=ARCHON_GUARD_LISTEN=127.0.0.1:18211 ARCHON_GUARD_ADMIN=127.0.0.1:18212\n"
    seen.box.put("/etc/systemd/system/archon-guard@seen.service.d/where.conf", where)
    seen.box("systemctl", "daemon-reload")
    done = seen.box.run("systemctl", "start", "archon-guard@seen")
    assert done.returncode == 0, done.stderr + seen.journal("archon-guard@seen")
    key = ("archon_admission_refusals_total", "guard", "kv_cache", "seen", "never_fits")
    eventually(lambda: value(seen.box, *key), 0.0, lambda: seen.journal("archon-exporter"))
    said = seen.box("/usr/bin/python3", "-I", "-c", REFUSED, "http://127.0.0.1:18211/completion")
    assert said.endswith(" request-over-window"), said
    eventually(lambda: value(seen.box, *key), 1.0, lambda: seen.journal("archon-guard@seen"))
    seen.box("systemctl", "stop", "archon-guard@seen")
    eventually(lambda: value(seen.box, *key), None, lambda: seen.journal("archon-exporter"))


def test_a_start_that_is_refused_and_a_unit_that_systemd_gives_up_are_counted(seen: Applied) -> None:
    box, said = seen.box, lambda: seen.journal() + seen.journal("archon-exporter")
    seen.module("place_release", seen.declaration, "--ctx-size", "512")
    assert box.run("systemctl", "restart", seen.unit, timeout=120).returncode != 0
    eventually(lambda: {key[1] for key in scraped(box) if key[0] == "archon_unit_refusal"}, {"kv-tokens-short"}, said)
    assert value(box, "archon_unit_start_limit_hits_total", "seen") == 0
    drop_in = f"/etc/systemd/system/{seen.unit}.d/50-falls.conf"
    falls = "[Unit]\nStartLimitBurst=2\n[Service]\nExecStart=\nExecStart=/bin/false\nExecStartPost=\nRestartSec=100ms\n"
    box.put(drop_in, falls)
    box("systemctl", "daemon-reload")
    box("systemctl", "reset-failed", seen.unit)
    box.run("systemctl", "start", seen.unit, timeout=120)
    eventually(lambda: value(box, "archon_unit_start_limit_hits_total", "seen"), 1.0, said)
    box("rm", drop_in)
    box("systemctl", "daemon-reload")
    box("systemctl", "reset-failed", seen.unit)
    done = box.run("/usr/bin/archonctl", "apply", seen.declaration, "--yes", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus: apt-get install prometheus")
def test_prometheus_fires_when_the_contract_breaks_and_rests_when_it_is_mended(seen: Applied, repository: Path) -> None:
    running = seen.box
    rules = (repository / "observe/prometheus/archon.rules.yml").read_text(encoding="utf-8")
    running.put("/srv/prometheus/rules.yml", rules.replace("for: 1m", "for: 1s"))
    running.put("/srv/prometheus/prometheus.yml", PROMETHEUS)
    words = ["--config.file=/srv/prometheus/prometheus.yml", "--storage.tsdb.path=/srv/prometheus/data"]
    words.append("--web.listen-address=127.0.0.1:9490")
    running("systemd-run", "--unit=prometheus-test", "prometheus", *words)

    def firing() -> set[str] | None:
        try:
            data = json.loads(get(running, "http://127.0.0.1:9490/api/v1/alerts"))["data"]
        except AssertionError:
            return None
        return {each["labels"]["alertname"] for each in data["alerts"] if each["state"] == "firing"}

    eventually(lambda: value(running, "archon_verdict", "seen", "holds"), 1.0)
    eventually(lambda: firing() is not None, True, lambda: running("journalctl", "-u", "prometheus-test", "-o", "cat"))
    seen.halve()
    assert running.run("/usr/bin/archonctl", "verify", "seen", "--leg", "ledger", timeout=150).returncode == 1
    wanted = {"ArchonContractBroken", "ArchonContractShort"}
    eventually(lambda: wanted & (firing() or set()), wanted)
    running("rm", f"/etc/systemd/system/{seen.unit}.d/50-unasked.conf")
    running("systemctl", "daemon-reload")
    done = running.run("/usr/bin/archonctl", "apply", seen.declaration, "--yes", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: wanted & (firing() or wanted), set())


def test_the_report_tells_what_the_journal_says_of_a_real_unit(running: Box) -> None:
    page = running("/usr/bin/archonctl", "report", "seen", "--since", "1h")
    assert "Started " in page[page.index(">Timeline<") :], "systemd's own words"
    assert "The journal does not tell" not in page
    assert "<strong>applied</strong>" in page
    assert "archon@seen.service</code>: active (running)" in page
    lines = running("/usr/bin/archonctl", "history", "seen", "--export", "jsonl").splitlines()
    events = [json.loads(line) for line in lines]
    applied = next(each for each in events if each["event"] == "applied")
    assert (applied["live_tokens"], applied["contract_tokens"]) == (1024, 1024)
    assert running.run("/usr/bin/archonctl", "compare", "seen", "seen").returncode == 0
    as_nobody = running("setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/archonctl", "report", "seen")
    assert "<h1><bdi>seen</bdi></h1>" in as_nobody, "it needs no privileges"
