"""Where releases lie: one folder a release, named by its digest, and a link to the one that is current.

    DIR/0123456789abcdef/     all files of one release, complete from the moment the name exists
    DIR/current               -> 0123456789abcdef, switched in one step

A kill between any two steps leaves the old release current and complete, or the new one; the next write removes
what was left behind. Earlier releases stay, for rollback.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.release.disk import exchange, holds, refusing, stage, sweep, sync_folder, write_file
from archonctl.release.values import MANIFEST, SCHEMA, Release, ReleaseFile

CURRENT = "current"
DIGEST_CHARS = 16


@dataclass(frozen=True, slots=True)
class Written:
    """Where a release lies, and whether anything had to be written."""

    path: Path
    changed: bool


def write_release(release: Release, out_dir: Path) -> Written:
    """Store a release below ``out_dir`` and make it the current one; writes nothing if it is that already.

    Only one writer at a time is meant to call this for one folder; several do no harm. Raises HostRefusal
    ``release-disk-full``, ``release-not-writable``, ``release-out-not-a-directory`` or ``release-unsafe-folder``.
    """
    stored = store_release(release, out_dir)
    switched = switch_current(out_dir, stored.path.name)
    return Written(stored.path, stored.changed or switched)


def store_release(release: Release, out_dir: Path) -> Written:
    """Store a release below ``out_dir``, whole, and leave the current one as it is. Raises as ``write_release``."""
    name = release.digest[:DIGEST_CHARS]
    _open_folder(out_dir, others=stat.S_IWGRP | stat.S_IWOTH)
    place = out_dir / name
    _check_link(out_dir / CURRENT)
    with refusing(out_dir):
        sweep(out_dir)
        if holds(place, release.files):
            return Written(place, False)
        _store(release, out_dir, place)
    return Written(place, True)


def switch_current(out_dir: Path, name: str) -> bool:
    """Make a stored release the current one, in one step; False if it is that already. Raises as ``write_release``."""
    link = out_dir / CURRENT
    _check_link(link)
    with refusing(out_dir):
        if current_name(out_dir) == name:
            return False
        _switch(link, name)
    return True


def current_name(out_dir: Path) -> str:
    """The folder name of the current release; empty where there is none."""
    return _target(out_dir / CURRENT)


def write_folder(release: Release, folder: Path) -> Written:
    """Write a release plainly into ``folder``, which then holds it and nothing else.

    A new folder appears whole; one with an earlier release is exchanged in one step where the file system can, else
    file by file with ``release.json`` last. A folder with anything else in it is refused. Raises HostRefusal as
    ``write_release``, and ``release-folder-not-ours``.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100  a path that is not there yet
    exists = _open_folder(folder, create=False, others=stat.S_IWOTH)
    with refusing(folder):
        sweep(folder.parent, folder.name)
        if exists:
            sweep(folder)
        if exists and holds(folder, release.files):
            return Written(folder, False)
    if exists:
        _check_ours(folder, release)
    with refusing(folder):
        if exists:
            _replace(release, folder)
        else:
            _create(release, folder)
    return Written(folder, True)


def _store(release: Release, out_dir: Path, place: Path) -> None:
    staged = stage(out_dir, place.name, release.files)
    try:
        os.rename(staged, place)  # noqa: PTH104
    except OSError as err:
        if err.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            shutil.rmtree(staged, ignore_errors=True)
            raise
        # the folder is there with other contents: somebody edited a stored release, or another writer was faster
        if not exchange(staged, place):
            for file, content in _in_order(release):
                write_file(place / file, content)
        shutil.rmtree(staged)
    sync_folder(out_dir)


def _switch(link: Path, name: str) -> None:
    temporary = link.with_name(f".{link.name}.archonctl-{os.getpid()}-link")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108
    os.symlink(name, temporary)  # noqa: PTH211
    os.rename(temporary, link)  # noqa: PTH104
    sync_folder(link.parent)


