"""Placing archonctl on a machine, or into an image: the package itself, units, accounts, folders, the root script.

The package is copied with what it needs from the Python that runs this (no network), and runs on a Python of the same
version that belongs to root. Everything placed is listed in ``installed.json``; uninstalling takes away exactly
that, and never what endpoints keep in /var/lib/archon and /etc/archon.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from archonctl import __version__
from archonctl.errors import HostRefusal
from archonctl.service.closure import package_files
from archonctl.service.state import atomic_write, readable_by_all

LIB = "/usr/lib/archon"
UNITS = "/usr/lib/systemd/system"
LISTING = f"{LIB}/installed.json"
SCHEMA = "archonctl.installed/1"
STEPS_SINCE = 254
"""The first systemd that knows RestartSteps= (systemd.service(5))."""

_UNIT_FILES = (
    "archon@.service",
    "archon-verify@.service",
    "archon-verify@.timer",
    "archon-failed@.service",
)
_SYSTEM_UNIT_FILES = (*_UNIT_FILES, "archon-exporter.service", "archon-guard@.service")
"""One exporter shows every endpoint of the machine; a user starts one by hand, and a guard."""
_LIBEXEC = ("archon-start", "archon-failed")
_LAUNCHER = """\
#!{python} -I
# archonctl {version}, placed by `archonctl install`.
import sys

sys.path.insert(0, "{lib}/python")
from archonctl.cli.main import run

