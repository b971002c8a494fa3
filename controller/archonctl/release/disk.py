"""Writing so that a reader, a kill and a power cut see the old or the new, and nothing else."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.release.values import ReleaseFile

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EBUSY, errno.ENOTSUP, errno.EPERM)
_STAGE = "archonctl"
_LEFTOVER = re.compile(rf"\.(?P<name>.+)\.{_STAGE}-(?P<pid>[0-9]{{1,10}})-[A-Za-z0-9_]+")


@contextlib.contextmanager
def refusing(place: Path) -> Iterator[None]:
    """Turn what the system refuses into one HostRefusal: ``release-disk-full`` or ``release-not-writable``."""
    try:
        yield
    except OSError as err:
        reason = err.strerror or str(err)
        if err.errno in _FULL:
            hint = f"df -h {place}; what was there before is untouched"
            raise HostRefusal("release-disk-full", f"no room to write: {reason}", where=str(place), hint=hint) from None
        raise HostRefusal("release-not-writable", f"cannot write: {reason}", where=str(place)) from None


def sync_folder(path: Path) -> None:
    """Make the names in a folder last."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, file: ReleaseFile) -> None:
    """Replace one file whole: a temporary name beside it, fsync, rename. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{_STAGE}-{os.getpid()}-file")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # noqa: PTH108  of an earlier process with our number
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            view = memoryview(file.content)
            while view:
                view = view[os.write(handle, view) :]
            os.fchmod(handle, file.mode)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(temporary, path)  # noqa: PTH104
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


def stage(parent: Path, name: str, files: Mapping[str, ReleaseFile], mode: int = 0o755) -> Path:
    """A new folder beside ``parent/name`` with all the files in it, complete and on disk. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix=f".{name}.{_STAGE}-{os.getpid()}-", dir=parent))
    try:
        for file, content in files.items():
            write_file(folder / file, content)
        os.chmod(folder, mode)  # noqa: PTH101
        sync_folder(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def exchange(first: Path, second: Path) -> bool:
    """Swap two names in one step (renameat2(2) with RENAME_EXCHANGE); False where that cannot be. Raises OSError."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if call(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), os.fspath(second))


def holds(folder: Path, files: Mapping[str, ReleaseFile]) -> bool:
    """True if the folder has exactly these files, byte for byte, as plain files of the right mode."""
    try:
        if set(os.listdir(folder)) != set(files):  # noqa: PTH208
            return False
        return all(_same(folder / name, file) for name, file in files.items())
    except OSError:
        return False


def open_unlinked(path: Path) -> int:
    """A descriptor to read ``path`` by, which is no link and does not block; who asks looks at what it is."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def read_plain(path: Path, limit_bytes: int = 4 << 20) -> bytes:
    """A plain file's content: no link is followed, and no more than the limit read. Raises OSError."""
    number = open_unlinked(path)
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(0, "it is not a plain file")
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise OSError(0, f"it has more than {limit_bytes:,} bytes")
    return content


def _same(path: Path, file: ReleaseFile) -> bool:
    handle = open_unlinked(path)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != file.mode:
            return False
        if found.st_size != len(file.content):
            return False
        return os.read(handle, len(file.content) + 1) == file.content
    finally:
        os.close(handle)


def sweep(parent: Path, name: str = "") -> None:
    """Remove what killed writers left in ``parent`` (of one name, or of all): only our own, of processes that are gone.

    What cannot be removed stays: it is in nobody's way.
    """
    with contextlib.suppress(OSError):
        for entry in os.listdir(parent):  # noqa: PTH208
            found = _LEFTOVER.fullmatch(entry)
            if found is not None and (not name or found["name"] == name):
                _remove_leftover(parent / entry, int(found["pid"]))


def _remove_leftover(path: Path, pid: int) -> None:
    with contextlib.suppress(OSError):
        info = os.lstat(path)
        is_alive = pid != os.getpid() and os.path.exists(f"/proc/{pid}")  # noqa: PTH110
        if info.st_uid != os.geteuid() or is_alive:
            return
        if stat.S_ISDIR(info.st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)  # noqa: PTH108
