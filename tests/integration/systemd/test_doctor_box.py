"""``archonctl doctor`` on a machine with a real systemd: as root and as nobody, ports, devices, limits and disks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.sdbox.box import Box, install

pytestmark = pytest.mark.systemd

CLI = Path(sys.executable).with_name("archonctl")
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
PORT = 18_771
DECLARATION = f"""
[contract]
seqs = 1
len = 512
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/bin/true"
knobs = {{ threads = 1, load-mode = "mmap+mlock" }}
[model]
path = "/srv/doctor/model.gguf"
[host]
detect = true
[service]
listen = "127.0.0.1:{PORT}"
"""


@pytest.fixture(scope="module")
def patient(box: Box, repository: Path) -> Iterator[Box]:
    """The box with archonctl installed, one declaration and its model."""
    install(box, CLI)
    box("mkdir", "-p", "/srv/doctor")
    path = f"PYTHONPATH={repository / 'tests'}:{repository / 'controller'}"
    box("env", path, sys.executable, "-m", "support.tiny_gguf", "llama", "/srv/doctor/model.gguf")
    box.put("/srv/doctor/env/doc.toml", DECLARATION)
    yield box
    box("rm", "-rf", "/srv/doctor")


def look(box: Box, *words: str, before: tuple[str, ...] = (), code: int | None = None) -> list[dict[str, Any]]:
    done: subprocess.CompletedProcess[str] = box.run(
        *before, "env", "-C", "/srv/doctor", "HOME=/nonexistent", "/usr/bin/archonctl", "doctor", "--json", *words
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert code is None or done.returncode == code, done.stdout + done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return found


def only(box: Box, check: str, *, before: tuple[str, ...] = ()) -> dict[str, Any]:
    return look(box, "--check", check, before=before)[0]


def test_systemd_is_process_1_and_knows_the_units(patient: Box) -> None:
    found = {each["check"]: each for each in look(patient)}
    assert found["systemd-running"]["status"] == found["systemd-version"]["status"] == "pass"
    assert found["plan"]["status"] == found["engine-program"]["status"] == "pass"
    assert found["gpu-driver"]["status"] == "skip"
    assert found["memlock"]["status"] == "pass", "root locks without limit"


def test_nobody_sees_as_much_and_nothing_is_claimed_that_was_not_seen(patient: Box) -> None:
    as_root = {each["check"]: each["status"] for each in look(patient)}
    found = {each["check"]: each["status"] for each in look(patient, before=NOBODY)}
    assert set(as_root) == set(found)
    assert {name for name, status in found.items() if status != as_root[name]} <= {"memlock", "container-runtime"}


def test_a_port_is_held_by_a_stranger_or_by_its_own_engine(patient: Box) -> None:
    for unit, status in (("stranger", "fail"), ("archon-doc", "pass")):
        server = ("python3", "-m", "http.server", str(PORT), "--bind", "127.0.0.1")
        patient("systemd-run", f"--unit={unit}", "--collect", *server)
        try:
            end = time.monotonic() + 120
            while (result := only(patient, "ports"))["message"].endswith("is free for doc") and time.monotonic() < end:
                time.sleep(0.05)
            assert result["status"] == status, result
            assert "http.server" in result["message"]
            if unit == "stranger":
                hidden = only(patient, "ports", before=NOBODY)
                assert (hidden["code"], "may not look into" in hidden["message"]) == ("port-in-use", True)
        finally:
            patient("systemctl", "stop", unit)
    assert only(patient, "ports")["message"] == f"127.0.0.1:{PORT} is free for doc"


def test_what_the_account_of_a_unit_may_not_read_fails_as_root_and_is_unseen_as_nobody(patient: Box) -> None:
    declared = DECLARATION.replace("[service]", '[service]\nuser = "archon"')
    patient.put("/srv/doctor/env/doc.toml", declared)
    patient("chmod", "700", "/srv/doctor/model.gguf")
    try:
        told = only(patient, "model-file")
        assert (told["code"], "the unit runs as archon" in told["message"]) == ("model-unreadable", True)
        unseen = only(patient, "model-file", before=NOBODY)
        assert (unseen["status"], unseen["unseen"], "needs root" in unseen["message"]) == ("skip", True, True)
        patient("chmod", "600", "/srv/doctor/env/doc.toml")
        closed = only(patient, "declaration", before=NOBODY)
        assert (closed["unseen"], "needs root" in closed["message"]) == (True, True)
    finally:
        patient("chmod", "644", "/srv/doctor/model.gguf")
        patient.put("/srv/doctor/env/doc.toml", DECLARATION)


def test_64_kib_of_locked_memory_are_too_little(patient: Box) -> None:
    result = only(patient, "memlock", before=("prlimit", "--memlock=65536:65536", *NOBODY))
    assert (result["status"], result["code"]) == ("fail", "memlock-short")
    assert "may lock 0 MiB, doc needs" in result["message"]


def test_a_device_of_another_group_is_told_by_number(patient: Box) -> None:
    patient("sh", "-c", "mknod /dev/kfd c 1 3 && chown 0:4242 /dev/kfd && chmod 660 /dev/kfd")
    try:
        result = only(patient, "gpu-access", before=NOBODY)
        assert (result["code"], "/dev/kfd is 0660 0:4242: uid 65534" in result["message"]) == ("device-unusable", True)
        member = tuple(word.replace("--clear-groups", "--groups=4242") for word in NOBODY)
        assert only(patient, "gpu-access", before=member)["status"] == "pass"
        unseen = only(patient, "leftovers", before=NOBODY)
        assert unseen["unseen"], "other accounts' processes are root's to see"
        assert only(patient, "leftovers")["status"] == "pass"
        patient("systemd-run", "--unit=holder", "--collect", "sh", "-c", "exec 9<>/dev/kfd; exec sleep 600")
        end = time.monotonic() + 120
        while (held := only(patient, "leftovers"))["status"] == "pass" and time.monotonic() < end:
            time.sleep(0.05)
        assert (held["status"], held["code"]) == ("warn", "cards-held")
        assert "(sleep 600) has /dev/kfd" in held["message"]
        patient("systemctl", "stop", "holder")
    finally:
        patient("rm", "-f", "/dev/kfd")


def test_a_disk_that_is_full_or_read_only(patient: Box) -> None:
    for options, content, code in (("size=200m", "150m", "disk-short"), ("size=200m,ro", "", "disk-read-only")):
        patient("mkdir", "-p", "/srv/doctor/tight")
        patient("mount", "-t", "tmpfs", "-o", options, "tmpfs", "/srv/doctor/tight")
        try:
            if content:
                patient("fallocate", "-l", content, "/srv/doctor/tight/x")
            result = only(patient, "disk-space", before=("env", "TMPDIR=/srv/doctor/tight"))
            assert (result["status"], result["code"]) == ("fail", code)
        finally:
            patient("umount", "/srv/doctor/tight")
