"""An endpoint as it is installed on the machine: its releases, its drop-in, its unit; and one release as it lies there.

    /var/lib/archon/NAME/releases/DIGEST/     rendered releases (root's; see ``archonctl.release.store``)
    /var/lib/archon/NAME/releases/current     the one that archon@NAME.service starts
    /var/lib/archon/NAME/history.jsonl        what became of each
    /var/lib/archon/NAME/apply.json           only while a change is half done
    /etc/systemd/system/archon@NAME.service.d/10-release.conf

Everything here may be read without privileges.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

from archonctl.errors import HostRefusal, UsageError
from archonctl.release.disk import refusing, sync_folder
from archonctl.release.env_file import parse_env
from archonctl.release.load import StoredRelease, load_release
from archonctl.release.render import ARGV_FILE, DROP_IN_FILE, ENV_FILE
from archonctl.release.store import CURRENT, DIGEST_CHARS, current_name, switch_current
from archonctl.service.history import History, read_history
from archonctl.service.place import SYSTEM, Place
from archonctl.service.state import EndpointState, atomic_write
from archonctl.service.transaction import Transaction, load

DROP_IN = "10-release.conf"
SPARE_LINK = ".back"
_DIGEST = re.compile(rf"[0-9a-f]{{{DIGEST_CHARS}}}")
_FILE_LIMIT_BYTES = 4 << 20


class Installed:
    """The places of one endpoint below ``root`` (``/``, or a folder in tests); ``where`` says whose it is."""

    def __init__(self, name: str, root: Path = Path("/"), where: Place = SYSTEM) -> None:
        """Raises UsageError ``endpoint-name`` for a name that is no plain file name."""
        self.name = name
        self.root = root
        self.where = where
        self.state = EndpointState(below(root, where.state), name)
        self.unit = f"archon@{name}.service"
        self.folder = self.state.folder
        self.releases = self.state.releases
        self.home = where.state / name / "releases" / CURRENT
        self.history_file = self.folder / "history.jsonl"
        self.proc = root / "proc"
        self._spare_drop_in = below(root, where.units) / f"{self.unit}.d" / f".{DROP_IN}.back"
        self.drop_in_file = below(root, where.units) / f"{self.unit}.d" / DROP_IN

    @property
    def exists(self) -> bool:
        """True if there is anything of it: a release, a history or a half-done change; or it may not be looked into."""
        try:
            return any(p.exists() for p in (self.releases, self.history_file, self.folder / "apply.json"))
        except PermissionError:
            return True

    def current(self) -> str:
        """The digest of the current release; empty where there is none."""
        return current_name(self.releases)

    def pending(self) -> Transaction | None:
        """The half-done change. Raises HostRefusal ``state-unreadable``."""
        return load(self.folder)

    def history(self) -> History:
        """What happened. Raises HostRefusal ``state-unreadable``."""
        return read_history(self.history_file)

    def known_cmdline(self, digest: str) -> tuple[str, ...]:
        """What a release ran as when it was last found to hold, where that is not its own argv (a wrapper)."""
        last = next((r for r in reversed(self.history().records) if r.held and r.release == digest), None)
        text = str(last.facts.get("cmdline", "")) if last else ""
        return tuple(text.split("\0")) if text else ()

    def placed(self) -> str | None:
        """The drop-in that systemd reads; None where there is none."""
        try:
            return _text(self.drop_in_file)
        except OSError as err:
            raise HostRefusal("state-unreadable", err.strerror or str(err), where=str(self.drop_in_file)) from None

    def place(self, text: str | None) -> bool:
        """Write the drop-in, whole, or take it away; True if that changed anything. Raises HostRefusal."""
        if self.placed() == text:
            return False
        folder = self.drop_in_file.parent
        try:
            if text is None:
                self.drop_in_file.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # a person's own drop-ins stay
                    folder.rmdir()
            elif _text(self._spare_drop_in) == text:
                self._spare_drop_in.replace(self.drop_in_file)
                sync_folder(folder)
            else:
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)
                atomic_write(self.drop_in_file, text.encode("utf-8", "surrogateescape"), 0o644)
        except OSError as err:
            where = str(self.drop_in_file)
            raise HostRefusal("unit-unwritable", err.strerror or str(err), where=where, hint="run as root") from None
        return True

    def switch(self, digest: str) -> None:
        """Make a stored release the current one, in one step. Raises HostRefusal as ``release.store``."""
        spare = self.releases / SPARE_LINK
        if current_name(self.releases) != digest and spare.is_symlink() and os.fspath(spare.readlink()) == digest:
            with refusing(self.releases):
                spare.replace(self.releases / CURRENT)
                sync_folder(self.releases)
        switch_current(self.releases, digest)

    def keep_spares(self, release: StoredRelease) -> None:
        """Lay ready what goes back to a release: its drop-in and a link to it, so that a rename is all it takes.

        A disk that fills up later cannot keep the endpoint down then. Raises HostRefusal.
        """
        self.drop_spares()
        try:
            self.drop_in_file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            atomic_write(self._spare_drop_in, release.files[DROP_IN_FILE], 0o644)
            (self.releases / SPARE_LINK).symlink_to(release.folder.name)
        except OSError as err:
            where = str(self._spare_drop_in)
            raise HostRefusal("unit-unwritable", err.strerror or str(err), where=where, hint="run as root") from None

    def drop_spares(self) -> None:
        """Take them away; what cannot be removed is in nobody's way."""
        for path in (self._spare_drop_in, self.releases / SPARE_LINK):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def digests(self) -> list[str]:
        """Every stored release."""
        try:
            names = os.listdir(self.releases)  # noqa: PTH208
        except OSError:
            return []
        return sorted(name for name in names if _DIGEST.fullmatch(name))

    def stored(self, digest: str) -> StoredRelease:
        """One release, each file compared with the manifest, and the manifest with the folder's name.

        Raises HostRefusal ``release-missing`` or ``release-damaged``.
        """
        found = load_release(self.releases / digest)
        if not found.digest.startswith(digest):
            why = f"its manifest has the digest {found.digest[:DIGEST_CHARS]}, its folder is {digest}"
            raise HostRefusal("release-damaged", why, where=str(found.folder))
        return found

    def resolve(self, word: str) -> str:
        """The stored release that a digest, or its beginning of 4 characters or more, means.

        Raises UsageError ``release-unknown``.
        """
        found = [d for d in self.digests() if len(word) >= 4 and d.startswith(word.lower()[:DIGEST_CHARS])]
        if len(found) == 1:
            return found[0]
        known = ", ".join(self.digests()) or "none"
        why = f"{word!a} means {len(found)} of the stored releases"
        raise UsageError("release-unknown", why, where=self.name, hint=f"stored: {known}")


def below(root: Path, path: Path) -> Path:
    """An absolute path below another root."""
    return root / path.relative_to("/")


def installed_names(root: Path = Path("/"), where: Place = SYSTEM) -> list[str]:
    """Endpoints that have a release, a history or a half-done change. Raises HostRefusal ``state-unreadable``."""
    folder = below(root, where.state)
    try:
        names = os.listdir(folder)  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as err:
        raise HostRefusal("state-unreadable", err.strerror or str(err), where=str(folder)) from None
    found = []
    for name in sorted(names):
        with contextlib.suppress(UsageError):
            if Installed(name, root, where).exists:
                found.append(name)
    return found


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes()[:_FILE_LIMIT_BYTES].decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None


def argv_of(release: StoredRelease) -> tuple[str, ...]:
    """The command line of a stored release."""
    return tuple(map(str, json.loads(release.files[ARGV_FILE])))


def env_of(release: StoredRelease) -> dict[str, str]:
    """The engine's variables of a stored release."""
    return parse_env(release.files[ENV_FILE].decode("utf-8"), str(release.folder / ENV_FILE))


def drop_in_of(release: StoredRelease) -> str:
    """The drop-in of a stored release."""
    return release.files[DROP_IN_FILE].decode("utf-8")
