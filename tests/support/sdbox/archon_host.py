"""A box that looks like the archon host after a power failure: its shipped declaration, on the radiance simulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.sdbox.box import Box, install, seen
from support.simulated_radiance import MODEL_BYTES

CLI = Path(sys.executable).with_name("archonctl")
UNIT = "archon@archon.service"
LIMIT = "/sys/module/ttm/parameters/pages_limit"
PAGES_IN_MIB = 256
RESET_MIB = 125_988
PROGRAM = f"""\
#!/bin/sh
# radiance SIMULATOR
exec /srv/archon/support/bin/radiance --simulate-version 1.8.1 --simulate-pages-limit {LIMIT} "$@"
"""
MEMORY = "MemTotal: 258023424 kB\nMemFree: 240000000 kB\nMemAvailable: 250000000 kB\nHugePages_Total: 0\n"


@contextmanager
def archon_host(folder: Path, repository: Path, *binds: str) -> Iterator[Box]:
    """Two cards and 246 GiB, by what the host shows; the limit of pinned memory is back at half of RAM."""
    parameters = folder / "module/ttm/parameters"
    parameters.mkdir(parents=True)
    (parameters / "pages_limit").write_text(f"{RESET_MIB * PAGES_IN_MIB}\n")
    box = Box(
        folder / f"night-{os.getpid()}", [*seen(repository), *binds], {"SDBOX_SYSMODULE": str(folder / "module")}
    ).up()
    try:
        install(box, CLI)
        tests = repository / "tests/support"
        box(
            "sh",
            "-c",
            f"mkdir -p /srv/archon/support /etc/archon; cp -r {tests}/bin {tests}/radiance_sim /srv/archon/support",
        )
        box("chmod", "-R", "a+rX", "/srv/archon")
        box("sh", "-c", f"cp -r {repository}/env/hosts {repository}/env/models /etc/archon")
        box(
            "sh",
            "-c",
            "mkdir /dev/dri; for f in kfd dri/renderD128 dri/renderD129; do mknod -m 666 /dev/$f c 1 3; done",
        )
        box.put("/srv/archon/radiance", PROGRAM, "755")
        box("truncate", "-s", str(MODEL_BYTES), "/srv/archon/model.rad")
        box.put("/srv/meminfo", MEMORY)
        box("mount", "--bind", "/srv/meminfo", "/proc/meminfo")
        # a box may not raise LimitMEMLOCK= (it has no CAP_SYS_RESOURCE): with this no limit binds
        box.put(f"/etc/systemd/system/{UNIT}.d/20-lock.conf", "[Service]\nAmbientCapabilities=CAP_IPC_LOCK\n")
        declare(box, repository)
        yield box
    finally:
        box.down()


def declare(box: Box, repository: Path, host_pool: str = "45_568") -> None:
    """The shipped declaration with only what belongs to this machine replaced."""
    text = (repository / "env/archon.toml").read_text()
    image = next(line for line in text.splitlines() if line.startswith("image = "))
    for old, new in (
        (image, 'binary = "/srv/archon/radiance"'),
        ('mounts = ["/var/lib/radiance/tune:/opt/radiance/share/radiance/tune"]\n', ""),
        ("/models/qwen3.8-next-flash-fp8-iq4r-moe.rad", "/srv/archon/model.rad"),
        ('sha256 = "0af5e96244e80c21ac8edca1719dae49b8a201b94a2f3994c3e24026ceaa4d20"\n', ""),
        ('"env/', '"/etc/archon/'),
        ("host-pool-mib = 45_568", f"host-pool-mib = {host_pool}"),
    ):
        assert old in text
        text = text.replace(old, new)
    box.put("/etc/archon/archon.toml", text)
