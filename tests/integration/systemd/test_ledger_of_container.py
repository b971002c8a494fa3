"""``archonctl ledger --container``: a real llama-server in a real podman container, in a box of its own.

podman runs here as root on the host's network, from a folder in place of an image, without cgroups (the box may not
raise limits). Its log is with podman (k8s-file), in the journal, or with whoever started it (passthrough).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support.engines import wait_for
from support.sdbox.box import Box, equip, seen, why_no_box

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = Path(sys.executable).with_name("archonctl")
ROOT = "/srv/container"
RUN = (
    "--network=host",
    "--cgroups=disabled",
    "--ulimit=nofile=20000:20000",
    "--ulimit=nproc=30000:30000",
    "--volume=/usr:/usr:ro",
    "--volume=/srv/engine:/srv/engine:ro",
)
ENGINE = ("/srv/engine/llama-server", "-m", "/srv/engine/model.gguf", "-c", "8192", "-np", "2", "-lv", "4", "-t", "1")
CONF = """
[engine]
conmon_path = ["{tools}/conmon"]
runtime = "crun"
events_logger = "journald"
cgroup_manager = "cgroupfs"
[engine.runtimes]
crun = ["{tools}/crun"]
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, repository: Path, llama_server: Path) -> Iterator[Box]:
    """A box with podman, an engine, and the folder that a container has for its root."""
    if why := why_no_box():
        pytest.skip(f"no systemd box: {why}")
    tools = Path(os.environ.get("ARCHON_TEST_PODMAN") or Path.home() / ".cache/archonctl/podman")
    if not (tools / "bin/crun").exists():
        pytest.skip("no podman: run scripts/get-podman-tools")
    folder = tmp_path_factory.mktemp("podman") / "box"
    box = Box(folder, seen(repository, llama_server.resolve().parent, tools)).up()
    box.put("/etc/containers/containers.conf", CONF.format(tools=tools / "bin"))
    box.put("/etc/containers/storage.conf", '[storage]\ndriver = "vfs"\nrunroot = "/run/c"\ngraphroot = "/var/c"\n')
    box("ln", "-s", tools / "bin/podman", "/usr/local/bin/podman")
    box("sh", "-c", f"mkdir -p {ROOT}/proc {ROOT}/sys {ROOT}/dev {ROOT}/etc {ROOT}/tmp {ROOT}/usr {ROOT}/srv/engine")
    box("sh", "-c", f"for each in bin lib lib64; do ln -s usr/$each {ROOT}/$each; done")
    equip(box, repository, llama_server, "/srv/engine")
    yield box
    box.run("podman", "rm", "--all", "--force", "--time", "0")
    box.down()


def port_of(driver: str) -> str:
    return {"k8s-file": "18431", "journald": "18432", "passthrough": "18433"}[
        driver
    ]  # the box has a network of its own


def run(driver: str) -> tuple[str, ...]:
    return ("run", f"--name={driver}", f"--log-driver={driver}", *RUN)


def serves(box: Box, driver: str) -> None:
    script = "import sys, urllib.request as u; u.urlopen(f'http://127.0.0.1:{sys.argv[1]}/health', timeout=5)"
    wait_for(lambda: box.run("/usr/bin/python3", "-c", script, port_of(driver)).returncode == 0, 180)


def ledger(box: Box, *words: str) -> CompletedProcess[str]:
    return box.run(CLI, "ledger", *words, "--json")


@pytest.mark.parametrize("driver", ["k8s-file", "journald"])
def test_the_log_of_the_last_start_is_read_from_podman(host: Box, driver: str) -> None:
    host("podman", *run(driver), "--detach", "--rootfs", ROOT, *ENGINE, "--port", port_of(driver))
    serves(host, driver)
    first = json.loads(ledger(host, "--container", driver).stdout)
    assert (first["engine"], first["essentials"]["kv_tokens"]["value"]) == ("llamacpp", 8192)
    assert (first["essentials"]["slots"]["value"], first["ready"]) == (2, True)

    host("podman", "restart", "--time", "5", driver)
    serves(host, driver)
    again = json.loads(ledger(host, "--container", driver).stdout)
    assert again["boots"] == 1
    assert again["essentials"]["kv_tokens"]["value"] == 8192
    kept = host.run("podman", "logs", driver)
    assert again["lines_read"] < len((kept.stdout + kept.stderr).splitlines())

    followed = host.run(CLI, "ledger", "--container", driver, "--follow", "--timeout", "150", "--json")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert json.loads(followed.stdout)["essentials"]["kv_tokens"]["value"] == 8192


def test_a_container_whose_log_podman_does_not_keep_is_read_from_its_unit(host: Box) -> None:
    driver = "passthrough"
    words = (*run(driver), "--rootfs", ROOT, *ENGINE, "--port", port_of(driver))
    host("systemd-run", "--unit=engine-in-podman", "--service-type=exec", "/usr/local/bin/podman", *words)
    try:
        serves(host, driver)
        refused = host.run(CLI, "ledger", "--container", driver)
        assert refused.returncode == 5
        assert "podman keeps no log of passthrough: its log driver is passthrough" in refused.stderr
        host("journalctl", "--sync")
        read = json.loads(ledger(host, "--unit", "engine-in-podman").stdout)
        assert read["essentials"]["kv_tokens"]["value"] == 8192
    finally:
        host.run("podman", "stop", "--time", "5", driver)
        host.run("systemctl", "stop", "engine-in-podman")


def test_a_container_that_was_made_and_never_started_is_no_evidence(host: Box) -> None:
    host("podman", "create", "--name=never", "--log-driver=k8s-file", *RUN, "--rootfs", ROOT, *ENGINE)
    assert ledger(host, "--container", "never").returncode == 3
