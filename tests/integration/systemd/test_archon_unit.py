"""The installed units on a real systemd, with a real llama-server: what a start promises, and what is not retried."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box, equip, install
from support.sdbox.endpoint import eventually

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = Path(sys.executable).with_name("archonctl")
UNIT = "archon@unit.service"
ENGINE = "/srv/unit/llama-server"
DECLARATION = """
[contract]
seqs = 2
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{binary}"
knobs = {{ threads = 1 }}
[engine.env]
LD_PRELOAD = "{preload}"
[model]
path = "/srv/unit/model.gguf"
[service]
user = "archon"
listen = "127.0.0.1:18200"
load_timeout_s = {load_s}
"""
# Tries follow each other at once, and are counted as in the unit itself.
QUICK = "[Service]\nRestartSec=100ms\n"

Place = Callable[..., None]


@pytest.fixture(scope="module")
def installed(box: Box, repository: Path, llama_server: Path) -> Iterator[Box]:
    """The box with archonctl installed in it, an engine and a model."""
    install(box, CLI)
    equip(box, repository, llama_server, "/srv/unit")
    yield box
    done = box.run(CLI, "install", "--uninstall", timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def place(installed: Box, repository: Path) -> Iterator[Place]:
    """``place("--no-such-flag", binary="...")``: a release, current, with its drop-in; systemd knows it."""

    def run(*words: str, binary: str = ENGINE, preload: str = "", preflight: str = "", load_s: int = 60) -> None:
        text = DECLARATION.format(binary=binary, preload=preload, load_s=load_s)
        installed.put("/etc/archon/unit.toml", text if preload else text.replace('LD_PRELOAD = ""\n', ""))
        path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
        env = ["env", path, *([f"PREFLIGHT_TEXT={preflight}"] if preflight else [])]
        installed(*env, sys.executable, "-m", "support.place_release", "/etc/archon/unit.toml", *words)
        installed.put(f"/etc/systemd/system/{UNIT}.d/90-quick.conf", QUICK)
        installed("systemctl", "daemon-reload")

    yield run
    installed.run("systemctl", "stop", UNIT)
    installed.run("systemctl", "reset-failed")
    installed.run("rm", "-rf", "/var/lib/archon/unit", f"/etc/systemd/system/{UNIT}.d", "/etc/archon/on-failure")
    installed.run("sh", "-c", "rm -f /run/archon/unit.* /srv/unit/count")


def start(box: Box) -> int:
    return box.run("systemctl", "start", UNIT, timeout=120).returncode


def settled(box: Box, *names: str) -> dict[str, str]:
    """The unit's properties once it is up, or down for good."""
    end = time.monotonic() + 180
    while time.monotonic() < end:
        shown = box.show(UNIT, "ActiveState", "NRestarts", "Result", "MainPID", "StatusText", *names)
        if shown["ActiveState"] in ("active", "failed", "inactive"):
            return shown
        time.sleep(0.1)
    pytest.fail(box("journalctl", "-u", UNIT, "-n", "40", "--no-pager"))


def verdict(box: Box) -> dict[str, object]:
    found: dict[str, object] = json.loads(box("cat", "/run/archon/unit.verdict.json"))
    return found


def journal(box: Box) -> str:
    return box("journalctl", "-u", UNIT, "-o", "cat", "--no-pager")


def counting(box: Box, what: str, name: str = "engine") -> str:
    """An engine that counts how often it is started and then does ``what`` (shell)."""
    box.put(f"/srv/unit/{name}", f"#!/bin/sh\necho start >>/srv/unit/count\n{what}\n", "755")
    box("sh", "-c", "rm -f /srv/unit/count; : >/srv/unit/count; chmod 666 /srv/unit/count")
    return f"/srv/unit/{name}"


def starts(box: Box) -> int:
    return len(box("cat", "/srv/unit/count").splitlines())


