"""What must be over before a start, and what must be there: leftovers, model file, image."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from archonctl.deployment.schema import ModelRef
from archonctl.errors import ArchonError
from archonctl.service.artefact import check_artefact, container_image, image_of
from archonctl.service.gone import card_used_bytes, group_pids, wait_gone
from archonctl.service.unit import UnitState

GROUP = "/system.slice/archon@x.service"
BEFORE = UnitState("active", "running", "success", 7, 0, 0, 1, "i", GROUP, "/x", 0)


def say(*_words: object, **_more: object) -> None:
    """Tells nobody."""


class Clock:
    """Sleeps by doing the next thing of a list."""

    def __init__(self, *steps: object) -> None:
        self.steps = list(steps)
        self.slept = 0

    def __call__(self, seconds: float) -> None:
        self.slept += 1
        if self.steps and callable(step := self.steps.pop(0)):
            step()


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """The file of a control group below a fake root, empty."""
    file = tmp_path / f"sys/fs/cgroup{GROUP}/cgroup.procs"
    file.parent.mkdir(parents=True)
    file.write_text("")
    return file


def test_a_unit_is_gone_when_its_group_is_empty(tmp_path: Path, group: Path) -> None:
    group.write_text("7\n8\n")
    assert group_pids(GROUP, tmp_path) == [7, 8]
    clock = Clock(lambda: group.write_text("8\n"), lambda: group.write_text(""))
    wait_gone("x", BEFORE, None, root=tmp_path, sleep=clock)
    assert clock.slept == 2


def test_processes_below_the_group_count_and_a_group_that_is_away_is_empty(tmp_path: Path, group: Path) -> None:
    (group.parent / "container").mkdir()
    (group.parent / "container/cgroup.procs").write_text("9\n")
    assert group_pids(GROUP, tmp_path) == [9]
    assert group_pids("/nowhere", tmp_path) == []
    assert group_pids("", tmp_path) == []
    assert group_pids("/", tmp_path) == []


def test_what_does_not_end_is_named(tmp_path: Path, group: Path) -> None:
    group.write_text("7\n")
    with pytest.raises(ArchonError, match="processes 7 still run") as caught:
        wait_gone("x", BEFORE, None, root=tmp_path, limit_s=0, sleep=Clock())
    assert caught.value.code == "engine-not-gone"


def test_a_port_that_is_held_is_named(tmp_path: Path) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    row = "  0: 0100007F:1F40 00000000:0000 0A 0:0 00:0 0 1000 0 4711 1\n"
    (tmp_path / "proc/net/tcp").write_text(f"head\n{row}")
    with pytest.raises(ArchonError, match="port 8000 is still held by a process of uid 1000"):
        wait_gone("x", BEFORE, 8000, root=tmp_path, limit_s=0, sleep=Clock())


def test_card_memory_that_still_falls_is_waited_for(tmp_path: Path) -> None:
    used = tmp_path / "sys/class/drm/card1/device/mem_info_vram_used"
    used.parent.mkdir(parents=True)
    (tmp_path / "sys/class/drm/card1-DP-1").mkdir()
    used.write_text("1000\n")
    assert card_used_bytes(tmp_path) == {"card1 vram": 1000}
    clock = Clock(*[lambda n=n: used.write_text(f"{n}\n") for n in (900, 800, 10)])
    wait_gone("x", BEFORE, None, root=tmp_path, sleep=clock)
    assert clock.slept == 3 + 10


def model_of(path: Path, content: bytes, **changes: object) -> ModelRef:
    path.write_bytes(content)
    values = {"path": str(path), "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    return ModelRef.model_validate(values | changes)


def test_a_model_is_hashed_once_until_somebody_touches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, memo = tmp_path / "m.gguf", tmp_path / "artefact.json"
    model = model_of(path, b"weights")
    assert check_artefact(model, memo, say) == ()
    hashed: list[str] = []
    monkeypatch.setattr("archonctl.service.artefact._hashed", lambda path, *_: hashed.append(str(path)) or "0" * 64)
    assert check_artefact(model, memo, say) == ()
    assert hashed == []
    os.utime(path, (1, 1))
    with pytest.raises(ArchonError) as caught:
        check_artefact(model, memo, say)
    assert (caught.value.code, hashed) == ("model-digest-differs", [str(path)])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"path": 1}'])
def test_a_broken_memo_only_costs_the_hashing(tmp_path: Path, text: str) -> None:
    memo = tmp_path / "artefact.json"
    memo.write_text(text)
    assert check_artefact(model_of(tmp_path / "m", b"w"), memo, say) == ()


def test_a_memo_that_cannot_be_kept_is_no_obstacle(tmp_path: Path) -> None:
    assert check_artefact(model_of(tmp_path / "m", b"w"), tmp_path / "no/such/folder", say) == ()


def test_what_is_not_checked_is_said(tmp_path: Path) -> None:
    memo = tmp_path / "a.json"
    assert "not declared" in check_artefact(model_of(tmp_path / "m", b"w", sha256=None), memo, say)[0]
    assert "repository" in check_artefact(ModelRef(path="org/model"), memo, say)[0]
    folder = ModelRef(path=str(tmp_path), sha256="0" * 64)
    assert "no single file" in check_artefact(folder, memo, say)[0]
    with pytest.raises(ArchonError) as caught:
        check_artefact(model_of(tmp_path / "m", b"w", sha256="0" * 64), memo, say)
    assert caught.value.code == "model-digest-differs"


def runtime(tmp_path: Path, script: str) -> str:
    """A stand-in for podman."""
    path = tmp_path / "podman"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_an_image_is_asked_for_by_its_digest(tmp_path: Path) -> None:
    podman = runtime(tmp_path, 'echo "sha256:abc $*" >&2; [ "$5" = i@sha256:1 ] && echo id-1')
    assert image_of((podman, "run", "i@sha256:1"), "i@sha256:1") == "id-1"
    assert image_of(("/bin/engine",), "i@sha256:1") == ""
    assert image_of((podman,), "") == ""


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ('echo "Error: i: image not known" >&2; exit 125', "image-missing"),
        ('echo "Error: No such image: i" >&2; exit 1', "image-missing"),
        ('echo "cannot connect" >&2; exit 125', "image-unreadable"),
        ("exit 0", "image-unreadable"),
    ],
)
def test_an_image_that_is_not_here_is_refused(tmp_path: Path, script: str, code: str) -> None:
    with pytest.raises(ArchonError) as caught:
        image_of((runtime(tmp_path, script), "run", "i"), "i")
    assert caught.value.code == code


def test_a_runtime_that_is_not_installed_is_no_traceback() -> None:
    with pytest.raises(ArchonError) as caught:
        image_of(("/nowhere/podman", "run", "i"), "i")
    assert caught.value.code == "image-unreadable"


def test_the_running_container_tells_its_image(tmp_path: Path) -> None:
    podman = runtime(tmp_path, '[ "$5" = engine-1 ] && echo id-2')
    assert container_image((podman, "run", "--name", "engine-1", "i")) == "id-2"
    assert container_image((podman, "run", "--name", "other", "i")) == ""
    assert container_image((podman, "run", "i")) == ""
    assert container_image(("/bin/engine", "--name", "x")) == ""
