"""The arguments of the engine that runs, as the kernel shows them: what a release says may not be what runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from archonctl.service import procfs
from archonctl.service.running import cmdline_of, environ_of

_VARIABLE = "LLAMA_ARG_"
"""llama-server takes every option from the environment too, under names that begin so (common/arg.cpp)."""
_SAVE_PATH = "--slot-save-path"


def running_arguments(port: int, proc: Path = procfs.PROC) -> tuple[str, ...] | None:
    """Options and variables of the one process that listens on a port here; ``None`` where that cannot be seen."""
    pids = {each.pid for each in procfs.listeners(port, proc)}
    pid = pids.pop() if len(pids) == 1 else None
    argv = cmdline_of(pid, proc) if pid is not None else ()
    environ = environ_of(pid, proc) if pid is not None else None
    if not argv or environ is None:
        return None
    variables = sorted(f"{name}={value}" for name, value in environ.items() if name.startswith(_VARIABLE))
    return (*argv[1:], *variables)


def save_path(arguments: Sequence[str]) -> Path | None:
    """Where that engine saves slots, by the last option that says it; ``None`` where none does."""
    found = None
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        if word == _SAVE_PATH and after:
            found = Path(after)
        elif word.startswith(f"{_SAVE_PATH}="):
            found = Path(word.partition("=")[2])
    return found