def test_a_start_returns_when_the_contract_is_verified_and_then_only_the_engine_runs(
    installed: Box, place: Place
) -> None:
    place()
    assert start(installed) == 0, journal(installed)
    shown = installed.show(UNIT, "ActiveState", "MainPID", "NRestarts", "StatusText", "ControlGroup", "InvocationID")
    assert (shown["ActiveState"], shown["NRestarts"]) == ("active", "0")
    assert shown["StatusText"].startswith("holds: 1,024 KV tokens of 1,024")
    found = verdict(installed)
    assert (found["verdict"], found["invocation"], found["pid"]) == (
        "holds",
        shown["InvocationID"],
        int(shown["MainPID"]),
    )
    release = installed("readlink", "/var/lib/archon/unit/releases/current")
    assert str(found["release"]).startswith(release)
    assert installed("stat", "-c", "%U %a", "/run/archon/unit.verdict.json") == "root 644"
    assert installed("cat", f"/proc/{shown['MainPID']}/comm") == "llama-server"
    assert installed("stat", "-c", "%U", f"/proc/{shown['MainPID']}") == "archon"
    assert installed("pgrep", "-u", "archon", "-c") == "1"
    assert installed.run("pgrep", "-u", "archon-verify").returncode == 1


def test_a_broken_contract_fails_the_start_and_is_not_retried(installed: Box, place: Place) -> None:
    place("--ctx-size", "512", binary=counting(installed, f'exec {ENGINE} "$@"'))
    installed.put("/etc/archon/on-failure", '#!/bin/sh\necho "hook: $1 $2"\n', "755")
    assert start(installed) == 1
    shown = settled(installed)
    assert (shown["ActiveState"], shown["NRestarts"]) == ("failed", "0")
    assert starts(installed) == 1
    found = verdict(installed)
    assert found["verdict"] == "broken"
    assert installed.run("pgrep", "-u", "archon").returncode == 1
    alert = ["journalctl", "-o", "cat", "-u", "archon-failed@unit.service", "--no-pager"]
    eventually(lambda: f"hook: unit {found['code']} (final)" in installed(*alert), True)
    assert f"unit is not serving as promised: {found['code']}" in installed(*alert, "-p", "alert")


def test_a_usage_error_of_the_engine_runs_it_once(installed: Box, place: Place) -> None:
    place(binary=counting(installed, f'exec {ENGINE} "$@" --no-such-flag'))
    assert start(installed) == 1
    shown = settled(installed)
    assert shown["ActiveState"] == "failed"
    assert starts(installed) == 1
    assert verdict(installed)["code"] == "engine-exited-at-boot"
    assert "failed for good" in journal(installed)
    # a person who starts it again is not refused for what was
    counting(installed, f'exec {ENGINE} "$@"')
    assert start(installed) == 0, journal(installed)


def test_an_engine_that_crashes_at_boot_is_tried_five_times_and_no_more(installed: Box, place: Place) -> None:
    place(binary=counting(installed, "kill -SEGV $$"))
    start(installed)
    end = time.monotonic() + 180
    while time.monotonic() < end and starts(installed) < 5:
        time.sleep(0.2)
    time.sleep(1.5)
    shown = settled(installed)
    assert (shown["ActiveState"], starts(installed)) == ("failed", 5)


def test_a_passing_fault_at_boot_is_tried_again_and_the_next_start_is_verified(installed: Box, place: Place) -> None:
    once = f'[ $(wc -l </srv/unit/count) -gt 1 ] || exec sh -c "kill -KILL \\$\\$"\nexec {ENGINE} "$@"'
    place(binary=counting(installed, once))
    start(installed)
    end = time.monotonic() + 180
    while time.monotonic() < end and installed.show(UNIT, "ActiveState")["ActiveState"] != "active":
        time.sleep(0.2)
    shown = settled(installed)
    assert (shown["ActiveState"], starts(installed)) == ("active", 2)
    assert verdict(installed)["verdict"] == "holds"


def test_a_killed_engine_is_started_anew_and_verified_anew(installed: Box, place: Place) -> None:
    place()
    assert start(installed) == 0
    before = verdict(installed)
    installed("kill", "-9", str(before["pid"]))
    end = time.monotonic() + 180
    while time.monotonic() < end and verdict(installed)["invocation"] == before["invocation"]:
        time.sleep(0.2)
    shown = settled(installed)
    after = verdict(installed)
    assert (shown["ActiveState"], after["verdict"]) == ("active", "holds")
    assert after["pid"] != before["pid"]


