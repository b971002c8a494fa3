"""What the fleet's judgements rest on, each thing read once: profiles, declarations, models, plans.

Hosts that are equal but for their name are one ``Hardware``, so that a thousand of them cost one plan an endpoint.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.deployment.schema import Endpoint
from archonctl.deployment.toml_file import SIZE_LIMIT_BYTES
from archonctl.errors import ArchonError, DeclarationError
from archonctl.fleet.host_variables import FleetHost
from archonctl.host.load import read_profile
from archonctl.host.profile import Card, Host
from archonctl.host.visible import VARIABLES
from archonctl.model.geometry import ModelFacts
from archonctl.plan.judge import judged_plan
from archonctl.plan.load import load_model
from archonctl.plan.values import Plan

_OF_ONE_HOST: dict[str, Any] = {"name": True, "notes": True, "cards": {"__all__": {"pci": True}}}

_NAME = re.compile(rb'^name = "[A-Za-z0-9._-]*"$', re.MULTILINE)
_PCI = re.compile(rb'^pci = "[0-9A-Fa-f:.]*"$', re.MULTILINE)

_COMMENT = re.compile(rb"^[ \t]*#.*$", re.MULTILINE)

Cards = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hardware:
    """What equal hosts have, without names and without what is free now: their engines hold the rest."""

    key: str
    host: Host
    profile: Path
    """The profile of the first that was read."""

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hardware) and self.key == other.key


@dataclass(frozen=True, slots=True)
class Known:
    """A host of the inventory with what it has; ``problem`` is why that is not known."""

    host: FleetHost
    hardware: Hardware | None
    problem: ArchonError | None = None

    @property
    def name(self) -> str:
        """Its name in the inventory."""
        return self.host.name


@dataclass(frozen=True, slots=True)
class Read:
    """A declaration with the facts of its model, or why that could not be read. ``key`` is equal where a plan is.

    ``text`` is a digest of the file without what its comment lines say, for what is told of its lines.
    """

    key: str
    text: bytes
    loaded: LoadedEndpoint
    model: ModelFacts | None
    problem: ArchonError | None = None


class Knowledge:
    """Everything by its place or its content, read when it is first asked for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # A variable that overrides a declaration is about one endpoint, not about every one of a fleet.
        self._environ = {name: text for name, text in environ.items() if not name.startswith("ARCHON__")}
        self._profiles: dict[Path, Hardware | ArchonError] = {}
        self._texts: dict[bytes, Hardware] = {}
        self._hardware: dict[str, Hardware] = {}
        self._read: dict[Path, Read | ArchonError] = {}
        self._models: dict[str, ModelFacts | ArchonError | None] = {}
        self._plans: dict[tuple[object, ...], Plan | ArchonError] = {}

    def known(self, host: FleetHost, profile: Path | None) -> Known:
        """A host with its hardware; never raises for what is wrong with one host."""
        if host.problem is not None:
            return Known(host, None, host.problem)
        if profile is None:
            hint = "gather it: archonctl fleet status, or name archon_host_profile in the inventory"
            missing = DeclarationError(
                "fleet-host-unread", "nothing is known of its cards and RAM", where=f"host {host.name}", hint=hint
            )
            return Known(host, None, missing)
        found = self._profile(profile)
        return Known(host, None, found) if isinstance(found, ArchonError) else Known(host, found)

    def _profile(self, path: Path) -> Hardware | ArchonError:
        if path not in self._profiles:
            text = _of_many(_bytes(path))
            if text not in self._texts:
                try:
                    self._texts[text] = self._alike(read_profile(path).without_free(), path)
                except ArchonError as err:
                    self._profiles[path] = err
                    return err
            self._profiles[path] = self._texts[text]
        return self._profiles[path]

    def _alike(self, host: Host, path: Path) -> Hardware:
        key = host.model_dump_json(exclude=_OF_ONE_HOST)
        return self._hardware.setdefault(key, Hardware(key, host, path))

    def read(self, path: Path) -> Read:
        """A declaration. Raises ArchonError where it cannot be read; a model that cannot be is a ``problem``."""
        if path not in self._read:
            try:
                self._read[path] = self._loaded(path)
            except ArchonError as err:
                self._read[path] = err
        found = self._read[path]
        if isinstance(found, ArchonError):
            raise found
        return found

    def _loaded(self, path: Path) -> Read:
        text = hashlib.sha256(_COMMENT.sub(b"#", _bytes(path))).digest()
        loaded = load_endpoint(path, {}, self._environ)
        key = loaded.name + loaded.endpoint.model_dump_json(exclude={"host", "predict"})
        ref = loaded.endpoint.model_dump_json(include={"model", "engine"})
        if ref not in self._models:
            try:
                self._models[ref] = load_model(loaded.endpoint, network=False)
            except ArchonError as err:
                self._models[ref] = err
        model = self._models[ref]
        if isinstance(model, ArchonError):
            return Read(key, text, loaded, None, model)
        return Read(key, text, loaded, model)

    def plan(
        self, read: Read, hardware: Hardware, cards: Cards | None, outside: Mapping[int, int] | None = None
    ) -> Plan:
        """The plan's own judgement of one endpoint on these cards of a host (None: all that it sees).

        ``outside`` are MiB that others take of a card, by its index. Raises ArchonError, the same each time.
        """
        beside = tuple(sorted((outside or {}).items()))
        key = (read.key, hardware.key, cards, beside)
        if key not in self._plans:
            try:
                self._plans[key] = self._planned(read, hardware.host, cards, dict(beside))
            except ArchonError as err:
                self._plans[key] = err
        found = self._plans[key]
        if isinstance(found, ArchonError):
            raise found
        return found

    def _planned(self, read: Read, host: Host, cards: Cards | None, outside: Mapping[int, int]) -> Plan:
        if read.problem is not None:
            raise read.problem
        endpoint = read.loaded.endpoint
        if cards is not None:
            endpoint, host = shown(endpoint), with_cards(host, cards)
        if outside:
            host = host.model_copy(update={"cards": tuple(_beside(card, outside) for card in host.cards)})
        with read.loaded.placing():
            return judged_plan(read.loaded.name, endpoint, host, read.model)


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(SIZE_LIMIT_BYTES)
    except OSError:
        return b""  # the loader says why


def _of_many(text: bytes) -> bytes:
    """A profile without the lines in which equal hosts differ: to parse a thousand of them takes a second."""
    head, table, rest = text.partition(b"\n[")
    return _NAME.sub(b"", head) + table + _PCI.sub(b"", rest)


def shown(endpoint: Endpoint) -> Endpoint:
    """The declaration without variables that hide cards: which it is given is decided here."""
    env = {name: text for name, text in endpoint.engine.env.items() if name not in VARIABLES}
    return endpoint.model_copy(update={"engine": endpoint.engine.model_copy(update={"env": env})})


def with_cards(host: Host, cards: Cards) -> Host:
    """The machine with these cards alone."""
    return host.model_copy(update={"cards": tuple(card for card in host.cards if card.index in cards)})


def _beside(card: Card, outside: Mapping[int, int]) -> Card:
    taken = outside.get(card.index, 0)
    return card.model_copy(update={"outside_mib": card.outside_mib + taken}) if taken else card
