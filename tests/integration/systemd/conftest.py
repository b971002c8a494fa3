"""A box with a real systemd, booted once for the session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box, seen, why_no_box


@pytest.fixture(scope="session")
def box(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Box]:
    """A running box that sees this repository and this Python."""
    if why := why_no_box():
        pytest.skip(f"no systemd box: {why}")
    folder = tmp_path_factory.mktemp("sdbox") / f"box-{os.getpid()}"
    binds = seen(repository)
    if engine := os.environ.get("ARCHON_TEST_LLAMA_SERVER"):
        binds.append(f"ro:{Path(engine).resolve().parent}")
    found = Box(folder, binds).up()
    yield found
    found.down()