def test_an_engine_that_a_sites_watchdog_ends_is_started_anew(installed: Box, place: Place) -> None:
    place(binary=counting(installed, f'exec {ENGINE} "$@"'))
    # No engine here pets a watchdog: one that a site sets ends it by SIGABRT, as it would one that hangs. Without the
    # verdict, which asks systemd for more time: that puts off the first bite of the watchdog too.
    quick = "[Service]\nExecStartPost=\nWatchdogSec=2\nTimeoutAbortSec=1\n"
    installed.put(f"/etc/systemd/system/{UNIT}.d/91-watchdog.conf", quick)
    installed("systemctl", "daemon-reload")
    assert start(installed) == 0, journal(installed)
    end = time.monotonic() + 180
    while time.monotonic() < end and starts(installed) < 2:
        time.sleep(0.2)
    assert starts(installed) >= 2
    assert "Watchdog timeout" in journal(installed)


def test_a_killed_verifier_fails_the_start(installed: Box, place: Place) -> None:
    place()
    installed("systemctl", "start", "--no-block", UNIT)
    end = time.monotonic() + 180
    while time.monotonic() < end and installed.run("pkill", "-9", "-f", "archonctl verify unit").returncode:
        time.sleep(0.02)
    shown = settled(installed)
    assert (shown["ActiveState"], shown["NRestarts"]) == ("failed", "0")
    assert installed.run("pgrep", "-u", "archon").returncode == 1


def test_the_engine_outlives_the_journal_and_the_timers_verdict_comes_from_the_same_rules(
    installed: Box, place: Place
) -> None:
    place()
    assert start(installed) == 0
    pid = installed.show(UNIT, "MainPID")["MainPID"]
    installed("systemctl", "kill", "-s", "KILL", "systemd-journald")
    time.sleep(0.5)
    done = installed.run("systemctl", "start", "archon-verify@unit.service", timeout=120)
    said = installed("journalctl", "-u", "archon-verify@unit.service", "-o", "cat", "--no-pager")
    assert done.returncode == 0, said
    assert verdict(installed)["depth"] == "admission"
    assert installed.show(UNIT, "MainPID", "ActiveState") == {"MainPID": pid, "ActiveState": "active"}


def test_a_start_without_a_release_fails_instead_of_being_skipped(installed: Box) -> None:
    assert installed.run("systemctl", "start", "archon@nothing.service").returncode != 0


def test_a_release_without_its_preflight_file_is_not_started(installed: Box, place: Place) -> None:
    place()
    installed("rm", "/var/lib/archon/unit/releases/current/preflight.env")
    assert start(installed) == 1
    assert settled(installed)["ActiveState"] == "failed"
    assert "preflight-file-missing" in journal(installed)


def test_a_damaged_release_is_not_verified(installed: Box, place: Place) -> None:
    place()
    installed("sh", "-c", "echo '# edited' >>/var/lib/archon/unit/releases/current/start")
    assert start(installed) == 1
    assert settled(installed)["ActiveState"] == "failed"
    assert "release-damaged" in journal(installed)


def test_a_read_only_var_is_enough_to_serve(installed: Box, place: Place) -> None:
    place()
    installed("mount", "--bind", "/var/lib/archon", "/var/lib/archon")
    installed("mount", "-o", "remount,bind,ro", "/var/lib/archon")
    try:
        assert start(installed) == 0, journal(installed)
    finally:
        installed("systemctl", "stop", UNIT)
        installed("umount", "/var/lib/archon")


@pytest.mark.parametrize(
    "path",
    [
        "/var/lib/archon/unit/releases/current/start",
        "/var/lib/archon/unit/x",
        "/run/archon/unit.preflight",
        "/run/archon/x",
        "/usr/lib/archon/archon-start",
        "/usr/lib/archon/python/archonctl/__init__.py",
        "/etc/archon/x",
        "/etc/systemd/system/archon@unit.service.d/10-release.conf",
    ],
)
@pytest.mark.parametrize("user", ["archon", "archon-verify"])
def test_what_root_reads_or_runs_cannot_be_written_by_the_services(
    installed: Box, place: Place, path: str, user: str
) -> None:
    place()
    tried = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "sh", "-c", 'echo x >>"$1"', "_", path]
    assert installed.run(*tried).returncode != 0


