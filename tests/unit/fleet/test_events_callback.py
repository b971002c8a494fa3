"""The collection's callback, whose lines ``archonctl fleet`` reads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from archonctl.fleet.inventory import ansible_program
from archonctl.fleet.rollout.playbook import Play, environment


def test_a_run_that_nobody_reads_any_more_ends_before_its_next_task(tmp_path: Path) -> None:
    go, further = tmp_path / "go", tmp_path / "further"
    tasks = [
        {"ansible.builtin.wait_for": {"path": str(go), "timeout": 600, "sleep": 1}},
        {"ansible.builtin.file": {"path": str(further), "state": "touch", "mode": "0644"}},
    ]
    book = tmp_path / "book.yml"
    book.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    inventory = tmp_path / "hosts"
    inventory.write_text(f"here ansible_connection=local ansible_python_interpreter={sys.executable}\n")
    environ = environment({**os.environ, "HOME": str(tmp_path)}, Play("", (), ()), tmp_path)
    command = [ansible_program("ansible-playbook", environ), "-i", str(inventory), str(book)]
    process = subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = next(line for line in process.stdout if '"begin"' in line)
        assert json.loads(first)["host"] == "here"
        process.stdout.close()
        go.touch()
        assert process.wait(timeout=300) == -signal.SIGKILL
        assert not further.exists()
    finally:
        go.touch()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
