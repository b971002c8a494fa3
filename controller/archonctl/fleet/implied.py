"""The fleet that an inventory implies: as many replicas as lie somewhere, free to lie anywhere else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from archonctl.deployment.toml_file import TomlFile
from archonctl.fleet.declared import WHAT, DeclaredFleet, FleetEndpoint, FleetFile
from archonctl.fleet.inventory import Inventory


def implied_fleet(inventory: Inventory) -> DeclaredFleet:
    """For ``--without`` where no fleet file is named. Of several declarations of one name the first counts."""
    counts = Counter(one.name for host in inventory.hosts for one in host.endpoints)
    declarations: dict[str, Path] = {}
    shared: set[str] = set()
    for host in inventory.hosts:
        for one in host.endpoints:
            declarations.setdefault(one.name, one.declaration)
            shared |= {one.name} if one.share_cards else set()
    endpoints = {name: FleetEndpoint(replicas=count, share_cards=name in shared) for name, count in counts.items()}
    source = TomlFile(Path(inventory.sources[0]), inventory.sources[0], WHAT, "", {})
    return DeclaredFleet(source.path, FleetFile.model_construct(endpoints=endpoints), declarations, source)
