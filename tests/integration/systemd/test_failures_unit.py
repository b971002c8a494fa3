"""An engine that finds no memory: from its journal to the change under which it starts, with the installed command."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from support.sdbox.box import Box
from support.sdbox.endpoint import applied

pytestmark = [pytest.mark.systemd, pytest.mark.engine]

CLI = "/usr/bin/archonctl"
HOST = "/etc/archon/short-host.toml"
KNOBS = 'threads = 1, cache-ram = 0, fit = "off", threads-http = 4'
TABLES = f'[engine.env]\nMALLOC_ARENA_MAX = "1"\n[host]\nprofile = "{HOST}"\n'
MODEL = (
    "from pathlib import Path; from archonctl.model.demo_gguf import write_tiny_gguf as write;"
    "write(Path('/srv/short/model.gguf'), 'llama', layers=32, hidden=64, ff=64, heads=4, kv_heads=4, head_dim=64)"
)
"""32 KiB of KV cache a token, and next to nothing to compute."""


def test_what_failed_is_answered_for_the_release_it_happened_to_and_with_that_answer_it_starts(
    box: Box, repository: Path, llama_server: Path
) -> None:
    box.put(HOST, "ram_mib = 8192\navailable_mib = 8192\n")
    with applied(box, repository, llama_server, "short", 18410, KNOBS, TABLES) as found:
        path = f"PYTHONPATH={repository / 'controller'}"
        box("env", path, sys.executable, "-c", MODEL)
        pid = box.show(found.unit, "MainPID")["MainPID"]
        held = re.search(r"VmPeak:\s+(\d+) kB", box("cat", f"/proc/{pid}/status"))
        assert held is not None
        limit_kib = int(held[1]) + 128 * 1024
        box.put(f"/etc/systemd/system/{found.unit}.d/60-small.conf", f"[Service]\nLimitAS={limit_kib}K\n")
        box("systemctl", "daemon-reload")
        declared = box("cat", found.declaration).replace("len = 512", "len = 4096")
        box.put(found.declaration, declared)
        failed = box.run(CLI, "apply", found.declaration, "--yes", timeout=240)
        assert failed.returncode == 6, failed.stdout + failed.stderr
        assert "ROLLED BACK" in failed.stdout

        box.put(HOST, "ram_mib = 900\navailable_mib = 80\n")  # as it turns out to be
        said = box.run(CLI, "failures", "short", "--json")
        assert said.returncode == 1, said.stderr
        (advice,) = json.loads(said.stdout)["relief"]
        assert (advice["class"], advice["is_current"]) == ("kv_cache", False)
        assert "which is not the current one" in box.run(CLI, "failures").stdout
        (way,) = (way for way in advice["answer"]["ways"] if "contract.len" in way["set"])
        assert 512 < way["set"]["contract.len"] < 4096  # no more is given up than the plan is over its budget
        sets = (word for key, value in way["set"].items() for word in ("--set", f"{key}={value}"))
        done = box.run(CLI, "apply", found.declaration, "--yes", *sets, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