def _create(release: Release, folder: Path) -> None:
    os.makedirs(folder.parent, exist_ok=True)  # noqa: PTH103
    staged = stage(folder.parent, folder.name, release.files)
    try:
        os.rename(staged, folder)  # noqa: PTH104
    except OSError:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    sync_folder(folder.parent)


def _replace(release: Release, folder: Path) -> None:
    """Exchange the whole folder if that can be done unnoticed, else file by file, the manifest last."""
    if all(os.access(path, os.W_OK | os.X_OK) for path in (folder, folder.parent)) and not _is_here(folder):
        info = os.stat(folder)  # noqa: PTH116
        staged = stage(folder.parent, folder.name, release.files, stat.S_IMODE(info.st_mode))
        try:
            if (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(staged, info.st_uid, info.st_gid)
            done = exchange(staged, folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(staged)
        if done:
            return
    for name in set(os.listdir(folder)) - set(release.files):  # noqa: PTH208
        os.unlink(folder / name)  # noqa: PTH108
    for name, file in _in_order(release):
        write_file(folder / name, file)
    sync_folder(folder)


def _is_here(folder: Path) -> bool:
    """True if the folder is the current directory, which would stay behind with the old files, or a symbolic link."""
    if folder.is_symlink():
        return True
    with contextlib.suppress(OSError):
        return os.path.samefile(folder, os.curdir)  # noqa: PTH121
    return False


def _in_order(release: Release) -> list[tuple[str, ReleaseFile]]:
    return sorted(release.files.items(), key=lambda item: (item[0] == MANIFEST, item[0]))


def _open_folder(folder: Path, *, create: bool = True, others: int) -> bool:
    """True if the folder is there (or was made) and nobody else can write into it.

    ``others``: mode bits that make it unsafe.
    """
    with refusing(folder):
        if create:
            with contextlib.suppress(FileExistsError, NotADirectoryError):
                os.makedirs(folder, mode=0o755)  # noqa: PTH103
        try:
            link = os.lstat(folder)
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise _no_folder(folder) from None
        try:
            found = os.stat(folder)  # noqa: PTH116
        except FileNotFoundError:
            raise _no_folder(folder) from None
    if not stat.S_ISDIR(found.st_mode):
        raise _no_folder(folder)
    ours = (0, os.geteuid())
    reason = ""
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in ours:
        reason = f"it is a link that belongs to another user ({link.st_uid})"
    elif found.st_mode & others:
        reason = f"others can write into it (mode {stat.S_IMODE(found.st_mode):04o})"
    elif others & stat.S_IWGRP and found.st_uid not in ours:
        reason = f"it belongs to another user ({found.st_uid})"
    if reason:
        hint = "use a folder that only you can write to"
        raise HostRefusal("release-unsafe-folder", reason, where=str(folder), hint=hint)
    return True


def _no_folder(folder: Path) -> HostRefusal:
    return HostRefusal(
        "release-out-not-a-directory", "something else is in the way, expected a folder", where=str(folder)
    )


def _check_link(link: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISLNK(os.lstat(link).st_mode):
            why = "expected the link to the current release, this is something else"
            raise HostRefusal("release-out-not-a-directory", why, where=str(link), hint="move it away")


def _target(link: Path) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError:
        return ""


def _check_ours(folder: Path, release: Release) -> None:
    """Refuse to write over a folder that holds anything but a release."""
    with refusing(folder):
        names = set(os.listdir(folder))  # noqa: PTH208
        links = {name for name in names if not stat.S_ISREG(os.lstat(folder / name).st_mode)}
    foreign = sorted((names - set(release.files) - _manifest_names(folder)) | links)
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        why = f"it holds other files: {', '.join(f'{name!a}' for name in foreign[:3])}{more}"
        raise HostRefusal("release-folder-not-ours", why, where=str(folder), hint="name a new or empty folder")


def _manifest_names(folder: Path) -> set[str]:
    """The files of the release that lies in a folder, by its own manifest."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            manifest = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return set()
    if (
        not isinstance(manifest, dict)
        or manifest.get("schema") != SCHEMA
        or not isinstance(manifest.get("files"), dict)
    ):
        return set()
    return {str(name) for name in manifest["files"]}
