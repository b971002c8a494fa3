"""A plan that was kept is applied as it was reviewed, or refused with what changed since."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.errors import DeclarationError, HostRefusal
from archonctl.service.plan_here import plan_here
from archonctl.service.saved_plan import SavedPlan, StalePlan, read_saved_plan, refuse_stale, save_plan
from support.kills import Counter, killed_at

ENVIRON: dict[str, str] = {"HOME": "/nonexistent", "XDG_RUNTIME_DIR": "/nonexistent"}


@pytest.fixture
def declared(tmp_path: Path, repository: Path) -> Path:
    shutil.copytree(repository / "env", tmp_path / "env")
    return tmp_path / "env" / "archon.toml"


def _load(path: Path, **flags: object) -> LoadedEndpoint:
    return load_endpoint(path, flags, ENVIRON, path.parents[1])


def _kept(path: Path, where: Path, **flags: object) -> SavedPlan:
    loaded = _load(path, **flags)
    save_plan(loaded, plan_here(loaded), where, ENVIRON)
    return read_saved_plan(where)


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_a_kept_plan_is_the_declaration_that_was_judged(declared: Path, tmp_path: Path) -> None:
    saved = _kept(declared, tmp_path / "a.json", **{"contract.seqs": 2})
    assert saved.loaded.endpoint == _load(declared, **{"contract.seqs": 2}).endpoint
    refuse_stale(saved, ENVIRON)


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("archon.toml", "seqs = 3", "seqs = 2", "contract.seqs was 3, is 2"),
        ("hosts/archon.toml", "ram_mib = ", "ram_mib = 1", "ram_mib"),
        ("models/qwen3.8-next-flash.toml", "\n", "\n# another line\n", "manifest"),
    ],
)
def test_what_changed_since_is_named_with_both_values(
    declared: Path, tmp_path: Path, file: str, old: str, new: str, told: str
) -> None:
    saved = _kept(declared, tmp_path / "a.json")
    _edit(declared.parent / file, old, new)
    with pytest.raises(StalePlan) as stale:
        refuse_stale(saved, ENVIRON)
    assert stale.value.code == "plan-stale"
    assert told in "\n".join((str(stale.value), *stale.value.tail))


def test_a_declaration_that_is_gone_or_broken_makes_the_plan_stale(declared: Path, tmp_path: Path) -> None:
    saved = _kept(declared, tmp_path / "a.json")
    declared.write_text("[contract\n", "utf-8")
    with pytest.raises(StalePlan, match="cannot be read any more"):
        refuse_stale(saved, ENVIRON)
    declared.unlink()
    with pytest.raises(StalePlan, match="cannot be read any more"):
        refuse_stale(saved, ENVIRON)


def test_another_model_file_makes_the_plan_stale(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    declaration = tmp_path / "env" / "tiny.toml"
    declaration.parent.mkdir()
    declaration.write_text(
        f"""[contract]
seqs = 2
len = 256
[engine]
kind = "llamacpp"
binary = "/bin/true"
[model]
path = "{tiny_gguf("llama")}"
[host]
detect = true
""",
        "utf-8",
    )
    saved = _kept(declaration, tmp_path / "a.json")
    refuse_stale(saved, ENVIRON)
    os.utime(saved.loaded.endpoint.model.path, ns=(1, 1))
    with pytest.raises(StalePlan, match="changed at"):
        refuse_stale(saved, ENVIRON)


def test_the_command_refuses_a_stale_plan_as_the_gate_does(declared: Path, tmp_path: Path, run_cli: Any) -> None:
    path = tmp_path / "a.plan.json"
    assert run_cli("plan", str(declared), "--out", str(path)).code == 0
    assert run_cli("apply", str(path), "--seqs", "2").code == 2
    _edit(declared, "seqs = 3", "seqs = 2")
    refused = run_cli("apply", str(path), "--check")
    assert refused.code == 4
    assert "plan-stale" in refused.stderr
    assert "contract.seqs was 3, is 2" in refused.stderr
    assert run_cli("plan", str(declared), "--out", str(declared)).code == 2


def test_only_an_earlier_plan_is_replaced(declared: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.json"
    other.write_text("{}", "utf-8")
    loaded = _load(declared)
    with pytest.raises(HostRefusal, match="saved-plan-not-written"):
        save_plan(loaded, plan_here(loaded), other, ENVIRON)
    assert other.read_text("utf-8") == "{}"
    with pytest.raises(HostRefusal, match="saved-plan-not-written"):
        save_plan(loaded, plan_here(loaded), tmp_path / "no" / "a.json", ENVIRON)
    _kept(declared, tmp_path / "a.json")
    assert _kept(declared, tmp_path / "a.json", **{"contract.seqs": 1}).loaded.endpoint.contract.seqs == 1


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"{}", b'{"schema": "archonctl.plan/1"}', b"\xff\xfe", b"[" * 100_000]
)
def test_what_is_no_plan_file_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(DeclarationError, match="saved-plan-invalid"):
        read_saved_plan(path)


def test_a_link_a_folder_or_a_pipe_is_no_plan_file(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("/dev/zero")
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("link.json", "folder.json", "pipe.json", "none.json"):
        with pytest.raises(DeclarationError, match="saved-plan-invalid"):
            read_saved_plan(tmp_path / name)


def test_a_plan_file_cut_anywhere_is_refused(declared: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    _kept(declared, path)
    whole = path.read_bytes()
    assert whole.endswith(b"}\n")
    for length in range(0, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(DeclarationError, match="saved-plan-invalid"):
            read_saved_plan(path)


def test_a_kill_at_any_change_leaves_the_earlier_plan_or_the_new_one(declared: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    _kept(declared, path)
    loaded = _load(declared, **{"contract.seqs": 1})
    plan = plan_here(loaded)

    def work(counter: Counter) -> None:
        counter.watch()
        save_plan(loaded, plan, path, ENVIRON)

    number = 1
    while killed_at(number, work):
        assert read_saved_plan(path).loaded.endpoint.contract.seqs in {1, 3}
        number += 1
    assert number > 3
    assert read_saved_plan(path).loaded.endpoint.contract.seqs == 1
