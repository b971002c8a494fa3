"""A declared endpoint with a command line of its own, as every test here renders it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.engines.base import CommandLine
from archonctl.release.render import render_release
from archonctl.release.values import Release

TEXT = """\
[contract]
seqs = 2
len = 4096
[engine]
kind = "llamacpp"
version = "b11434"
binary = "/bin/echo"
[model]
path = "/models/m.gguf"
bytes = 1_073_741_824
"""

Loader = Callable[..., LoadedEndpoint]
Renderer = Callable[..., Release]


@pytest.fixture
def loaded(tmp_path: Path) -> Loader:
    def load(*, name: str = "tiny", **settings: object) -> LoadedEndpoint:
        path = tmp_path / "env" / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TEXT)
        return load_endpoint(path, {key.replace("__", "."): value for key, value in settings.items()}, {}, cwd=tmp_path)

    return load


@pytest.fixture
def rendered(loaded: Loader, tmp_path: Path) -> Renderer:
    def render(*words: str, env: dict[str, str] | None = None, home: Path | None = None, **settings: object) -> Release:
        command = CommandLine(("/bin/echo", *words), env or {})
        return render_release(loaded(**settings), command, home=home)

    return render
