"""Which rollouts of this machine are gone: a mark a rollout, locked while it lives.

A lease on a host names its rollout. One whose mark is here and locked by nobody was killed, or could not reach a host
to let it go; its leases are taken without a question. Of any other, of another machine or user, nothing is known.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.fleet.facts import cache_folder

LEASE_S = 24 * 3600
"""The longest lease, in seconds. A rollout that takes longer takes it again as each host's turn comes."""
_KEPT_S = 30 * LEASE_S


@contextlib.contextmanager
def marked(rollout: str, environ: Mapping[str, str]) -> Iterator[Path]:
    """Mark a rollout as living; the kernel lets the lock go if this process dies. Who has let every host go removes it.

    Raises HostRefusal ``state-unwritable``.
    """
    path = _folder(environ) / rollout
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise HostRefusal("state-unwritable", err.strerror or str(err), where=err.filename or str(path)) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(handle)


def gone_rollouts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Those of this user that do not live any more, and may have left leases; none where that cannot be seen."""
    try:
        return tuple(path.name for path in sorted(_folder(environ).iterdir()) if _is_gone(path))
    except OSError:
        return ()


def _is_gone(path: Path) -> bool:
    """Whether nobody has its lock; a very old one is removed."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(file.fileno()).st_mtime > _KEPT_S:
                path.unlink(missing_ok=True)
            return True
    except OSError:  # it lives, or another look has just taken it away
        return False


def _folder(environ: Mapping[str, str]) -> Path:
    return cache_folder(environ) / "rollouts"
