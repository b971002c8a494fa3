"""A placement as an Ansible inventory: one more source beside the one that it was made from."""

from __future__ import annotations

import os
from pathlib import Path

from archonctl.errors import HostRefusal
from archonctl.fleet.answer import FleetPlan, HostRow
from archonctl.fleet.given import showing
from archonctl.fleet.host_variables import Assigned
from archonctl.fleet.whole_file import write_whole

HEAD = """# Where every endpoint lies, by `archonctl fleet plan`. An inventory of its own: give it behind the other one,
#   archonctl fleet apply -i INVENTORY -i THIS
# or keep it in the inventory's folder. Made again, it is replaced.
"""


def placement_text(plan: FleetPlan, folder: Path) -> str:
    """YAML; declarations below ``folder`` (where the file will lie) are written relative to it.

    Hosts of which nothing is known are left out: what the inventory says of them stands.
    """
    import yaml

    known = [row for row in plan.hosts if row.known.hardware is not None]
    hosts = {row.known.name: {"archon_endpoints": [_entry(one, row, folder) for one in row.assigned]} for row in known}
    return HEAD + yaml.safe_dump({"all": {"hosts": hosts}}, sort_keys=False, width=120, default_flow_style=None)


def _entry(one: Assigned, row: HostRow, folder: Path) -> dict[str, object]:
    path = one.declaration
    shown = path.relative_to(folder) if path.is_relative_to(folder) else path
    entry: dict[str, object] = {"declaration": os.fspath(shown)}
    if one.cards is not None:
        entry["cards"] = list(one.cards)
    if one.share_cards:
        entry["share_cards"] = True
    hardware = row.known.hardware
    if env := dict(one.env) or (showing(one.cards, hardware.host) if hardware else {}):
        entry["env"] = env
    return entry


def write_placement(path: Path, text: str) -> None:
    """Write the file, whole or not at all. Raises HostRefusal ``fleet-placement-not-written``."""
    try:
        write_whole(path, text.encode("utf-8", "surrogateescape"))
    except OSError as err:
        message = err.strerror or str(err)
        raise HostRefusal("fleet-placement-not-written", message, where=str(path)) from None
