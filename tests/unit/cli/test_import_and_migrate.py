"""``archonctl import``, ``migrate`` and the targets of ``render``, as the installed command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Run = Any

SCRIPT = (
    "docker run --gpus all -e HF_TOKEN=s3cret ghcr.io/ggml-org/llama.cpp:server-cuda-b6000 -m /m/x.gguf -c 8192 -np 2\n"
)


def test_an_import_is_written_once_and_planned_from(run_cli: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "chat.sh", tmp_path / "chat.toml"
    source.write_text(SCRIPT)
    done = run_cli("import", source, "--out", out)
    assert done.code == 0, done.stderr
    assert "s3cret" not in out.read_text() + done.stdout
    assert "HF_TOKEN" in out.read_text()
    again = run_cli("import", source, "--out", out)
    assert (again.code, "import-out-exists" in again.stderr) == (2, True)
    plan = run_cli("plan", out)
    assert "model-missing" in plan.stderr


def test_an_import_prints_toml_that_is_its_json(run_cli: Run, tmp_path: Path) -> None:
    source = tmp_path / "chat.sh"
    source.write_text(SCRIPT)
    value = json.loads(run_cli("import", source, "--json", "--name", "x").stdout)
    assert value["endpoints"][0]["toml"].strip() == run_cli("import", source, "--name", "x").stdout.strip()
    assert value["endpoints"][0]["declaration"]["contract"] == {"seqs": 2, "len": 4096, "kv_dtype": "f16"}


def test_what_starts_no_engine_is_refused_in_one_sentence(run_cli: Run, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("echo hello\n")
    done = run_cli("import", tmp_path / "x.sh")
    assert (done.code, done.stdout) == (2, "")
    assert "import-nothing-found" in done.stderr


def test_a_migration_writes_only_when_asked(run_cli: Run, tmp_path: Path) -> None:
    repository = Path(__file__).parents[3]
    text = (repository / "env" / "archon-pair.toml").read_text().replace('"env/', f'"{repository}/env/')
    path = tmp_path / "pair.toml"
    path.write_text(text)
    path.chmod(0o640)
    boots = repository / "env" / "archon.toml"
    shown = run_cli("migrate", path, "--to", "1.8.1", "--boots", boots)
    assert (shown.code, path.read_text()) == (0, text)
    for part in ("556,348", "2.8 sessions", "45568", "150,200", "nothing was written"):
        assert part in shown.stdout
    done = run_cli("migrate", path, "--to", "1.8.1", "--boots", boots, "--write")
    assert done.code == 0, done.stderr
    assert "prefix-cache-mib = 8192" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert run_cli("plan", path).code == 0


def test_a_target_is_printed_alone(run_cli: Run) -> None:
    quadlet = run_cli("render", "env/archon.toml", "--target", "quadlet")
    assert quadlet.code == 0, quadlet.stderr
    assert quadlet.stdout.startswith("# Rendered by archonctl")
    assert "[Container]" in quadlet.stdout
    docker = run_cli("render", "env/archon.toml", "--target", "docker")
    assert docker.stdout.startswith("#!/bin/sh")
    refused = run_cli("render", "env/tiny.toml", "--target", "podman")
    assert (refused.code, "render-target-unsupported" in refused.stderr) == (2, True)