run()
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things go: path to content and mode. Paths are absolute, as they are once ``root`` is /."""

    files: Mapping[str, tuple[bytes, int]]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """What was done: how many files were written, how many were right already, how many were taken away.

    ``root`` is None for a package.
    """

    written: int
    same: int
    removed: int
    root: str | None
    version: str = __version__


def shipped(name: str) -> Path:
    """A folder that ships with the package (``units``, ``scripts``): in the wheel, or in the checkout."""
    inside = Path(__file__).parents[1] / "_data" / name
    return inside if inside.is_dir() else Path(__file__).parents[3] / name


def install(root: Path = Path("/"), say: Say = lambda _text: None) -> Installed:
    """Place everything below ``root``; may be repeated, and writes only what differs.

    With a root other than / nothing of this machine is touched, and accounts are made by the image's own
    systemd-sysusers at its boot. Raises HostRefusal ``not-permitted``, ``install-packaged``, ``install-no-python``,
    ``install-unwritable``.
    """
    with _refusing(root), readable_by_all():
        root.mkdir(parents=True, exist_ok=True)
    live = root.samefile("/")
    if live and os.geteuid() != 0:
        raise HostRefusal(
            "not-permitted", "installing needs root", hint="sudo archonctl install, or --root DIR, --user"
        )
    if (path := root / LISTING.lstrip("/")).exists() and _packaged(root):
        raise HostRefusal(
            "install-packaged",
            "a Debian package has placed archonctl here",
            where=str(path),
            hint="apt install a newer package, or apt remove archonctl first",
        )
    layout = system_layout(find_python(root))
    before = set(_listed(root))
    with _refusing(root), readable_by_all():
        done = place(root, layout)
        gone = _remove(root, before - set(layout.files))
    say(f"placed {done.written} files below {root} ({done.same} were right already, {gone} taken away)")
    if live:
        _activate(say)
    return Installed(done.written, done.same, gone, str(root))


def uninstall(root: Path = Path("/"), say: Say = lambda _text: None) -> Installed:
    """Take away what ``install`` placed, and leave declarations, releases, histories and accounts.

    Raises HostRefusal ``not-installed``, ``endpoints-running``, ``not-permitted``, ``install-packaged``.
    """
    live = root.exists() and root.samefile("/")
    if live and os.geteuid() != 0:
        raise HostRefusal("not-permitted", "uninstalling needs root", hint="sudo archonctl install --uninstall")
    if _packaged(root):
        raise HostRefusal("install-packaged", "a Debian package has placed it", hint="apt remove archonctl")
    listed = _listed(root)
    if not listed:
        raise HostRefusal("not-installed", "nothing was installed here", where=str(root / LISTING.lstrip("/")))
    if live and (running := _running_endpoints()):
        hint = f"systemctl stop {' '.join(running)}"
        raise HostRefusal("endpoints-running", f"{', '.join(running)} still run from it", hint=hint)
    with _refusing(root):
        removed = _remove(root, {*listed, LISTING})
        shutil.rmtree(root / LIB.lstrip("/"), ignore_errors=True)
    if live:
        _reload()
    say(f"took away {removed} files; /etc/archon and /var/lib/archon stay")
    return Installed(0, 0, removed, str(root))


def install_user(
    home: Path, program: Path, state: Path, say: Say = lambda _text: None, config: Path | None = None
) -> Installed:
    """The units for this user's own manager. ``config`` is where hers lie otherwise than in ``~/.config``.

    ``program`` is the archonctl that they call. Raises ``install-unwritable``.

    No root: the limits of the machine stay as they are, and root's checks are not made.
    """
    lib, units = home / ".local/lib/archon", shipped("units")
    config = config or home / ".config"
    files = {lib / name: ((units / "libexec" / name).read_bytes(), 0o755) for name in _LIBEXEC}
    for unit in _UNIT_FILES:
        text = (units / "user" / unit).read_text(encoding="utf-8")
        for key, value in (("lib", lib), ("bin", program), ("state", state)):
            text = text.replace(f"@{key}@", str(value).replace("%", "%%"))
        files[config / "systemd/user" / unit] = (text.encode(), 0o644)
    written = 0
    with _refusing(home):
        for path, (content, mode) in files.items():
            if not _is_same(path, content, mode):
                _write(path, content, mode)
                written += 1
    say(f"placed {written} files below {home}; systemctl --user daemon-reload makes them known")
    return Installed(written, len(files) - written, 0, str(home))


def system_layout(python: str) -> Layout:
    """What a system gets. ``python`` is the interpreter in the launcher's first line."""
    units, scripts = shipped("units"), shipped("scripts")
    files: dict[str, tuple[bytes, int]] = {}
    for name in _SYSTEM_UNIT_FILES:
        files[f"{UNITS}/{name}"] = ((units / name).read_bytes(), 0o644)
    for name in _LIBEXEC:
        files[f"{LIB}/{name}"] = ((units / "libexec" / name).read_bytes(), 0o755)
    files[f"{LIB}/ttm-preflight.sh"] = ((scripts / "ttm-preflight.sh").read_bytes(), 0o755)
    files["/usr/lib/sysusers.d/archon.conf"] = ((units / "archon.sysusers.conf").read_bytes(), 0o644)
    files["/usr/lib/tmpfiles.d/archon.conf"] = ((units / "archon.tmpfiles.conf").read_bytes(), 0o644)
    if (systemd_version() or 0) >= STEPS_SINCE:
        steps = (units / "archon-restart-steps.conf").read_bytes()
        files[f"{UNITS}/archon@.service.d/05-restart-steps.conf"] = (steps, 0o644)
    for name, content in package_files().items():
        files[f"{LIB}/python/{name}"] = (content, 0o644)
    launcher = _LAUNCHER.format(python=python, version=__version__, lib=LIB)
    files["/usr/bin/archonctl"] = (launcher.encode(), 0o755)
    return Layout(files, ("/etc/archon", "/var/lib/archon"))


def systemd_version() -> int | None:
    """The running systemd's number, 252 for "systemd 252 (252.38-1~deb12u1)"; None where there is none."""
    try:
        done = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"systemd (\d+)", done.stdout)
    return int(found[1]) if found else None


