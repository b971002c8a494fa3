"""The fleet file: which endpoints the fleet serves, how many of each, and where they may lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archonctl.deployment.checks import raw_problems
from archonctl.deployment.problems import KeyProblem, Place, from_validation, printable, raise_all
from archonctl.deployment.toml_file import TomlFile, read_toml
from archonctl.errors import DeclarationError

WHAT = "fleet file"

Names = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=255)], ...], Field(strict=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class FleetEndpoint(_Frozen):
    """One endpoint. Replicas always lie on different hosts: on one host a name is one unit.

    ``hosts``, ``not_hosts`` and ``pins`` are names of hosts, of groups, or wildcards.
    """

    declaration: str = ""
    """Its file; default: NAME.toml in env/ beside the fleet file, else beside it."""
    replicas: Annotated[int, Field(ge=0, le=100_000)] = 1
    hosts: Names = ()
    """Only there; empty: anywhere."""
    not_hosts: Names = ()
    pins: Names = ()
    """A replica on each of these."""
    cards: Annotated[int, Field(ge=0, le=64)] | None = None
    """Exactly so many on its host; default: the fewest with which the contract holds."""
    share_cards: bool = False
    """May lie on a card with another endpoint that says the same, where the memory of both fits."""
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Hosts that one replica spans, all of one kind and all of each."""


class FleetFile(_Frozen):
    """The whole file. ``spare`` hosts may be lost without a contract that cannot be placed again."""

    spare: Annotated[int, Field(ge=0, le=1)] = 0
    apart: Annotated[tuple[Names, ...], Field(strict=False)] = ()
    """Sets of endpoints of which no two may lie on one host."""
    endpoints: Annotated[dict[str, FleetEndpoint], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class DeclaredFleet:
    """The file as checked; ``declarations`` is where each endpoint's own file lies."""

    path: Path
    file: FleetFile
    declarations: dict[str, Path]
    source: TomlFile

    def where(self, *loc: str) -> str:
        """``fleet.toml:12`` of a key."""
        return self.source.place(loc)


def read_fleet(path: Path) -> DeclaredFleet:
    """Raises DeclarationError with the codes of a declaration, each with file and line; every problem at once."""
    source = read_toml(path, WHAT)
    problems = raw_problems(source.data, source.place)
    try:
        file = FleetFile.model_validate(source.data)
    except ValidationError as err:
        raise_all(problems + from_validation(err, FleetFile, source.place))
        raise
    declarations = {name: _declaration(path, name, one) for name, one in file.endpoints.items()}
    raise_all([*problems, *_contradictions(file, declarations, source.place)])
    return DeclaredFleet(path, file, declarations, source)


def _declaration(path: Path, name: str, endpoint: FleetEndpoint) -> Path:
    folder = path.absolute().parent
    if not endpoint.declaration:
        below = folder / "env" / f"{name}.toml"
        return below if below.exists() else folder / f"{name}.toml"
    given = Path(endpoint.declaration).expanduser()
    return folder / given if (folder / given).exists() else given.absolute()


def _contradictions(file: FleetFile, declarations: dict[str, Path], place: Place) -> Iterator[DeclarationError]:
    for name, one in file.endpoints.items():
        if declarations[name].stem != name:
            message = (
                f"{printable(name)} is declared by {printable(declarations[name].name)}: units take the file's name"
            )
            where = place(("endpoints", name))
            yield _problem(f"endpoints.{name}", message, where, f"name the table [endpoints.{declarations[name].stem}]")
        if one.nodes > 1 and (one.share_cards or one.cards is not None):
            message = f"{printable(name)} spans {one.nodes} hosts, all of each: cards and share_cards are for one host"
            yield _problem(f"endpoints.{name}.nodes", message, place(("endpoints", name, "nodes")), "leave them out")
        if one.replicas * one.nodes < len(one.pins):
            message = f"{printable(name)} has {one.replicas} replicas and {len(one.pins)} pins"
            yield _problem(
                f"endpoints.{name}.pins", message, place(("endpoints", name, "pins")), "a replica for each pin"
            )
    for number, names in enumerate(file.apart):
        for name in names:
            if name not in file.endpoints:
                message = f"apart[{number}] names {printable(name)!r}, which is no endpoint of this file"
                known = ", ".join(sorted(file.endpoints)[:8])
                yield _problem(f"apart[{number}]", message, place(("apart", number)), f"declared: {known}")


def _problem(key: str, message: str, where: str, hint: str) -> KeyProblem:
    return KeyProblem("declaration-contradiction", key, message, where=where, hint=hint)
