"""What other repositories include: the hook, the action and the template parse, and their commands run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import JUnitXml

REPOSITORY = Path(__file__).parents[3]
GOLDEN = REPOSITORY / "tests" / "golden" / "gate"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def load(name: str) -> Any:
    return yaml.safe_load((REPOSITORY / name).read_text())


def bash(script: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """As GitHub and GitLab run a step: a failing command ends it."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": PATH, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def hook() -> dict[str, Any]:
    (found,) = load(".pre-commit-hooks.yaml")
    return dict(found)


def test_the_hook_has_what_pre_commit_asks_for(hook: dict[str, Any]) -> None:
    assert {"id", "name", "entry", "language", "files"} <= set(hook)
    wanted = re.compile(hook["files"])
    for name in (
        "env/archon.toml",
        "deploy/x.service",
        "x.service.d/a.conf",
        "start.sh",
        "docker-compose.yml",
        "a/compose.gpu.yaml",
    ):
        assert wanted.search(name), name
    for name in ("pyproject.toml", "env/hosts/archon.toml", "README.md", ".github/workflows/ci.yml"):
        assert not wanted.search(name), name


@pytest.mark.parametrize(("name", "code"), [("good/run-llama.sh", 0), ("bad/stale.sh", 4), ("bad/unfunded.toml", 4)])
def test_the_hook_refuses_what_the_gate_refuses(hook: dict[str, Any], name: str, code: int, tmp_path: Path) -> None:
    done = bash(f"{hook['entry']} {shlex.quote(str(GOLDEN / name))}", tmp_path, {})
    assert done.returncode == code, done.stdout + done.stderr


def test_the_action_annotates_and_writes_sarif(tmp_path: Path) -> None:
    action = load("action.yml")
    assert action["runs"]["using"] == "composite"
    steps = {step.get("name"): step for step in action["runs"]["steps"]}
    said = {f"inputs.{name}" for name in action["inputs"]}
    assert set(re.findall(r"\$\{\{ (inputs\.[a-z-]+) \}\}", (REPOSITORY / "action.yml").read_text())) <= said
    assert all("shell" in step for step in steps.values() if "run" in step)
    env = {
        "GATE_PATHS": f"{GOLDEN}/bad/stale.sh {GOLDEN}/good/vllm.env",
        "GATE_ARGS": "--strict",
        "GATE_SARIF": "g.sarif",
    }
    done = bash(steps["SARIF"]["run"], tmp_path, env)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "g.sarif").read_text())["version"] == "2.1.0"
    done = bash(steps["Gate"]["run"], tmp_path, env)
    assert done.returncode == 4
    assert done.stdout.startswith("::error file=")
    assert bash(steps["Gate"]["run"], tmp_path, {**env, "GATE_PATHS": f"{GOLDEN}/good/vllm.env"}).returncode == 0


@pytest.mark.parametrize(("path", "code"), [("bad/stale.sh", 4), ("good/vllm.env", 0)])
def test_the_template_reports_and_gives_the_verdict(path: str, code: int, tmp_path: Path) -> None:
    (job,) = load("templates/archonctl-gate.yml").values()
    script = "\n".join(line for line in job["script"] if " pip install " not in line)
    assert len(job["script"]) == script.count("\n") + 2
    env = {**job["variables"], "ARCHONCTL_GATE_PATHS": str(GOLDEN / path)}
    done = bash(script, tmp_path, env)
    assert done.returncode == code, done.stderr
    report = JUnitXml.fromstring((tmp_path / job["artifacts"]["reports"]["junit"]).read_bytes())
    assert sum(suite.failures for suite in report) == (4 if code else 0)


def test_the_page_names_what_there_is() -> None:
    page = (REPOSITORY / "docs" / "ci.md").read_text()
    for name in ("archonctl-gate", "templates/archonctl-gate.yml", "schemas/gate-1.json"):
        assert name in page
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        assert yaml.safe_load(block)