def find_python(root: Path = Path("/")) -> str:
    """A Python of this very version that units may run: owned by root, executable by everyone, not in a home.

    Compiled parts of the package only load in the version they were built for. Raises HostRefusal
    ``install-no-python``.
    """
    wanted = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name in (f"/usr/bin/python{wanted}", "/usr/bin/python3", f"/usr/local/bin/python{wanted}", sys.executable):
        real = Path(os.path.realpath(root / name.lstrip("/")))
        if _is_roots(real) and _version_of(real) == wanted:
            return name if not name.startswith(sys.prefix) else str(real)
    if not root.samefile("/"):
        return f"/usr/bin/python{wanted}"  # an image that gets its Python later
    raise HostRefusal(
        "install-no-python",
        f"there is no Python {wanted} that belongs to root and that a unit may execute",
        where=str(root),
        hint=f"install the system's python{wanted}, or run this with the Python that the system has",
    )


def _is_roots(path: Path) -> bool:
    try:
        info = path.stat()
        parents = [parent.stat() for parent in path.parents]
    except OSError:
        return False
    reachable = all(parent.st_uid == 0 and parent.st_mode & stat.S_IXOTH for parent in parents)
    return reachable and info.st_uid == 0 and bool(info.st_mode & stat.S_IXOTH) and not info.st_mode & stat.S_IWOTH


def _version_of(python: Path) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def place(root: Path, layout: Layout) -> Installed:
    """Write what differs, and the listing last."""
    written = same = 0
    listing: dict[str, str] = {}
    for folder in layout.folders:
        (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True, mode=0o755)
    for name, (content, mode) in layout.files.items():
        path = root / name.lstrip("/")
        listing[name] = hashlib.sha256(content).hexdigest()
        if _is_same(path, content, mode):
            same += 1
            continue
        _write(path, content, mode)
        written += 1
    value = {"schema": SCHEMA, "version": __version__, "files": listing}
    text = (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
    path = root / LISTING.lstrip("/")
    if not _is_same(path, text, 0o644):
        atomic_write(path, text, 0o644)
    return Installed(written, same, 0, str(root))


def _write(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all for a reader. Not synced one by one, 1,700 times: what a power cut spoils, a repeat mends."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    staged = path.with_name(f".{path.name}.archonctl-{os.getpid()}")
    try:
        staged.write_bytes(content)
        staged.chmod(mode)
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


def _is_same(path: Path, content: bytes, mode: int) -> bool:
    try:
        info = path.lstat()
        right = stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) == mode and info.st_size == len(content)
        return right and path.read_bytes() == content
    except OSError:
        return False


def _remove(root: Path, names: set[str]) -> int:
    removed = 0
    for name in sorted(names):
        path = root / name.lstrip("/")
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            removed += 1
        with contextlib.suppress(OSError):  # not empty: others' files are in it
            path.parent.rmdir()
    return removed


def _listed(root: Path) -> dict[str, str]:
    """The files of the last install; a listing that is none lists nothing, and names outside of ours are ignored."""
    try:
        value = json.loads((root / LISTING.lstrip("/")).read_bytes())
        files = dict(value["files"]) if value["schema"] == SCHEMA else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
    ours = re.compile(rf"{LIB}/|{UNITS}/archon|/usr/lib/(sysusers|tmpfiles)\.d/archon\.conf$|/usr/bin/archonctl$")
    return {str(name): str(digest) for name, digest in files.items() if ours.match(str(name)) and ".." not in name}


def _packaged(root: Path) -> bool:
    return (root / "var/lib/dpkg/info/archonctl.list").exists()


def _activate(say: Say) -> None:
    """Make the accounts and folders now, and let systemd see the units."""
    for command in (["systemd-sysusers", "archon.conf"], ["systemd-tmpfiles", "--create", "archon.conf"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as err:
            say(f"note: {command[0]} could not be run ({err}); accounts and folders are made at the next boot")
            continue
        if done.returncode:
            say(f"note: {' '.join(command)}: {done.stderr.strip()[:300]}")
    _reload()


def _reload() -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(["systemctl", "daemon-reload"], capture_output=True, check=False, timeout=60)


def _running_endpoints() -> list[str]:
    command = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", "archon@*.service"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.split()[0] for line in done.stdout.splitlines() if line.strip()]


@contextlib.contextmanager
def _refusing(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        where = str(err.filename or root)
        raise HostRefusal("install-unwritable", err.strerror or str(err), where=where) from None
