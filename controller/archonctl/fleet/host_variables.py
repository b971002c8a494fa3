"""What an inventory says of a host, from Ansible's variables to checked values.

Variables may hold secrets: only those of this project are taken over, and none is ever shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archonctl.deployment.paths import exists
from archonctl.deployment.problems import closest, describe, printable
from archonctl.errors import DeclarationError

ENDPOINTS = "archon_endpoints"
PROFILE = "archon_host_profile"
_INDEX_LIMIT = 1024
_KEYS = ("declaration", "cards", "share_cards", "env")


@dataclass(frozen=True, slots=True)
class Assigned:
    """An endpoint on a host. ``cards`` are indices of its profile; None: not said, so those that the engine takes.

    ``share_cards``: it may lie on a card with another one that says the same. ``env`` are variables of the engine on
    this host, over those of its declaration: what shows it its cards.
    """

    declaration: Path
    cards: tuple[int, ...] | None = None
    share_cards: bool = False
    env: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The endpoint's name: the stem of its declaration."""
        return self.declaration.stem


@dataclass(frozen=True, slots=True)
class FleetHost:
    """One host. ``problem`` is what is wrong with its variables: the other hosts are judged all the same."""

    name: str
    groups: tuple[str, ...] = ()
    address: str = ""
    """``ansible_host``, else the name."""
    profile: Path | None = None
    """``archon_host_profile``; None: what was gathered is used."""
    endpoints: tuple[Assigned, ...] = ()
    problem: DeclarationError | None = None
    archon_vars: Mapping[str, object] = field(default_factory=dict)
    """Every variable that begins with ``archon_``, as it is."""


def read_host(name: str, groups: Iterable[str], variables: Mapping[str, Any], folders: Sequence[Path]) -> FleetHost:
    """One host from its variables; what is wrong with them is its ``problem``."""
    mine = {key: value for key, value in variables.items() if key.startswith("archon_")}
    address = variables.get("ansible_host")
    address = address if isinstance(address, str) and address else name
    try:
        for key in (PROFILE, ENDPOINTS):
            _refuse_vaulted(name, key, mine.get(key))
        profile = _profile(name, mine.get(PROFILE), folders)
        endpoints = _endpoints(name, mine.get(ENDPOINTS), folders)
    except DeclarationError as err:
        return FleetHost(name, tuple(groups), address, problem=err, archon_vars=mine)
    return FleetHost(name, tuple(groups), address, profile, endpoints, archon_vars=mine)


def _profile(name: str, value: object, folders: Sequence[Path]) -> Path | None:
    return None if value is None else _path(name, PROFILE, value, folders)


def _endpoints(name: str, value: object, folders: Sequence[Path]) -> tuple[Assigned, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        value = _list_of(value)
    if not isinstance(value, list):
        raise _bad(name, ENDPOINTS, describe(value), "a list of declaration files")
    found = [_assigned(name, f"{ENDPOINTS}[{number}]", one, folders) for number, one in enumerate(value)]
    names = [one.name for one in found]
    if twice := next((one for one in names if names.count(one) > 1), ""):
        raise _bad(name, ENDPOINTS, f"{printable(twice)!r} twice", "each endpoint once a host")
    return tuple(found)


def _list_of(text: str) -> object:
    """One file, or a list in the one value that an INI inventory has for it (quoted, it reaches us as text)."""
    try:
        return json.loads(text) if text.lstrip().startswith("[") else [text]
    except ValueError:
        return [text]


def _assigned(host: str, key: str, value: object, folders: Sequence[Path]) -> Assigned:
    if not isinstance(value, dict):
        return Assigned(_path(host, key, value, folders))
    if wrong := next((str(one) for one in value if one not in _KEYS), ""):
        close = closest(wrong, _KEYS)
        hint = f"did you mean {close}?" if close else ""
        raise _bad(host, key, f"a table with {printable(wrong)!r}", f"the keys {', '.join(_KEYS)}", hint)
    cards = value.get("cards")
    if cards is not None and not _are_cards(cards):
        raise _bad(host, f"{key}.cards", describe(cards), "card indices of the host profile, each once")
    if not isinstance(share := value.get("share_cards", False), bool):
        raise _bad(host, f"{key}.share_cards", describe(share), "true or false")
    path = _path(host, f"{key}.declaration", value.get("declaration"), folders)
    env = value.get("env", {})
    if not isinstance(env, dict) or not all(_is_variable(key, text) for key, text in env.items()):
        raise _bad(host, f"{key}.env", describe(env), "a table of variables with text or numbers")
    given = tuple(sorted((name, str(text)) for name, text in env.items()))
    return Assigned(path, None if cards is None else tuple(cards), share, given)


def _is_variable(name: object, value: object) -> bool:
    is_name = isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name, re.ASCII)
    return bool(is_name) and isinstance(value, str | int) and not isinstance(value, bool)


def _are_cards(value: object) -> bool:
    if not isinstance(value, list) or len(set(map(repr, value))) != len(value):
        return False
    return all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < _INDEX_LIMIT for one in value)


def _path(host: str, key: str, value: object, folders: Sequence[Path]) -> Path:
    """A path of a host variable: from the inventory's folders, else from here."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise _bad(host, key, describe(value), "the path of a file")
    if "{{" in value:
        hint = "ansible-inventory does not fill templates in: write the path"
        raise _bad(host, key, f"the template {printable(value)!r}", "the path of a file", hint)
    path = Path(value).expanduser() if value.startswith("~") else Path(value)
    candidates = [*(folder / path for folder in folders), path.absolute()]
    return next((one for one in candidates if exists(one)), candidates[0])


_VAULTED = "__ansible_vault"
"""How ansible-inventory shows a value that ansible-vault has encrypted by itself."""


def _is_vaulted(value: object) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, dict) and _VAULTED in value) or any(map(_is_vaulted, parts))


def _refuse_vaulted(host: str, key: str, value: object) -> None:
    if _is_vaulted(value):
        hint = "keys belong into archon_secrets, whose content may be encrypted"
        raise _bad(host, key, "encrypted by ansible-vault, or has a value that is", "what archonctl may read", hint)


def _bad(host: str, key: str, got: str, wanted: str, hint: str = "") -> DeclarationError:
    where = f"host {printable(host)}, variable {key}"
    return DeclarationError("fleet-variable-invalid", f"{key} is {got}, expected {wanted}", where=where, hint=hint)
