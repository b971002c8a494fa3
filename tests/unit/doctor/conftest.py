"""Machines laid out in a folder, and the declared endpoints that they are looked over for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from archonctl.doctor.machine import Machine
from archonctl.doctor.subject import Subject, study
from archonctl.host.detect import detect_host
from support.machines import lay_out

Lay = Callable[..., Machine]


@pytest.fixture
def lay(tmp_path: Path) -> Lay:
    """``lay(files, subjects=..., **facts)``: a machine with these files, its host detected from them."""

    def make(files: Mapping[str, str | bytes] | None = None, *, nvml: Any = None, **facts: Any) -> Machine:
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        lay_out(root, files or {})
        facts.setdefault("host", detect_host(root, page_bytes=4096, nvml=nvml))
        facts.setdefault("groups", frozenset({1000}))
        facts.setdefault("uid", 1000)
        return Machine(root=root, **facts)

    return make


@pytest.fixture
def archon(repository: Path, tmp_path: Path) -> Subject:
    """The archon endpoint: two cards, /dev/kfd, a floor of 150,200 MiB of pinned memory."""
    return study(repository / "env/archon.toml", {}, tmp_path / "root", "archon", is_named=True, cwd=repository)


@pytest.fixture
def declared(tmp_path: Path) -> Callable[..., Subject]:
    """``declared(text, name="x")``: a declaration of that text, named, on a machine of no name."""

    def make(text: str, name: str = "x", *, named: bool = True, hostname: str = "vm") -> Subject:
        path = tmp_path / "env" / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return study(path, {}, tmp_path / "root", hostname, is_named=named, cwd=tmp_path)

    return make
