"""The account that a unit runs its engine as: whether it may execute the engine and read the model, and what it sees.

Root may read anything, so that what root can open says nothing of a unit. These checks are made as the account itself.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.schema import Endpoint
from archonctl.errors import HostRefusal, ModelError
from archonctl.service.place import Place
from archonctl.service.preflight import is_many, model_parts
from archonctl.service.separated import Account, Message, Send, apart

TEMPLATE_USER = "archon"
"""Whom ``archon@.service`` runs an engine as where the declaration names nobody."""

CACHE = Path("/var/cache/archon")
"""``CacheDirectory=`` and ``HOME`` of an installed unit are below it."""

HELD_BY_ROOT = "root's own account runs this engine: name another in service.user"


@dataclass(frozen=True, slots=True)
class EngineAccount:
    """By name and numbers; ``home`` is what the unit sets ``HOME`` to."""

    name: str
    ids: Account
    home: Path

    @property
    def is_root(self) -> bool:
        """True if nothing is to be gained from looking as it."""
        return self.ids.uid == 0

    @property
    def options(self) -> Mapping[str, object]:
        """For ``subprocess.run``: as this account, with its home."""
        ids = {"user": self.ids.uid, "group": self.ids.gid, "extra_groups": self.ids.groups, "cwd": "/"}
        env = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": str(self.home)}
        runtime = Path(f"/run/user/{self.ids.uid}")
        return {**ids, "env": env | ({"XDG_RUNTIME_DIR": str(runtime)} if runtime.is_dir() else {})}


def engine_account(endpoint: Endpoint, name: str, where: Place) -> EngineAccount | None:
    """Whom the installed unit of this endpoint runs as; None for a user's own manager, which runs all as that user.

    Raises HostRefusal ``user-missing``; ``user-not-yours`` where another account is declared in a user's own manager.
    """
    user = endpoint.service.user
    if where.user:
        mine = pwd.getpwuid(os.getuid()).pw_name
        if user not in ("", mine, str(os.getuid())):
            why = f"service.user is {user}, and {mine}'s own service manager runs everything as {mine}"
            hint = "--set service.user=, or sudo archonctl apply without --user"
            raise HostRefusal("user-not-yours", why, where="service.user", hint=hint)
        return None
    user = user or TEMPLATE_USER
    try:
        found = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        hint = "archonctl install makes it" if user == TEMPLATE_USER else f"useradd -r {user}"
        raise HostRefusal("user-missing", f"there is no user {user}", where="service.user", hint=hint) from None
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return EngineAccount(found.pw_name, Account(found.pw_uid, found.pw_gid, groups), CACHE / name)


def check_access(account: EngineAccount, program: str, model: str) -> tuple[str, ...]:
    """The account may execute the program and read the model; returns what could not be looked at.

    Raises HostRefusal ``engine-binary-unusable``, ModelError ``model-unreadable``, each with the account's name and the
    folder or file that is in its way.
    """
    if account.is_root:
        return (HELD_BY_ROOT,)
    if os.geteuid() not in (0, account.ids.uid):
        return (f"whether {account.name} may execute the engine and read the model is looked at as root only",)

    path = Path(model)
    files = [path] if path.is_dir() else model_parts(path) if is_many(path) else [path] if path.exists() else []

    def look(_send: Send) -> Message:
        ways = (obstacle(file, os.R_OK) for file in files)
        return {"program": obstacle(Path(program), os.X_OK), "model": next(filter(None, ways), "")}

    found = apart(account.ids if os.geteuid() == 0 else None, look, lambda _message: None)
    if way := found["program"]:
        why = f"the unit runs as {account.name}, which may not execute it: {way}"
        raise HostRefusal("engine-binary-unusable", why, where=program, hint="chmod o+rx, or the account's group")
    if way := found["model"]:
        why = f"the unit runs as {account.name}, which may not read it: {way}"
        raise ModelError("model-unreadable", why, where=model, hint="chmod o+r, or the account's group")
    return ()


def obstacle(path: Path, want: int) -> str:
    """What keeps this process from reading or executing ``path``, in words; empty if nothing does.

    A folder is looked into: each file below it is wanted as well.
    """
    real = Path(os.path.realpath(path))
    for folder in reversed(real.parents):
        if not os.access(folder, os.X_OK):
            return f"{folder} may not be entered"
    if not os.access(real, want):
        return f"{real} may not be {'executed' if want == os.X_OK else 'read'}" if real.exists() else f"{real} is gone"
    if real.is_dir():
        return next((way for each in sorted(real.iterdir()) if (way := obstacle(each, want))), "")
    return ""
