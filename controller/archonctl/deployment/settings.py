"""The environment as a source of settings: ``ARCHON__CONTRACT__SEQS=4``.

Imported only where such a variable is set, since pydantic-settings costs more than the rest of a plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import create_model
from pydantic_settings import BaseSettings, EnvSettingsSource

from archonctl.deployment.keys import Loc, dotted, expected, from_text, key_type, table_keys
from archonctl.deployment.problems import KeyProblem, bad_value, closest, describe, printable
from archonctl.deployment.schema import Endpoint
from archonctl.errors import DeclarationError

PREFIX = "ARCHON__"
DELIMITER = "__"

# the endpoint's own fields as a settings class: the source reads names and types from it
_fields: dict[str, Any] = {name: (field.annotation, field) for name, field in Endpoint.model_fields.items()}
_EndpointSettings: type[BaseSettings] = create_model("_EndpointSettings", __base__=BaseSettings, **_fields)


class _Environment(EnvSettingsSource):
    """pydantic-settings' own source, reading the mapping it is given."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        super().__init__(_EndpointSettings, case_sensitive=False, env_prefix=PREFIX, env_nested_delimiter=DELIMITER)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {name.lower(): text for name, text in self._variables.items()}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable that names a key, and the value that it gives to it."""

    name: str
    loc: Loc
    value: object


def read_environment(variables: Mapping[str, str]) -> tuple[list[Variable], list[DeclarationError]]:
    """What the ``ARCHON__*`` variables say, whole tables first, and the problems.

    A variable that names no key is a problem (``environment-unknown-key``): a stale one would change nothing
    and say nothing.
    """
    problems: list[DeclarationError] = []
    names: dict[Loc, str] = {}
    for name, text in variables.items():
        loc = _loc(name)
        if problem := _check(name, loc, text, names, variables):
            problems.append(problem)
        else:
            names[loc] = name
    tables = _Environment({name: variables[name] for loc, name in names.items() if _spot(loc) != "value"})()
    found = [
        Variable(name, loc, _value(loc, variables[name], tables))
        for loc, name in sorted(names.items(), key=lambda item: len(item[0]))
    ]
    return found, problems


def _spot(loc: Loc) -> str:
    found = key_type(Endpoint, loc)
    return found.spot if found else ""


def _value(loc: Loc, text: str, tables: Mapping[str, Any]) -> object:
    """The value at ``loc``: a table as the settings source decoded it, a single value by its type."""
    found = key_type(Endpoint, loc)
    if found is not None and found.spot == "value":
        return from_text(found.annotation, text)
    value: Any = tables
    for part in loc:
        value = value[part]
    return value


def _loc(name: str) -> Loc:
    """The key that a variable names: tables in lower case, knobs as flags, variables of the engine as they are."""
    parts = name[len(PREFIX) :].split(DELIMITER)
    low = [part.lower() for part in parts]
    if low[:2] == ["engine", "env"] and len(parts) > 2:
        return ("engine", "env", DELIMITER.join(parts[2:]))
    if low[:2] == ["engine", "knobs"] and len(parts) > 2:
        return ("engine", "knobs", DELIMITER.join(low[2:]).replace("_", "-"))
    return tuple(low)


def _check(
    name: str, loc: Loc, text: str, sources: Mapping[Loc, str], variables: Mapping[str, str]
) -> DeclarationError | None:
    place = f"environment {printable(name, 200)}"
    found = key_type(Endpoint, loc)
    if found is None or loc[-1] == "":
        return _unknown(name, place)
    if loc in sources and variables[sources[loc]] != text:
        message = f"{dotted(loc)} is set twice, by {sources[loc]} and by {name}"
        return KeyProblem("declaration-contradiction", dotted(loc), message, where=place, hint="unset one of them")
    if found.spot != "value" and not isinstance(_json(text), list if found.spot == "list" else dict):
        return bad_value(dotted(loc), describe(text), f"{expected(Endpoint, loc)} as JSON", place)
    return None


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unknown(name: str, place: str) -> DeclarationError:
    shown = printable(name, 200)
    close = closest(name[len(PREFIX) :].lower(), [known[len(PREFIX) :].lower() for known in known_variables()])
    hint = f"did you mean {PREFIX}{close.upper()}?" if close else "unset it"
    message = f"{shown} names no key of an endpoint declaration"
    return KeyProblem("environment-unknown-key", shown, message, wanted="a known key", where=place, hint=hint)


def known_variables() -> list[str]:
    """Every variable that names a key with a fixed name."""
    names = []
    for table in table_keys(Endpoint, ()):
        names.append(f"{PREFIX}{table.upper()}")
        names += [f"{PREFIX}{table.upper()}{DELIMITER}{key.upper()}" for key in table_keys(Endpoint, (table,))]
    return names
