"""The hosts of an Ansible inventory, as its own reader gives them.

``ansible-inventory --list`` is asked: it knows INI, YAML, folders with host_vars and group_vars, ranges, children and
inventory plugins, and nothing here reads them a second way. Variables may hold secrets: only those of this project
are taken over, and none is ever shown.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from archonctl.deployment.paths import exists
from archonctl.deployment.problems import closest, describe, printable
from archonctl.errors import DeclarationError, UsageError

ENDPOINTS = "archon_endpoints"
PROFILE = "archon_host_profile"
DEADLINE_S = 300
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


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts in the order of their names (``gpu2`` before ``gpu10``); ``sources`` as they were given."""

    sources: tuple[str, ...]
    hosts: tuple[FleetHost, ...]
    groups: Mapping[str, tuple[str, ...]]
    """The hosts of each group, those of its children too."""

    def host(self, name: str) -> FleetHost:
        """One host. Raises UsageError ``fleet-host-unknown``."""
        if found := next((host for host in self.hosts if host.name == name), None):
            return found
        close = closest(name, [host.name for host in self.hosts])
        hint = f"did you mean {close}?" if close else f"the inventory has {len(self.hosts):,} hosts"
        raise UsageError("fleet-host-unknown", f"there is no host {printable(name)!r} in the inventory", hint=hint)


def read_inventory(sources: Sequence[str], environ: Mapping[str, str], limit: str = "") -> Inventory:
    """Every host of the inventory, or those that ``limit`` names (names, groups, wildcards, ``!`` before what not).

    Raises UsageError ``fleet-ansible-missing``, ``fleet-inventory-not-found``, ``fleet-inventory-empty`` or
    ``fleet-host-unknown`` (a limit that names nothing), DeclarationError ``fleet-inventory-invalid``.
    """
    for source in sources:
        if "," not in source and not os.path.lexists(source):
            raise UsageError("fleet-inventory-not-found", "there is no such inventory", where=printable(source, 4096))
    data = _listed(sources, environ)
    groups = _groups(data)
    variables = data.get("_meta", {}).get("hostvars", {})
    names = sorted(set(groups.get("all", ())), key=natural)
    if not names:
        raise UsageError("fleet-inventory-empty", "the inventory has no host", where=", ".join(sources))
    of_host: dict[str, list[str]] = {name: [] for name in names}
    for group, members in groups.items():
        for name in members if group not in ("all", "ungrouped") else ():
            of_host[name].append(group)
    folders = base_folders(sources)
    chosen = _limited(names, groups, limit)
    hosts = tuple(_host(name, of_host[name], variables.get(name, {}), folders) for name in chosen)
    return Inventory(tuple(sources), hosts, groups)


def base_folders(sources: Sequence[str]) -> tuple[Path, ...]:
    """Where relative paths in host variables begin: the folders that hold host_vars, one a source."""
    paths = [Path(source).absolute() for source in sources]
    return tuple(dict.fromkeys(path if path.is_dir() else path.parent for path in paths))


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key that puts ``gpu2`` before ``gpu10``."""
    parts = re.findall(r"[0-9]{1,18}|[^0-9]+|[0-9]", name)
    return tuple((int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in parts)


def ansible_program(name: str, environ: Mapping[str, str]) -> str:
    """A program of ansible-core, from this environment or the PATH. Raises UsageError ``fleet-ansible-missing``."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name, path=environ.get("PATH"))
    if not found:
        raise UsageError(
            "fleet-ansible-missing",
            f"{name} is neither beside {sys.executable} nor on the PATH",
            hint="pip install 'archonctl[fleet]', or ansible-core from the distribution",
        )
    return found


def _listed(sources: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any]:
    import subprocess

    command = [ansible_program("ansible-inventory", environ), "--list"]
    for source in sources:
        command += ["--inventory", source]
    # A source that no plugin can read is a warning to Ansible, and the hosts in it are missing without a word.
    strict = {
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
    }
    where = ", ".join(printable(source, 4096) for source in sources)
    try:
        done = subprocess.run(
            command,
            env={**environ, **strict},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        reason = getattr(err, "strerror", None) or f"no answer in {DEADLINE_S} s"
        raise UsageError("fleet-ansible-missing", f"ansible-inventory does not run: {reason}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace")
        raise DeclarationError(
            "fleet-inventory-invalid", f"ansible-inventory cannot read it: {_reason(said)}", where=_place(said) or where
        )
    try:
        data = json.loads(done.stdout)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise DeclarationError("fleet-inventory-invalid", "ansible-inventory printed no JSON object", where=where)
    return data


def _reason(said: str) -> str:
    """The sentence of Ansible that tells most: what failed, not that something did."""
    lines = [re.sub(r"^\[?(ERROR|WARNING)\]?!?:? *", "", line).strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if re.search(r"pars|syntax|expected|invalid|denied|vault|not ", line, re.IGNORECASE)]
    return printable((told or lines or ["no reason given"])[0], 300)


def _place(said: str) -> str:
    found = re.search(r"Origin: (\S+?:[0-9]+)(?::[0-9]+)?", said) or re.search(r"(/\S+?:[0-9]+) -", said)
    return printable(found[1], 4096) if found else ""


def _groups(data: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Each group's hosts, with those of its children. A child that is its own ancestor Ansible refuses itself."""
    tables = {name: table for name, table in data.items() if name != "_meta" and isinstance(table, dict)}
    found: dict[str, tuple[str, ...]] = {}

    def members(name: str) -> tuple[str, ...]:
        if name not in found:
            table = tables.get(name, {})
            own: dict[str, None] = dict.fromkeys(table.get("hosts", ()))
            for child in table.get("children", ()):
                own |= dict.fromkeys(members(child))
            found[name] = tuple(own)
        return found[name]

    for name in tables:
        members(name)
    everyone: dict[str, None] = {}
    for names in found.values():
        everyone |= dict.fromkeys(names)
    return {**found, "all": tuple(everyone)}


def _limited(names: Sequence[str], groups: Mapping[str, Iterable[str]], limit: str) -> list[str]:
    words = [word for word in re.split(r"[,\s]+", limit) if word]
    wanted: set[str] = set() if any(not word.startswith("!") for word in words) else set(names)
    for word in words:
        found = matching(word.removeprefix("!"), names, groups)
        if not found:
            close = closest(word.removeprefix("!"), [*names, *groups])
            message = f"--limit {printable(word)!r} names no host and no group of the inventory"
            raise UsageError("fleet-host-unknown", message, hint=f"did you mean {close}?" if close else "")
        wanted = wanted - found if word.startswith("!") else wanted | found
    return [name for name in names if name in wanted]


def matching(word: str, names: Iterable[str], groups: Mapping[str, Iterable[str]]) -> set[str]:
    """The hosts that a name, a group or a wildcard means."""
    if word in groups:
        return set(groups[word]) & set(names)
    return {name for name in names if name == word or fnmatch.fnmatchcase(name, word)}


def _host(name: str, groups: Iterable[str], variables: Mapping[str, Any], folders: Sequence[Path]) -> FleetHost:
    mine = {key: value for key, value in variables.items() if key.startswith("archon_")}
    address = variables.get("ansible_host")
    address = address if isinstance(address, str) and address else name
    try:
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


def _bad(host: str, key: str, got: str, wanted: str, hint: str = "") -> DeclarationError:
    where = f"host {printable(host)}, variable {key}"
    return DeclarationError("fleet-variable-invalid", f"{key} is {got}, expected {wanted}", where=where, hint=hint)
