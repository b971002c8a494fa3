"""Where the bytes of a model come from: a folder here, or (``remote``) one that is reached over the network."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from archonctl.errors import ModelError
from archonctl.model.blob import Blob
from archonctl.model.gguf_cursor import shown


class Files(Protocol):
    """A folder of model files."""

    @property
    def where(self) -> str:
        """The folder's name for messages."""
        ...

    def shown(self, name: str) -> str:
        """A file's name for messages."""
        ...

    def open(self, name: str) -> AbstractContextManager[Blob]:
        """One of its files. Raises ModelError."""
        ...

    def prefetch(self, names: Sequence[str]) -> None:
        """Make the beginnings of many files ready at once, where that is quicker than one by one."""
        ...


@dataclass(frozen=True, slots=True)
class FileBlob:
    """A descriptor. Read with ``pread`` rather than mapped: a file cut short meanwhile is an error, not a SIGBUS."""

    fd: int
    path: str
    size: int

    def read(self, count: int, position: int) -> bytes:
        """Up to ``count`` bytes; fewer only at the end of the file."""
        data = os.pread(self.fd, count, position)
        while data and len(data) < count:
            more = os.pread(self.fd, count - len(data), position + len(data))
            if not more:
                break
            data += more
        return data


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """A folder of this machine."""

    folder: Path

    @property
    def where(self) -> str:
        """The folder as it was given."""
        return str(self.folder)

    def shown(self, name: str) -> str:
        """The file's path."""
        return str(self.folder / name)

    def open(self, name: str) -> AbstractContextManager[Blob]:
        """See ``opened``."""
        return opened(self.folder / name)

    def prefetch(self, names: Sequence[str]) -> None:
        """Nothing: a file here is read at once."""


@contextmanager
def opened(path: Path) -> Iterator[FileBlob]:
    """A model file. Never blocks, never opens a device or a FIFO.

    Raises ModelError: ``model-missing``, ``model-is-directory``, ``model-not-a-file`` or ``model-unreadable`` (also for
    an error of the system inside the ``with`` block).
    """
    if "\0" in str(path):
        raise ModelError("model-unreadable", "cannot be read: the path holds a zero byte", where=shown(str(path)))
    fd = -1
    try:
        _regular(path, path.stat().st_mode)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        seen = os.fstat(fd)
        _regular(path, seen.st_mode)  # it may have been replaced in between
        yield FileBlob(fd, str(path), seen.st_size)
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(path) from None
    except OSError as err:
        raise unreadable(path, err) from None
    finally:
        if fd >= 0:
            os.close(fd)


def unreadable(path: Path, err: OSError) -> ModelError:
    """The error for a path that the operating system refuses."""
    hint = "let the user that runs archonctl read it" if isinstance(err, PermissionError) else "check path and disk"
    return ModelError("model-unreadable", f"cannot be read: {err.strerror or err}", where=str(path), hint=hint)


def _regular(path: Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise ModelError("model-is-directory", "is a directory, not a model file", where=str(path))
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "a special file")
    raise ModelError("model-not-a-file", f"is {kind}, not a model file", where=str(path))


def _missing(path: Path) -> ModelError:
    target = f" (a link to {path.readlink()}, which is not there)" if path.is_symlink() else ""
    return ModelError("model-missing", f"no such file{target}", where=str(path), hint="fetch it, or correct the path")
