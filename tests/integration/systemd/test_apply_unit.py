"""``archonctl apply`` and what goes with it, on a real systemd over D-Bus, with a real llama-server."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.sdbox.box import Box, equip, install, seen, why_no_box
from support.sdbox.endpoint import eventually

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = Path(sys.executable).with_name("archonctl")
NAME = "turn"
UNIT = f"archon@{NAME}.service"
FOLDER = f"/var/lib/archon/{NAME}"
ENGINE = "/srv/turn/llama-server"
DECLARATION = """
[contract]
seqs = 1
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{binary}"
knobs = {{ threads = 1, batch-size = {batch} }}
[model]
path = "/srv/turn/model.gguf"
[host]
detect = true
[service]
user = "archon"
listen = "127.0.0.1:18400"
"""
BATCHES = itertools.count(64)
HELD = "/srv/turn/held"
QUICK = f"""
[Service]
RestartSec=200ms
ExecStartPost=/bin/sh -c 'while [ -e {HELD} ]; do sleep 0.1; done'
"""
"""A start does not end before it may."""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, repository: Path, llama_server: Path) -> Iterator[Box]:
    """A box of its own that keeps what is written, so that it can be booted again."""
    if why := why_no_box():
        pytest.skip(f"no systemd box: {why}")
    folder = tmp_path_factory.mktemp("turn")
    engine = llama_server.resolve().parent
    binds = seen(repository, engine)
    box = Box(folder / f"box-{os.getpid()}", binds, {"SDBOX_UPPER": str(folder / "upper")}).up()
    try:
        install(box, CLI)
        equip(box, repository, llama_server, "/srv/turn")
        box.put(f"/etc/systemd/system/{UNIT}.d/90-quick.conf", QUICK)
        yield box
    finally:
        box.down()


def wrapper(host: Box, name: str, line: str) -> str:
    """A program of its own that ends in the engine, or not."""
    host.put(f"/srv/turn/{name}", f"#!/bin/sh\n{line}\n", "755")
    return f"/srv/turn/{name}"


HOLDS = f'exec {ENGINE} "$@"'
SHORT = f'exec {ENGINE} "$@" --ctx-size 256'
USAGE = f'exec {ENGINE} "$@" --no-such-flag'


@dataclass
class Endpoint:
    """The installed endpoint of these tests, through the installed command."""

    box: Box

    def declare(self, binary: str = ENGINE) -> int:
        """Something that was not declared before; its batch size, by which it differs."""
        batch = next(BATCHES)
        self.box.put(f"/etc/archon/{NAME}.toml", DECLARATION.format(binary=binary, batch=batch))
        return batch

    def run(self, *words: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return self.box.run("/usr/bin/archonctl", *words, timeout=timeout)

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        done = self.run(*words, "--json")
        assert done.returncode == code, done.stdout + done.stderr + self.journal()
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def apply(self, *words: str, code: int = 0) -> dict[str, Any]:
        return self.json("apply", NAME, "--yes", *words, code=code)

    def status(self) -> dict[str, Any]:
        done = self.run("status", NAME, "--json")
        found: dict[str, Any] = json.loads(done.stdout)["endpoints"][0]
        return found | {"exit": done.returncode}

    def show(self, *names: str) -> dict[str, str]:
        return self.box.show(UNIT, "ActiveState", "MainPID", "NRestarts", "InvocationID", *names)

    def current(self) -> str:
        return self.box("readlink", f"{FOLDER}/releases/current")

    def journal(self) -> str:
        return self.box.run("journalctl", "-u", UNIT, "-n", "30", "--no-pager").stdout

    def in_background(self, *words: str) -> None:
        script = '"$@" >/tmp/out 2>&1 & echo $! >/tmp/pid'
        self.box("sh", "-c", script, "_", "/usr/bin/archonctl", *words)

    def wait_until_held(self) -> None:
        """Until the change is at the start of the new engine, which goes no further."""
        eventually(lambda: self.box.run("pgrep", "-f", f"while . -e {HELD}").returncode, 0, self.said)
        assert '"phase": "starting"' in self.box("cat", f"{FOLDER}/apply.json")

    def said(self) -> str:
        """By what runs in the background."""
        return self.box.run("cat", "/tmp/out").stdout

    def apply_held(self, *words: str) -> None:
        """Apply something else in the background, up to the start of its engine."""
        self.declare()
        self.box("touch", HELD)
        self.in_background("apply", NAME, "--yes", *words)
        self.wait_until_held()

    def let_go(self) -> None:
        """Let the start end."""
        self.box("rm", "-f", HELD)


@pytest.fixture
def endpoint(host: Box) -> Iterator[Endpoint]:
    """Running a release that holds; every test may leave behind another, or none."""
    found = Endpoint(host)
    if host.run("test", "-e", FOLDER).returncode or found.status()["word"] != "holds":
        found.declare()
        found.apply()
    yield found
    host.run("sh", "-c", f"kill -9 $(cat /tmp/pid 2>/dev/null) 2>/dev/null; rm -f /tmp/pid /tmp/out {HELD}")


def test_the_first_apply_is_a_unit_that_holds_and_the_same_again_restarts_nothing(endpoint: Endpoint) -> None:
    before = endpoint.show()
    assert before["ActiveState"] == "active"
    assert endpoint.apply()["outcome"] == "unchanged"
    assert endpoint.show() == before
    status = endpoint.status()
    assert (status["exit"], status["word"], status["release"]) == (0, "holds", endpoint.current())
    assert (status["seqs"], status["len_tokens"], status["restarts"]) == (1, 512, 0)
    assert endpoint.json("drift", NAME)["endpoints"][0]["drift"] is False
    assert endpoint.box.run("pgrep", "-f", "archonctl").returncode == 1


def test_after_a_power_cut_the_mount_of_the_model_is_waited_for(endpoint: Endpoint) -> None:
    box = endpoint.box
    box.put("/run/systemd/system/srv-turn.mount", "[Mount]\nWhat=tmpfs\nWhere=/srv/turn\nType=tmpfs\n")
    box("systemctl", "daemon-reload")
    try:
        shown = endpoint.show("After", "Requires", "RequiresMountsFor")
        assert "/srv/turn/model.gguf" in shown["RequiresMountsFor"].split()
        assert "srv-turn.mount" in shown["After"].split()
        assert "srv-turn.mount" in shown["Requires"].split()
    finally:
        box("sh", "-c", "rm /run/systemd/system/srv-turn.mount; systemctl daemon-reload")


def test_what_the_engine_could_do_to_the_machine_is_little(endpoint: Endpoint) -> None:
    overall = endpoint.box("systemd-analyze", "security", "--no-pager", UNIT).splitlines()[-1]
    assert float(overall.split(":")[1].split()[0]) < 3.0, overall
    status = endpoint.box("cat", f"/proc/{endpoint.show()['MainPID']}/status")
    words = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert (words["NoNewPrivs"], words["CapEff"], words["CapPrm"], words["Seccomp"]) == ("1", "0" * 16, "0" * 16, "2")


def test_a_strict_umask_of_root_keeps_the_engines_account_out_of_nothing(endpoint: Endpoint) -> None:
    endpoint.declare()
    words = ["/usr/bin/archonctl", "apply", NAME, "--yes"]
    done = endpoint.box.run("sh", "-c", 'umask 077; exec "$@"', "_", *words, timeout=120)
    assert done.returncode == 0, done.stderr + endpoint.journal()
    assert endpoint.box("find", FOLDER, "-name", "lock", "-prune", "-o", "!", "-perm", "-044", "-print") == ""


def test_what_the_units_account_may_not_use_is_refused_before_the_stop(endpoint: Endpoint) -> None:
    box, before = endpoint.box, endpoint.show()
    box("sh", "-c", f"mkdir -p /srv/closed; cp -L {ENGINE} /srv/turn/model.gguf /srv/closed")
    for mode, key, file, code in (
        ("700 /srv/closed", "model.path", "model.gguf", "model-unreadable"),
        ("700 /srv/closed", "engine.binary", "llama-server", "engine-binary-unusable"),
        ("600 /srv/closed/model.gguf", "model.path", "model.gguf", "model-unreadable"),
    ):
        box("sh", "-c", f"chmod 755 /srv/closed; chmod 644 /srv/closed/model.gguf; chmod {mode}")
        done = endpoint.run("apply", NAME, "--yes", "--set", f"{key}=/srv/closed/{file}")
        assert f"{code}: /srv/closed/{file}: the unit runs as archon, which may not" in done.stderr
        assert endpoint.show() == before


def test_an_engine_whose_declaration_names_no_account_does_not_run_as_root(endpoint: Endpoint) -> None:
    endpoint.apply("--set", "service.user=")
    assert endpoint.box("stat", "-c", "%U", f"/proc/{endpoint.show()['MainPID']}") == "archon"


def test_an_endpoint_whose_declaration_is_gone_can_still_be_stopped(endpoint: Endpoint) -> None:
    box = endpoint.box
    box("mv", f"/etc/archon/{NAME}.toml", "/srv/gone.toml")
    try:
        assert endpoint.json("stop", NAME)["stopped"]["unit"] == UNIT
        assert endpoint.show()["ActiveState"] == "inactive"
    finally:
        box("mv", "/srv/gone.toml", f"/etc/archon/{NAME}.toml")


def test_an_upgrade_that_holds_is_kept_and_dependants_come_back(endpoint: Endpoint) -> None:
    box, old = endpoint.box, endpoint.current()
    box.put("/run/systemd/system/front.service", f"[Unit]\nPartOf={UNIT}\n[Service]\nExecStart=/bin/sleep 1000\n")
    box("systemctl", "daemon-reload")
    box("systemctl", "start", "front.service")
    batch = endpoint.declare()
    looked = endpoint.run("apply", NAME, "--check", "--diff")
    assert looked.returncode == 0
    assert f"+{batch}\n" in looked.stdout
    assert "not previewed" in looked.stdout
    assert endpoint.current() == old
    found = endpoint.apply()
    assert (found["outcome"], found["before"], found["attempts"][0]["verdict"]) == ("applied", old, "holds")
    assert found["attempts"][0]["depth"] == "full"
    assert box.show("front.service", "ActiveState")["ActiveState"] == "active"
    box("systemctl", "stop", "front.service")
    events = endpoint.json("history", NAME)["events"]
    assert [event["release"] for event in events[-2:]] == [old, endpoint.current()]


def test_a_kept_plan_is_applied_and_refused_once_another_was(endpoint: Endpoint) -> None:
    endpoint.declare()
    first, second = "/srv/first.plan.json", "/srv/second.plan.json"
    for file, words in ((first, ()), (second, ("--set", "engine.knobs.batch-size=333"))):
        done = endpoint.run("plan", NAME, "--out", file, *words)
        assert done.returncode == 0, done.stderr
    assert endpoint.json("apply", first, "--yes")["outcome"] == "applied"
    assert endpoint.json("apply", first, "--yes")["outcome"] == "unchanged"
    before = endpoint.show()
    refused = endpoint.run("apply", second, "--yes")
    assert refused.returncode == 4
    assert "plan-stale" in refused.stderr
    assert endpoint.current() in refused.stderr
    assert endpoint.show() == before


def test_without_a_terminal_what_serves_is_stopped_only_with_yes(endpoint: Endpoint) -> None:
    before = endpoint.show()
    endpoint.declare()
    done = endpoint.run("apply", NAME)
    assert done.returncode == 2
    assert "not-confirmed" in done.stderr
    assert endpoint.show() == before


@pytest.mark.parametrize(("line", "word", "code"), [(SHORT, "broken", ""), (USAGE, "", "--no-such-flag")])
def test_a_release_that_does_not_hold_is_rolled_back_with_both_stories(
    endpoint: Endpoint, line: str, word: str, code: str
) -> None:
    old = endpoint.current()
    endpoint.declare(binary=wrapper(endpoint.box, "worse", line))
    found = endpoint.apply(code=6)
    new, again = found["attempts"]
    assert found["outcome"] == "rolled back"
    assert new["verdict"] == word or not word
    assert code in "\n".join([*new["reasons"], *new["log_tail"]])
    assert (again["release"], again["verdict"]) == (old, "holds")
    assert endpoint.current() == old
    assert endpoint.show("DropInPaths")["NRestarts"] == "0"
    assert endpoint.status()["word"] == "holds"
    assert endpoint.box.run("test", "-e", f"{FOLDER}/apply.json").returncode == 1


def test_when_the_old_release_does_not_hold_either_that_is_told(endpoint: Endpoint) -> None:
    box = endpoint.box
    endpoint.declare(binary=wrapper(box, "moody", HOLDS))
    endpoint.apply()
    wrapper(box, "moody", USAGE)
    endpoint.declare(binary=wrapper(box, "worse", SHORT))
    found = endpoint.apply(code=7)
    assert [attempt["verdict"] == "holds" for attempt in found["attempts"]] == [False, False]
    assert endpoint.show()["ActiveState"] in ("failed", "inactive")
    assert box.run("pgrep", "-x", "llama-server").returncode == 1
    assert endpoint.status()["exit"] == 1


def test_without_leave_to_roll_back_it_is_left_stopped(endpoint: Endpoint) -> None:
    endpoint.declare(binary=wrapper(endpoint.box, "worse", SHORT))
    assert endpoint.apply("--no-rollback", code=1)["outcome"] == "failed"
    assert endpoint.box.run("pgrep", "-x", "llama-server").returncode == 1
    assert endpoint.status()["word"] == "down"


def test_an_apply_that_is_killed_while_the_engine_starts_is_finished_by_the_next(endpoint: Endpoint) -> None:
    endpoint.apply_held()
    endpoint.box("sh", "-c", "kill -9 $(cat /tmp/pid)")
    assert endpoint.status()["word"] == "half done"
    assert endpoint.json("drift", NAME, code=8)["endpoints"][0]["findings"][0]["code"] == "drift-half-done"
    start = endpoint.show()["InvocationID"]
    endpoint.let_go()
    assert endpoint.apply()["outcome"] == "applied"
    assert endpoint.show()["InvocationID"] == start
    assert endpoint.status()["word"] == "holds"


def test_an_apply_that_is_killed_can_be_rolled_back_instead(endpoint: Endpoint) -> None:
    old = endpoint.current()
    endpoint.apply_held()
    endpoint.box("sh", "-c", "kill -9 $(cat /tmp/pid)")
    endpoint.let_go()
    assert endpoint.json("rollback", NAME, "--yes")["release"] == old
    assert endpoint.status()["word"] == "holds"


def test_ctrl_c_after_the_stop_goes_back(endpoint: Endpoint) -> None:
    old = endpoint.current()
    endpoint.declare()
    endpoint.box("touch", HELD)
    script = "/usr/bin/archonctl apply turn --yes >/tmp/out 2>&1 & echo $! >/tmp/pid; wait $!; echo $? >/tmp/rc"
    with subprocess.Popen([*_exec(endpoint.box), "bash", "-c", f"set -m; {script}"]) as shell:
        endpoint.wait_until_held()
        endpoint.box("sh", "-c", "kill -INT $(cat /tmp/pid)")
        eventually(lambda: "going back" in endpoint.said(), True, endpoint.said)
        endpoint.let_go()
        shell.wait(180)
    assert endpoint.box("cat", "/tmp/rc") == "6", endpoint.box("cat", "/tmp/out")
    assert endpoint.current() == old
    assert endpoint.status()["word"] == "holds"


def _exec(box: Box) -> list[str]:
    from support.sdbox.box import TOOL

    return [str(TOOL), "exec", str(box.folder)]


def test_of_two_applies_at_once_the_second_names_the_first(endpoint: Endpoint) -> None:
    endpoint.apply_held()
    found = endpoint.apply(code=5)
    assert found["error"]["code"] == "up-in-progress"
    assert f"pid {endpoint.box('cat', '/tmp/pid')}" in found["error"]["message"]
    endpoint.let_go()
    eventually(lambda: endpoint.status()["word"], "holds", endpoint.said)


def test_systemd_started_anew_in_the_middle_changes_nothing_of_the_end(endpoint: Endpoint) -> None:
    endpoint.apply_held("--json")
    endpoint.box("systemctl", "daemon-reexec")
    endpoint.let_go()
    eventually(lambda: endpoint.box.run("test", "-e", f"{FOLDER}/apply.json").returncode, 1, endpoint.said)
    assert endpoint.status()["word"] == "holds", endpoint.box("cat", "/tmp/out")


def test_a_full_disk_is_said_before_anything_is_stopped(endpoint: Endpoint) -> None:
    box, before = endpoint.box, endpoint.show()
    endpoint.declare()
    box("mount", "--bind", FOLDER, FOLDER)
    box("sh", "-c", f"mkdir -p /run/full && mount -t tmpfs -o size=4m full /run/full && cp -a {FOLDER}/. /run/full/")
    box("mount", "--bind", "/run/full", FOLDER)
    try:
        box.run("dd", "if=/dev/zero", f"of={FOLDER}/fill", "bs=64k", "count=100")
        found = endpoint.apply(code=5)
        assert found["error"]["code"] in ("release-disk-full", "state-unwritable")
        assert endpoint.show() == before
    finally:
        box("sh", "-c", f"umount {FOLDER}; umount {FOLDER}; umount /run/full")


def test_a_read_only_var_is_said_and_can_be_looked_at(endpoint: Endpoint) -> None:
    box, before = endpoint.box, endpoint.show()
    endpoint.declare()
    box("sh", "-c", "mount --bind /var /var && mount -o remount,bind,ro /var")
    try:
        found = endpoint.apply(code=5)
        assert found["error"]["code"] in ("state-unwritable", "release-not-writable")
        assert endpoint.show() == before
        assert endpoint.status()["word"] == "holds"
        assert endpoint.run("apply", NAME, "--check").returncode == 0
    finally:
        box("umount", "/var")


def test_what_was_edited_by_hand_is_drift_with_both_values(endpoint: Endpoint) -> None:
    box, mine = endpoint.box, f"/etc/systemd/system/{UNIT}.d/95-mine.conf"
    endpoint.apply()  # an earlier test may have declared something that it did not apply
    box("sed", "-i", "s/^TimeoutStopSec=.*/TimeoutStopSec=7/", f"/etc/systemd/system/{UNIT}.d/10-release.conf")
    box.put(mine, "[Service]\nEnvironment=LLAMA_ARG_TOP_K=7\n")
    box("touch", "/srv/turn/model.gguf")
    box("systemctl", "daemon-reload")
    try:
        found = endpoint.json("drift", NAME, code=8)["endpoints"][0]
        said = {each["code"]: each["message"] for each in found["findings"]}
        assert set(said) == {"drift-file", "drift-drop-in", "drift-model"}
        assert said["drift-file"] == "10-release.conf: expected TimeoutStopSec=90, found TimeoutStopSec=7"
        assert "95-mine.conf" in said["drift-drop-in"]
        box("systemctl", "restart", UNIT)
        found = endpoint.json("drift", NAME, code=8)["endpoints"][0]
        env = [each["message"] for each in found["findings"] if each["code"] == "drift-environ"]
        assert [message.partition(" of pid")[0] for message in env] == ["LLAMA_ARG_TOP_K"]
        assert env[0].endswith("expected unset, found 7")
    finally:
        box("rm", mine)
    assert endpoint.apply()["outcome"] == "applied"
    assert endpoint.json("drift", NAME)["endpoints"][0]["findings"] == []


@pytest.mark.parametrize(("file", "code"), [("model.gguf", "drift-model"), ("llama-server", "drift-program")])
def test_a_file_that_was_exchanged_under_the_engine_is_drift_and_apply_starts_it_anew(
    endpoint: Endpoint, file: str, code: str
) -> None:
    endpoint.apply("--set", "service.user=archon")
    before = endpoint.show()
    endpoint.box("sh", "-c", f"cp /srv/turn/{file} /srv/turn/x && mv /srv/turn/x /srv/turn/{file}")
    assert endpoint.json("drift", NAME, code=8)["endpoints"][0]["findings"][0]["code"] == code
    assert endpoint.run("apply", NAME).returncode == 2  # it serves: not stopped without --yes
    assert endpoint.apply()["outcome"] == "applied"
    assert endpoint.show()["MainPID"] != before["MainPID"]
    assert endpoint.json("drift", NAME)["endpoints"][0]["findings"] == []


def test_reading_needs_no_privileges_and_changing_does(endpoint: Endpoint) -> None:
    def nobody(*words: str) -> subprocess.CompletedProcess[str]:
        return endpoint.box.run("runuser", "-u", "nobody", "--", "/usr/bin/archonctl", *words)

    for words in (("status",), ("history", NAME)):
        done = nobody(*words)
        assert done.returncode == 0, done.stderr
        assert endpoint.current()[:8] in done.stdout
    done = nobody("drift", NAME)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "not checked: environment" in done.stdout
    for words in (("apply", NAME, "--yes"), ("rollback", NAME, "--yes"), ("stop", NAME)):
        done = nobody(*words)
        assert done.returncode == 5, done.stdout + done.stderr
        assert "not-permitted" in done.stderr
    assert endpoint.show()["ActiveState"] == "active"


def test_logs_show_this_start_and_stop_stops_it(endpoint: Endpoint) -> None:
    found = endpoint.json("logs", NAME)
    assert found["invocation"] == endpoint.show()["InvocationID"]
    text = "\n".join(found["lines"])
    assert "listening" in text
    assert text.count(f"Starting {UNIT}") == 1
    assert len(endpoint.run("logs", NAME, "-n", "2").stdout.splitlines()) == 2
    assert endpoint.json("stop", NAME)["stopped"]["unit"] == UNIT
    assert endpoint.show()["ActiveState"] == "inactive"
    assert endpoint.box.run("pgrep", "-x", "llama-server").returncode == 1
    assert endpoint.json("drift", NAME, code=8)["endpoints"][0]["findings"][0]["code"] == "drift-stopped"


def test_after_a_reboot_it_serves_verified_without_drift(endpoint: Endpoint) -> None:
    box = endpoint.box
    box("systemctl", "enable", UNIT)
    before = endpoint.show()["InvocationID"]
    box.down()
    box.up()
    eventually(lambda: endpoint.show()["ActiveState"], "active", endpoint.journal)
    status = endpoint.status()
    assert (status["word"], status["exit"]) == ("holds", 0), endpoint.journal()
    assert endpoint.show()["InvocationID"] != before
    assert endpoint.json("drift", NAME)["endpoints"][0]["findings"] == []
    assert endpoint.apply()["outcome"] == "unchanged"
