"""The verb as a person and a script have it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

SMALL = """
[contract]
seqs = 2
len = 2048
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/bin/{binary}"
[model]
path = {model}
bytes = {size}
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
"""


@pytest.fixture
def folder(tmp_path: Path, tiny_gguf: Any, free_port: int) -> Path:
    """A folder whose env/ declares one endpoint that this machine can run, with its size."""
    model = tiny_gguf("llama")
    (tmp_path / "env").mkdir()
    values = {"model": json.dumps(str(model)), "size": model.stat().st_size, "port": free_port}
    (tmp_path / "env/small.toml").write_text(SMALL.format(binary="true", **values))
    return tmp_path


def figures(text: str) -> str:
    """Without its figures: free memory is another one a moment later."""
    return re.sub(r"[0-9][0-9,]*", "N", text)


ENDPOINT = [word for name in ("declaration", "engine-program", "model-file", "plan") for word in ("--check", name)]


def results(done: Any) -> dict[str, Any]:
    return {each["check"]: each for each in json.loads(done.stdout)["results"]}


def test_this_machine_is_told_as_it_is(run_cli: Any, folder: Path) -> None:
    done = run_cli("doctor", "--json", cwd=folder)
    value = json.loads(done.stdout)
    found = results(done)
    assert value["endpoints"] == ["small"]
    assert value["counts"]["pass"] >= 5
    assert value["exit_code"] == done.code
    assert found["plan"]["status"] == found["model-file"]["status"] == found["ports"]["status"] == "pass"
    booted = Path("/run/systemd/system").is_dir()
    assert found["systemd-running"]["status"] == ("pass" if booted else "skip")
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/kfd").exists():
        assert {found[name]["status"] for name in ("gpu-access", "leftovers")} == {"skip"}


def test_doctor_and_plan_say_the_same(run_cli: Any, folder: Path) -> None:
    for length, status, code in ((2048, "pass", 0), (90_000_000, "fail", 1)):
        env = {"ARCHON__CONTRACT__LEN": str(length)}
        plan = run_cli("plan", "small", "--json", cwd=folder, env=env)
        found = run_cli("doctor", "small", "--check", "plan", "--json", cwd=folder, env=env)
        assert (plan.code, found.code) == (code, code)
        said = [each["message"] for each in json.loads(found.stdout)["results"]]
        assert {each["status"] for each in json.loads(found.stdout)["results"]} == {status}
        if code:
            assert [figures(text) for text in said] == [figures(text) for text in json.loads(plan.stdout)["reasons"]]


def test_a_model_of_another_size_and_a_program_that_is_missing_fail(run_cli: Any, folder: Path) -> None:
    path = folder / "env/small.toml"
    text = path.read_text()
    size = int(re.search(r"bytes = (\d+)", text)[1])  # type: ignore[index]
    path.write_text(text.replace(f"bytes = {size}", f"bytes = {size + 1}").replace("/bin/true", "/bin/no-such"))
    done = run_cli("doctor", *ENDPOINT, "--json", cwd=folder)
    assert done.code == 1
    assert results(done)["model-file"]["code"] == "model-bytes-differ"
    assert f"{size:,} bytes, {size + 1:,} declared (-1)" in results(done)["model-file"]["message"]
    assert results(done)["engine-program"]["code"] == "engine-binary-missing"


def test_a_digest_is_compared_only_where_it_was_read(run_cli: Any, folder: Path, tmp_path: Path) -> None:
    path, env = folder / "env/small.toml", {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    path.write_text(path.read_text().replace("[host]", f'sha256 = "{"0" * 64}"\n[host]'))
    asked = ("doctor", "--check", "model-file", "--json")
    unread = run_cli(*asked, "--strict", cwd=folder, env=env)
    assert unread.code == 3, "its size is right and its contents were not looked at"
    assert [each["unseen"] for each in json.loads(unread.stdout)["results"]] == [False, True]
    read = run_cli(*asked, "--verify-files", cwd=folder, env=env)
    assert (read.code, json.loads(read.stdout)["results"][1]["code"]) == (1, "model-sha256-differs")
    assert run_cli(*asked, cwd=folder, env=env).code == 1, "remembered"


def test_a_declaration_for_another_host_is_planned_and_not_judged_here(run_cli: Any, repository: Path) -> None:
    done = run_cli("doctor", *ENDPOINT, "--json", cwd=repository)
    found = [each for each in json.loads(done.stdout)["results"] if each["endpoint"] == "archon"]
    assert [each["status"] for each in found] == ["pass", "skip", "skip", "pass"]
    assert "declared for host archon" in found[1]["message"]
    named = run_cli("doctor", "archon", *ENDPOINT, "--json", cwd=repository)
    assert (named.code, results(named)["model-file"]["code"]) == (1, "model-missing")


def test_hostile_declarations_are_findings_beside_a_good_one(run_cli: Any, folder: Path) -> None:
    env = folder / "env"
    (env / "nul.toml").write_bytes(b"[contract]\n\0\xff")
    (env / "escape.toml").write_text('[contract]\nseqs = 1\nlen = 512\n[engine]\nkind = "\x1b]0;x\x07"\n')
    (env / "huge.toml").write_text("[contract]\nseqs = 1\n" + "#" * 3_000_000)
    (env / "deep.toml").write_text("[contract]\nx = " + "[" * 5000)
    (env / "folder.toml").mkdir()
    (env / "loop.toml").symlink_to("loop.toml")
    done = run_cli("doctor", "--check", "declaration", cwd=folder)
    assert done.code == 1
    assert "Traceback" not in done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    coloured = run_cli("doctor", "--check", "declaration", "--color", "always", cwd=folder).stdout
    assert re.sub(r"\x1b\[[0-9;]+m", "", coloured) == done.stdout
    assert done.stdout.count("✗ declaration") == 4
    assert "✓ declaration" in done.stdout
    assert re.search(r"^4 failed, 1 passed$", done.stdout, re.MULTILINE)
    assert "next: archonctl explain declaration-" in done.stdout


def test_a_runtime_that_hangs_is_ended_and_said(run_cli: Any, tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nsleep 300\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = run_cli("doctor", "--check", "container-runtime", "--json", cwd=tmp_path, env=env)
    said = json.loads(done.stdout)["results"]
    assert any("docker info did not answer within 3 s" in each["message"] for each in said)


def test_a_machine_without_declarations_is_looked_at_alone(run_cli: Any, tmp_path: Path) -> None:
    done = run_cli("doctor", "--check", "systemd-running", "--check", "cgroup-version", cwd=tmp_path)
    assert "the machine alone is looked at" in done.stderr
    assert done.code in (0, 3)


def test_the_list_names_every_check_and_does_none(run_cli: Any, tmp_path: Path) -> None:
    done = run_cli("doctor", "--list", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")
    assert "gtt-size" in done.stdout
    one = json.loads(run_cli("doctor", "--list", "--check", "ports", "--json", cwd=tmp_path).stdout)
    assert [row["id"] for row in one["checks"]] == ["ports"]


@pytest.mark.parametrize(
    ("words", "code"), [(["--root", "/no/such"], 2), (["no-such-endpoint"], 2), (["--root", "."], 3)]
)
def test_what_cannot_be_looked_at_is_no_health(run_cli: Any, tmp_path: Path, words: list[str], code: int) -> None:
    assert run_cli("doctor", "--check", "ports", *words, cwd=tmp_path).code == code
