"""A fleet in files: hosts by their number of cards, declarations by their figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from archonctl.fleet.answer import FleetPlan
from archonctl.fleet.declared import read_fleet
from archonctl.fleet.host_variables import Assigned, FleetHost
from archonctl.fleet.inventory import Inventory
from archonctl.fleet.planning import Ask, plan_fleet
from support.fleet_files import declaration, profile, write_model

Lies = Mapping[str, tuple[int, ...] | None]


class Fleet:
    """``host`` and ``endpoint`` add one; ``plan`` asks."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self._model = folder, model
        self.hosts: list[FleetHost] = []
        self._port = 8100
        (folder / "env").mkdir()

    def endpoint(self, name: str, **figures: object) -> Path:
        """A declaration; a port of its own unless ``port`` says otherwise."""
        self._port += 1
        path = self.folder / "env" / f"{name}.toml"
        path.write_text(declaration(self._model, **({"port": self._port} | figures)))  # type: ignore[arg-type]
        return path

    def host(self, name: str, cards: int | None, lies: Lies | None = None, share: bool = False, **figures: int) -> None:
        """A host with so many cards (None: nothing is known of it) and what lies on which of them."""
        path = None
        if cards is not None:
            path = self.folder / f"{name}.profile.toml"
            path.write_text(profile(name, cards, **figures))
        there = tuple(
            Assigned(self.folder / "env" / f"{one}.toml", numbers, share, _shown(numbers))
            for one, numbers in (lies or {}).items()
        )
        self.hosts.append(FleetHost(name, profile=path, endpoints=there))

    @property
    def inventory(self) -> Inventory:
        names = tuple(host.name for host in self.hosts)
        return Inventory((str(self.folder / "hosts"),), tuple(self.hosts), {"all": names, "first": names[:1]})

    def plan(self, text: str = "", *without: str, limit_s: float = 60.0) -> FleetPlan:
        """The answer to a fleet file, or to what lies where."""
        fleet = None
        if text:
            (self.folder / "fleet.toml").write_text(text)
            fleet = read_fleet(self.folder / "fleet.toml")
        return plan_fleet(self.inventory, fleet, Ask(self.folder / "facts", {}, without, limit_s))


def _shown(cards: tuple[int, ...] | None) -> tuple[tuple[str, str], ...]:
    """What keeps an engine to its cards."""
    return () if cards is None else (("CUDA_VISIBLE_DEVICES", ",".join(map(str, cards))),)


@pytest.fixture(scope="session")
def fleet_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture
def fleet(tmp_path: Path, fleet_model: Path) -> Fleet:
    return Fleet(tmp_path, fleet_model)
