"""A folder of staged files that only its owner may write to, used through one handle, so that nobody can swap it.

Names are made up here and never taken from outside; a link, a second hard link, a device or a file of another owner is
left alone and never read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from archonctl.errors import HostRefusal

PART = ".part"
_BLOCK_BYTES = 4 << 20
_MANIFEST_BYTES = 1 << 20


class Unfit(Exception):
    """A file that is not what it should be: no regular file of ours, another size, another digest."""


class Folder:
    """One folder. ``close`` it."""

    def __init__(self, path: Path) -> None:
        """Raises HostRefusal ``tiers-folder-unsafe``."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as err:
            raise _unsafe(path, err.strerror or str(err)) from None
        info = os.fstat(self._fd)
        self._owners = {info.st_uid, os.geteuid()}
        why = ""
        if stat.S_IMODE(info.st_mode) & 0o022:
            why = f"mode {stat.S_IMODE(info.st_mode):04o}: others may write to it, {0o700:04o} is wanted"
        elif info.st_uid != os.geteuid() and os.geteuid() != 0:
            why = f"it belongs to user {info.st_uid}, this is user {os.geteuid()}"
        if why:
            self.close()
            raise _unsafe(path, why)

    def close(self) -> None:
        """Give back the handle, and the lock with it."""
        os.close(self._fd)

    def lock(self) -> None:
        """Be the only one who changes it, until it is closed. Raises HostRefusal ``tiers-folder-in-use``."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = "archonctl tiers status shows what is there; the guard that holds it cleans by itself"
            raise HostRefusal(
                "tiers-folder-in-use", "another process keeps its staged files here", where=str(self.path), hint=hint
            ) from None

    def names(self) -> list[str]:
        """Every name. Raises OSError."""
        return sorted(os.listdir(self._fd))  # noqa: PTH208  of the handle, not of the path

    def own_bytes(self, name: str) -> int | None:
        """The size of a regular file of ours; ``None`` for anything else, or nothing."""
        try:
            info = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return None
        return info.st_size if self._ours(info) else None

    def stamp(self, name: str) -> tuple[int, ...] | None:
        """Changes whenever the file does."""
        try:
            info = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return None
        return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def free_bytes(self) -> int:
        """What the file system would still take from us. Raises OSError."""
        info = os.fstatvfs(self._fd)
        return info.f_bavail * info.f_frsize

    def open_own(self, name: str) -> int:
        """A handle to read a regular file of ours. Raises Unfit, OSError."""
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        if not self._ours(os.fstat(fd)):
            os.close(fd)
            raise Unfit(f"{name} is no regular file of ours")
        return fd

    def _ours(self, info: os.stat_result) -> bool:
        return stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and info.st_uid in self._owners

    def read_small(self, name: str) -> bytes:
        """A manifest. Raises Unfit, OSError."""
        fd = self.open_own(name)
        try:
            data = b""
            while len(data) <= _MANIFEST_BYTES and (block := os.read(fd, _BLOCK_BYTES)):
                data += block
        finally:
            os.close(fd)
        if len(data) > _MANIFEST_BYTES:
            raise Unfit(f"{name} has more than {_MANIFEST_BYTES:,} bytes")
        return data

    def digest(self, name: str, *, from_device: bool = False) -> tuple[str, int]:
        """SHA-256 and size of a file of ours, read from the device where asked. Raises Unfit, OSError."""
        fd = self.open_own(name)
        try:
            if from_device:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return _digest(fd, lambda _block: None)
        finally:
            os.close(fd)

    def make_last(self, name: str) -> None:
        """A file that another process wrote: ours alone to read, and on the device. Raises Unfit, OSError."""
        fd = self.open_own(name)
        try:
            os.fchmod(fd, 0o600)
            os.fsync(fd)
        finally:
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        """A file with this content, or none: temporary name, fsync, rename, fsync of the folder. Raises OSError."""
        with self._replacing(name) as fd:
            _write(fd, data)

    def copy_from(self, other: Folder, name: str) -> tuple[str, int]:
        """A copy, whole or not there; digest and size of what was read. Raises Unfit, OSError."""
        source = other.open_own(name)
        try:
            with self._replacing(name) as fd:
                return _digest(source, lambda block: _write(fd, block))
        finally:
            os.close(source)

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[int]:
        part = f".{name}{PART}"
        self.remove(part)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(part, flags, 0o600, dir_fd=self._fd)
        try:
            try:
                yield fd
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(part, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(part)
            raise
        self.sync()

    def remove(self, name: str) -> bool:
        """Unlink a name, whatever it is but a folder; False if there is none. Raises OSError."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make the names last. Raises OSError."""
        os.fsync(self._fd)


def _digest(fd: int, see: Callable[[bytes], object]) -> tuple[str, int]:
    state, size = hashlib.sha256(), 0
    while block := os.read(fd, _BLOCK_BYTES):
        state.update(block)
        see(block)
        size += len(block)
    return state.hexdigest(), size


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _unsafe(path: Path, why: str) -> HostRefusal:
    hint = f"install -d -m 0700 -o USER {path}, with the user that the engine and the guard run as"
    return HostRefusal("tiers-folder-unsafe", f"no folder for staged conversations: {why}", where=str(path), hint=hint)
