"""What was observed of a machine: the facts that checks judge, and the few files that a check reads itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from archonctl.doctor.bounded import NoAnswer
from archonctl.doctor.runtimes import Runtime
from archonctl.doctor.subject import Subject
from archonctl.host.kernel_files import Reader
from archonctl.host.profile import Host

_UNIT = re.compile(r"/archon[@-](?P<name>[A-Za-z0-9._-]{1,100})\.service(?:/|$)", re.MULTILINE)

_PID = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True)
class Machine:
    """``root`` is where /proc, /sys, /dev and /etc lie: ``/``, or a folder in tests.

    ``host`` is what was detected below it, or why that gave no answer.
    """

    root: Path
    host: Host | NoAnswer
    subjects: tuple[Subject, ...] = ()
    runtimes: tuple[Runtime, ...] = ()
    engines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Processes of each endpoint's own unit, by the endpoint's name."""
    environ: Mapping[str, str] = field(default_factory=dict)
    uid: int = 0
    groups: frozenset[int] = frozenset()
    systemd_version: int | None = None
    verify_files: bool = False

    @property
    def read(self) -> Reader:
        """A reader of its small files."""
        return Reader(self.root)

    @property
    def is_live(self) -> bool:
        """True for this very machine: system calls tell of it."""
        return self.root == Path("/")

    @property
    def name(self) -> str:
        """Its host name; empty where unknown."""
        return hostname(self.root)

    @property
    def here(self) -> tuple[Subject, ...]:
        """The endpoints that this machine has to run."""
        return tuple(subject for subject in self.subjects if subject.here)

    @property
    def known(self) -> Host:
        """The host, with everything unknown where detection gave no answer."""
        return Host(source="sysfs") if isinstance(self.host, NoAnswer) else self.host

    def most(self, key: str) -> tuple[int, str]:
        """The largest figure of that name that an endpoint here asks for, and who asks; 0 where nobody does."""
        asked = [(subject.number(key), subject.name) for subject in self.here]
        return max(asked, key=lambda pair: pair[0], default=(0, ""))

    def owner(self, pid: int | None) -> str:
        """The endpoint that a process belongs to; empty for none."""
        return next((name for name, pids in self.engines.items() if pid in pids), "")

    def link(self, path: str) -> str:
        """Where a link points; empty where there is none."""
        try:
            return os.readlink(self.at(path))  # noqa: PTH115
        except OSError:
            return ""

    def at(self, path: str | Path) -> Path:
        """The place of an absolute path below the root."""
        return self.root / os.fspath(path).lstrip("/")

    def stat(self, path: str | Path) -> os.stat_result | None:
        """None where it cannot be looked at."""
        try:
            return os.stat(self.at(path))  # noqa: PTH116
        except (OSError, ValueError):
            return None


def hostname(root: Path) -> str:
    """The name of the machine below a root."""
    return Reader(root).text("/proc/sys/kernel/hostname") or Reader(root).text("/etc/hostname") or ""


def engine_pids(root: Path) -> dict[str, frozenset[int]]:
    """Processes in the control groups of archonctl's own units: ``archon@NAME.service``, ``archon-NAME.service``."""
    read = Reader(root)
    found: dict[str, set[int]] = {}
    for name in read.names("/proc"):
        if _PID.fullmatch(name) and (unit := _UNIT.search(read.text(f"/proc/{name}/cgroup") or "")):
            found.setdefault(unit["name"], set()).add(int(name))
    return {name: frozenset(pids) for name, pids in found.items()}
