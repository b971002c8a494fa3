"""What was gathered of a host, kept as a host profile with its time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from archonctl.errors import HostRefusal
from archonctl.fleet.facts import facts_file
from archonctl.host.profile import Host
from archonctl.host.save import profile_text
from archonctl.service.state import atomic_write


def keep_facts(folder: Path, host: str, facts: Mapping[str, Any], at: float) -> str:
    """Write the profile of a host (``archonctl.host/1`` has the form of ``facts``); what went wrong, in words, or "".

    A run over many hosts does not end because of one file.
    """
    try:
        profile = Host.model_validate(dict(facts))
    except ValidationError as err:
        return f"{host}: what it tells of its cards and RAM cannot be read: {err.errors()[0]['msg']}"
    gathered = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    text = f"# Gathered from {host.encode('ascii', 'replace').decode()!r} at {gathered}.\n{profile_text(profile)}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        atomic_write(facts_file(folder, host), text.encode(), 0o644)
    except (OSError, HostRefusal) as err:
        return f"{host}: its facts were not kept: {err}"
    return ""