def test_the_engines_environment_never_reaches_roots_commands(installed: Box, place: Place) -> None:
    installed.put("/srv/unit/evil.c", "", "644")
    place(preload="/srv/unit/evil.so")  # not there: every program that it reaches says so
    assert start(installed) == 0, journal(installed)
    said = installed("journalctl", "-u", UNIT, "-o", "json", "--output-fields=MESSAGE,SYSLOG_IDENTIFIER", "--no-pager")
    told = [json.loads(line) for line in said.splitlines()]
    reached = {row["SYSLOG_IDENTIFIER"] for row in told if "evil.so" in str(row.get("MESSAGE"))}
    assert reached == {"archon-start"}


def test_an_engine_that_prints_our_words_fools_nobody(installed: Box, place: Place) -> None:
    lies = 'echo "unit: holds; 9,999 KV tokens"; echo "<0>archonctl: holds"; echo "ok $INVOCATION_ID"'
    place("--ctx-size", "512", binary=counting(installed, f'{lies}\nexec {ENGINE} "$@"'))
    assert start(installed) == 1
    assert verdict(installed)["verdict"] == "broken"


NEEDS = "FORMAT=1\nENDPOINT=unit\nWAIT_S=0\n"
# 15 s between two tries become 1 ms: what would happen in 20 hours happens in 4.8 s
COMPRESSED, TWENTY_HOURS_S = "[Service]\nRestartSec=1ms\n", 20 * 3600 / 15_000


@pytest.mark.parametrize(
    ("what", "words", "does", "preflight", "ran", "restarts"),
    [
        ("the preflight refused for good", [], "", f"{NEEDS}RAM_NEED_MIB=99999999\n", 0, 0),
        ("the preflight refused for now", [], "", f"{NEEDS}DEVICES=/dev/kfd\n", 0, 5),
        ("the gate refused", ["--no-such-flag"], f'exec {ENGINE} "$@"', "", 0, 0),
        ("the contract is broken", ["--ctx-size", "512"], f'exec {ENGINE} "$@"', "", 1, 0),
        ("a usage error, exit 2", [], "exit 2", "", 1, 0),
        ("a usage error in the engine's words, exit 1", [], f'exec {ENGINE} "$@" --no-such-flag', "", 1, 1),
        ("it ends at boot without a word, exit 1", [], "exit 1", "", 5, 5),
        ("it crashes at boot", [], "kill -SEGV $$", "", 5, 5),
        ("it is killed at boot", [], "kill -KILL $$", "", 5, 5),
        ("the start runs out of time", [], "sleep 1000", "", 5, 5),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith(("the ", "a ", "it ")) else "",
)
def test_restarts_in_20_hours_by_class_of_failure(
    installed: Box, place: Place, what: str, words: list[str], does: str, preflight: str, ran: int, restarts: int
) -> None:
    # the gate knows an engine by its name
    name = "counted/llama-server" if what == "the gate refused" else "engine"
    place(
        *words,
        binary=counting(installed, does or "exit 99", name),
        preflight=preflight,
        load_s=2 if does == "sleep 1000" else 60,
    )
    installed.put(f"/etc/systemd/system/{UNIT}.d/90-quick.conf", COMPRESSED)
    installed("systemctl", "daemon-reload")
    start(installed)
    end = time.monotonic() + 200
    while time.monotonic() < end and installed.show(UNIT, "ActiveState")["ActiveState"] != "failed":
        time.sleep(0.1)
    time.sleep(TWENTY_HOURS_S)
    shown = installed.show(UNIT, "ActiveState", "NRestarts")
    print(what, starts(installed), shown)
    assert (shown["ActiveState"], starts(installed), int(shown["NRestarts"])) == ("failed", ran, restarts)
