"""A Debian package of the same files that ``archonctl install`` places."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from archonctl import __version__
from archonctl.errors import HostRefusal
from archonctl.service.install import place, shipped, system_layout
from archonctl.service.state import readable_by_all


def build_deb(out: Path) -> Path:
    """Write ``archonctl_VERSION_ARCH.deb`` into ``out`` with dpkg-deb.

    Its files are bound to one Python version, as its ``Depends`` says: build it with the target's. Raises HostRefusal
    ``deb-build-failed``.
    """
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    layout = system_layout(f"/usr/bin/python{minor}")
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder) / "stage"
        stage.mkdir(mode=0o755)
        with readable_by_all():
            place(stage, layout)
        control = stage / "DEBIAN"
        control.mkdir(mode=0o755)
        control.chmod(0o755)
        for script in sorted(shipped("units").joinpath("debian").iterdir()):
            text = script.read_text(encoding="utf-8")
            values = {"version": __version__, "arch": _architecture(), "python": minor, "after": _after(minor)}
            for key, value in values.items():
                text = text.replace(f"@{key}@", value)
            (control / script.name).write_text(text, encoding="utf-8")
            (control / script.name).chmod(0o644 if script.name == "control" else 0o755)
        target = out / f"archonctl_{__version__}_{_architecture()}.deb"
        try:
            command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(stage), str(target)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as err:
            raise HostRefusal("deb-build-failed", f"dpkg-deb: {err}", hint="it comes with Debian's dpkg") from None
        if done.returncode:
            raise HostRefusal("deb-build-failed", done.stderr.strip()[:500] or f"exit {done.returncode}")
    return target


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _after(minor: str) -> str:
    major, _, number = minor.partition(".")
    return f"{major}.{int(number) + 1}"
