"""What each host has: its declared profile, or what was gathered from it once and kept.

The kept file is a host profile (``archonctl host save`` writes the same), ``FOLDER/HOST.toml``, the name of the host
percent-encoded where it has characters that a file name should not.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from archonctl.fleet.host_variables import FleetHost


def facts_folder(sources: Sequence[str], environ: Mapping[str, str], given: str = "") -> Path:
    """Where the facts of an inventory's hosts are kept: as given, else a folder of the user's cache.

    By the first source: what is given beside it (a placement, say) is about the same hosts.
    """
    if given:
        return Path(given)
    where = os.path.abspath(sources[0])  # noqa: PTH100
    return cache_folder(environ) / hashlib.sha256(where.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def cache_folder(environ: Mapping[str, str]) -> Path:
    """What this user's machine remembers of fleets."""
    return Path(environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "archonctl" / "fleet"


def facts_file(folder: Path, host: str) -> Path:
    """The kept profile of one host."""
    return folder / f"{quote(host, safe='@+,:=')}.toml"


def profile_of(host: FleetHost, folder: Path) -> Path | None:
    """The profile that counts for a host: the declared one, else the kept one; None where there is neither."""
    if host.profile is not None:
        return host.profile
    kept = facts_file(folder, host.name)
    return kept if kept.exists() else None
