"""Whose endpoints: those of the machine, or of one user's own service manager. They differ in where things lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archonctl.release.render import INSTALLED
from archonctl.service.state import SYSTEM_STATE, state_dir


@dataclass(frozen=True, slots=True)
class Place:
    """Where an installed endpoint's files are: releases and history below ``state``, verdicts in ``run``."""

    state: Path
    run: Path
    user: bool
    units: Path = Path("/etc/systemd/system")
    """Where drop-ins go."""

    @classmethod
    def of(cls, environ: Mapping[str, str], uid: int | None = None) -> Place:
        """The system's for root, else the user's (``$XDG_RUNTIME_DIR/archon``); either may be moved by environment."""
        is_user = (os.geteuid() if uid is None else uid) != 0
        if is_user:
            return cls.of_user(environ)
        # root's units read the system's state even where root could not write it
        state = state_dir(environ) if environ.get("ARCHON_STATE_DIR") else SYSTEM_STATE
        return cls(state, Path(environ.get("ARCHON_RUN_DIR") or "/run/archon"), user=False)

    @classmethod
    def of_user(cls, environ: Mapping[str, str]) -> Place:
        """What ``systemctl --user`` of this user runs."""
        runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
        run = environ.get("ARCHON_RUN_DIR") or f"{runtime}/archon"
        config = environ.get("XDG_CONFIG_HOME", "")
        base = Path(config) if config.startswith("/") else Path(environ.get("HOME") or "/") / ".config"
        return cls(state_dir(environ), Path(run), True, base / "systemd/user")

    def verdict(self, name: str) -> Path:
        """The last verdict on an endpoint since this boot."""
        return self.run / f"{name}.verdict.json"

    def refusal(self, name: str) -> Path:
        """Left by a start that would only fail the same way: ``archon-start`` reads it before a restart."""
        return self.run / f"{name}.refusal"


SYSTEM = Place(INSTALLED, Path("/run/archon"), user=False)
"""Where the system's endpoints and their verdicts lie, whatever the caller's environment says."""
