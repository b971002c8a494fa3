"""A host as the profile file that ``read_profile`` takes."""

from __future__ import annotations

import os
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.host.profile import Host

MOMENTARY = frozenset({"available_mib", "cgroup_free_mib", "free_mib", "gtt_free_mib", "memlock_mib", "notes"})
"""True for a moment only: a plan from a file must not count on what was free as the file was written."""

HEAD = "# What archonctl saw on this machine. Everything in MiB (binary) unless the name says otherwise.\n"


def profile_text(host: Host) -> str:
    """TOML without what is unknown and what is momentary."""
    import tomli_w

    data = host.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    data = {"source": host.source, "page_bytes": host.page_bytes, **data}
    data["cards"] = [_lasting(card) for card in data.get("cards", [])]
    kept = {key: value for key, value in _lasting(data).items() if value != []}
    return HEAD + tomli_w.dumps(kept)


def _lasting(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if key not in MOMENTARY}


def save_profile(path: Path, text: str) -> None:
    """Write a new file, whole. Raises HostRefusal ``host-file-exists`` or ``host-file-not-written``."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            temporary.write_text(text, encoding="utf-8")
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        hint = "give another name, or remove it first"
        raise HostRefusal("host-file-exists", "is there already", where=str(path), hint=hint) from None
    except OSError as err:
        raise HostRefusal("host-file-not-written", err.strerror or str(err), where=str(path)) from None
