"""A virtual machine with Debian's kernel, booted once for the session; what it showed, as facts by name."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.kernelvm.machine import get_kernel, missing_tools, run_guest

Facts = Mapping[str, str]


@pytest.fixture(scope="session")
def debian_kernel() -> Path:
    """The unpacked kernel, kept with the other things that are made once a machine."""
    if os.geteuid() != 0:
        pytest.skip("no virtual machine: as root only, it runs on this machine's own root folder")
    if platform.machine() != "x86_64":
        pytest.skip(f"no virtual machine: Debian's kernel for x86-64, this is {platform.machine()}")
    if missing := missing_tools():
        pytest.skip(f"no virtual machine: {', '.join(missing)} not installed (scripts/test installs them)")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return get_kernel(home / "archonctl" / "kernel")


@pytest.fixture(scope="session")
def facts(debian_kernel: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Output and ``exit=N`` of every look at the kernel in ``guest.sh``."""
    out = tmp_path_factory.mktemp("vm") / "out"
    guest = Path(__file__).with_name("guest.sh").read_text(encoding="utf-8")
    # the guest has a /tmp of its own: what it needs of this repository comes with it, wherever the clone lies
    out.mkdir()
    for name in ("scripts/ttm-preflight.sh", "units/archon@.service", "units/archon-guard@.service"):
        shutil.copy(repository / name, out)
    files = {"PREFLIGHT": "ttm-preflight.sh", "UNIT": "archon@.service", "GUARD": "archon-guard@.service"}
    places = "".join(f"{name}=/mnt/out/{file}\n" for name, file in files.items())
    status = run_guest(debian_kernel, out, f"{places}{guest}")
    assert status == 0, (out / "said").read_text(encoding="utf-8", errors="replace")[-3000:]
    return {path.name: path.read_text(encoding="utf-8") for path in (out / "facts").iterdir()}
