"""archonctl as it is installed: into a machine, into an image, as a Debian package, for one user."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.sdbox.box import Box, install

CLI = Path(sys.executable).with_name("archonctl")
LIB = "/usr/lib/archon"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, *map(str, words)], capture_output=True, text=True, check=False, timeout=120)


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image that archonctl was installed into once."""
    root = tmp_path_factory.mktemp("placed") / "image"
    done = run("install", "--root", root)
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture
def root(placed: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(placed, tmp_path / "image")
    return tmp_path / "image"


def test_an_image_gets_everything_and_a_second_time_changes_nothing(root: Path) -> None:
    first = tree(root)
    assert first["usr/bin/archonctl"][0] == 0o755
    assert first[f"{LIB[1:]}/ttm-preflight.sh"][0] == 0o755
    again = run("install", "--root", root, "--json")
    assert json.loads(again.stdout)["written"] == 0
    assert tree(root) == first


def test_a_strict_umask_of_root_closes_nothing(tmp_path: Path) -> None:
    script = 'umask 077; exec "$@"'
    done = subprocess.run(["sh", "-c", script, "_", CLI, "install", "--root", tmp_path / "image"], check=False)
    assert done.returncode == 0
    closed = [path for path in (tmp_path / "image").rglob("*") if path.stat().st_mode & 0o044 != 0o044]
    assert closed == []


def test_an_edit_is_put_right_and_what_is_no_longer_part_goes(root: Path) -> None:
    first = tree(root)
    (root / "usr/lib/archon/archon-start").write_text("#!/bin/sh\n")
    (root / "usr/lib/archon/python/old.py").write_text("")
    listing = root / "usr/lib/archon/installed.json"
    value = json.loads(listing.read_text())
    value["files"] |= {"/usr/lib/archon/python/old.py": "0" * 64, "/etc/passwd": "0" * 64, "/usr/lib/archon/../x": ""}
    listing.write_text(json.dumps(value))
    (root / "etc/passwd").write_text("root")
    done = json.loads(run("install", "--root", root, "--json").stdout)
    assert (done["written"], done["removed"]) == (1, 1)
    (root / "etc/passwd").unlink()
    assert tree(root) == first


def test_uninstalling_leaves_data_and_nothing_of_ours(root: Path) -> None:
    (root / "etc/archon/mine.toml").write_text("x")
    (root / "var/lib/archon/mine").mkdir()
    assert run("install", "--root", root, "--uninstall").returncode == 0
    assert list(tree(root)) == ["etc/archon/mine.toml"]
    assert (root / "var/lib/archon/mine").is_dir()
    again = run("install", "--root", root, "--uninstall")
    assert (again.returncode, "not-installed" in again.stderr) == (5, True)


def test_a_place_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "usr").write_text("in the way")
    done = run("install", "--root", tmp_path)
    assert done.returncode == 5
    assert "install-unwritable" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.systemd
@pytest.mark.parametrize("user", ["nobody"])
def test_an_ordinary_user_is_refused_by_name(box: Box, user: str) -> None:
    done = box.run("setpriv", f"--reuid={user}", "--clear-groups", CLI, "install")
    assert done.returncode in (5, 126, 127)  # the latter where this Python lies in root's home


@pytest.fixture
def machine(box: Box) -> Iterator[Box]:
    yield box
    box.run("dpkg", "--purge", "archonctl")
    box.run(CLI, "install", "--uninstall")


@pytest.mark.systemd
def test_a_debian_package_installs_runs_and_goes(machine: Box, tmp_path: Path) -> None:
    done = run("install", "--deb", tmp_path)
    assert done.returncode == 0, done.stderr
    package = Path(done.stdout.strip())
    listed = subprocess.run(["dpkg-deb", "-c", package], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in listed.splitlines()} == {"root/root"}
    machine._tool("exec", "sh", "-c", "base64 -d >/srv/a.deb", stdin=_base64(package))
    machine("dpkg", "-i", "--force-depends", "--force-unsafe-io", "/srv/a.deb", timeout=120)
    assert machine("/usr/bin/archonctl", "--version").startswith("archonctl ")
    assert "archon-verify" in machine("id", "archon-verify")
    assert machine("stat", "-c", "%U %a", "/run/archon") == "root 755"
    assert machine.run("systemctl", "cat", "archon@x.service").returncode == 0
    refused = machine.run(CLI, "install")
    assert (refused.returncode, "install-packaged" in refused.stderr) == (5, True)
    machine("dpkg", "--purge", "archonctl", timeout=60)
    assert machine.run("test", "-e", LIB).returncode == 1


def _base64(path: Path) -> str:
    import base64

    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.systemd
def test_the_installed_command_needs_nothing_of_the_environment_that_placed_it(machine: Box) -> None:
    install(machine, CLI)
    for user in ("archon", "archon-verify", "nobody"):
        words = ["setpriv", f"--reuid={user}", "--clear-groups", "env", "-i", "/usr/bin/archonctl", "explain"]
        assert "contract-short" in machine(*words)
    assert "PYTHONPATH" not in machine("cat", "/usr/bin/archonctl")
    said = machine("env", "PYTHONPATH=/srv/evil", "/usr/bin/python3", "-c", "print(1)")
    assert said == "1"
    machine.put("/srv/evil/archonctl/__init__.py", "raise SystemExit('evil')")
    assert machine("env", "PYTHONPATH=/srv/evil", "/usr/bin/archonctl", "--version").startswith("archonctl ")


@pytest.mark.systemd
def test_every_installed_unit_verifies_where_it_is_installed(machine: Box) -> None:
    install(machine, CLI)
    units = ["archon@x.service", "archon-verify@x.service", "archon-verify@x.timer", "archon-failed@x.service"]
    units += ["archon-exporter.service", "archon-guard@x.service"]
    done = machine.run("systemd-analyze", "verify", "--man=no", *units)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    for unit in (
        "archon-verify@x.service",
        "archon-failed@x.service",
        "archon-exporter.service",
        "archon-guard@x.service",
    ):
        shown = json.loads(machine("systemd-analyze", "security", "--json=short", "--no-pager", unit))
        assert shown
        overall = machine("systemd-analyze", "security", "--no-pager", unit).splitlines()[-1]
        exposure = float(overall.split(":")[1].split()[0])
        assert exposure < 4.0, overall


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a root of its own")
def test_what_is_placed_belongs_to_root_and_nobody_else_can_write_it(placed: Path) -> None:
    for path in placed.rglob("*"):
        info = path.lstat()
        assert (info.st_uid, info.st_mode & 0o022) == (0, 0), path
