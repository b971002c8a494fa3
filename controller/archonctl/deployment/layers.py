"""Three sources of one declaration, merged key by key: flags > environment > file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archonctl.deployment.keys import Loc, dotted, from_text, key_type
from archonctl.deployment.problems import KeyProblem, Place, describe, printable
from archonctl.deployment.schema import Endpoint
from archonctl.deployment.toml_file import TomlFile
from archonctl.errors import DeclarationError

ENV_PREFIX = "ARCHON__"

FLAGS = {
    "contract.seqs": "--seqs",
    "contract.len": "--len",
    "contract.kv_dtype": "--kv-dtype",
    "contract.margin": "--margin",
    "engine.version": "--engine-version",
}
"""Keys with a flag of their own; every other key is set by ``--set KEY=VALUE``."""


class Layers:
    """The values of one declaration under those of the environment and of the flags, and where each came from."""

    def __init__(self, file: TomlFile) -> None:
        self.file = file
        self.data: dict[str, Any] = {key: _tuples(value) for key, value in file.data.items()}
        self.problems = _normalise_knobs(self.data, file.place)
        self._spelt = {name.replace("_", "-"): name for name in _knobs(file.data)}
        self._overrides: dict[Loc, str] = {}

    def place(self, loc: Loc) -> str:
        """Where a value came from, or the file (with the nearest line) where it is missing."""
        return self._override(loc) or self.file.place(self._as_spelt(loc))

    def origin(self, loc: Loc) -> str:
        """As ``place``, but ``default`` for what nothing sets."""
        if override := self._override(loc):
            return override
        return self.file.place(self._as_spelt(loc)) if self._as_spelt(loc) in self.file.lines else "default"

    def _override(self, loc: Loc) -> str:
        for end in range(len(loc), 0, -1):
            if loc[:end] in self._overrides:
                return self._overrides[loc[:end]]
        return ""

    def _as_spelt(self, loc: Loc) -> Loc:
        if loc[:2] == ("engine", "knobs") and len(loc) > 2:
            return ("engine", "knobs", self._spelt.get(str(loc[2]), loc[2]), *loc[3:])
        return loc

    def add_environment(self, environ: Mapping[str, str]) -> list[DeclarationError]:
        """Merge the ``ARCHON__*`` variables."""
        problems, self.problems = self.problems, []
        found = {name: text for name, text in environ.items() if name.upper().startswith(ENV_PREFIX)}
        if found:
            from archonctl.deployment.settings import read_environment  # costs more than a plan

            variables, wrong = read_environment(found)
            problems += wrong
            for variable in variables:
                by = f"environment {printable(variable.name, 200)}"
                problems += self._set(variable.loc, _tuples(variable.value), by)
        return problems

    def add_flags(self, flags: Mapping[str, object]) -> list[DeclarationError]:
        """Merge the flags."""
        problems: list[DeclarationError] = []
        for key, value in flags.items():
            if value is None:
                continue
            loc: Loc = tuple(key.split(".", 2) if key.startswith(("engine.knobs.", "engine.env.")) else key.split("."))
            found = key_type(Endpoint, loc)
            is_text = isinstance(value, str) and found is not None and found.spot == "value"
            meant = from_text(found.annotation, str(value)) if is_text and found else value
            problems += self._set(loc, meant, f"flag {FLAGS.get(key, f'--set {key}')}")
        return problems

    def _set(self, loc: Loc, value: object, by: str) -> list[DeclarationError]:
        """Put a value over what is there; a table is merged key by key."""
        if isinstance(value, dict) and value:
            return [problem for name, part in value.items() for problem in self._set((*loc, name), part, by)]
        if loc[:2] == ("engine", "knobs") and len(loc) == 3:
            loc = (*loc[:2], str(loc[2]).replace("_", "-"))
        table = self.data
        for depth, part in enumerate(loc[:-1], 1):
            inner = table.setdefault(str(part), {})
            if not isinstance(inner, dict):
                key = dotted(loc[:depth])
                message = f"{key} is {describe(inner)}, so {dotted(loc)} cannot be set in it"
                return [KeyProblem("declaration-bad-value", dotted(loc), message, where=by)]
            table = inner
        table[str(loc[-1])] = value
        self._overrides[loc] = by
        return []


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(part) for key, part in value.items()}
    return tuple(_tuples(part) for part in value) if isinstance(value, list) else value


def _knobs(data: Mapping[str, Any]) -> dict[str, Any]:
    engine = data.get("engine")
    knobs = engine.get("knobs") if isinstance(engine, dict) else None
    return knobs if isinstance(knobs, dict) else {}


def _normalise_knobs(data: dict[str, Any], place: Place) -> list[DeclarationError]:
    """Write every knob with dashes; the same knob in both spellings is a contradiction."""
    problems: list[DeclarationError] = []
    knobs = _knobs(data)
    for name in [name for name in knobs if "_" in name]:
        dashed = name.replace("_", "-")
        if dashed in knobs:
            message = f"engine.knobs.{dashed} is set twice, as {dashed} and as {name}"
            where = place(("engine", "knobs", name))
            problems.append(KeyProblem("declaration-contradiction", f"engine.knobs.{dashed}", message, where=where))
        else:
            knobs[dashed] = knobs.pop(name)
    return problems
