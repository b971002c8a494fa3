"""The hosts of an Ansible inventory, as its own reader gives them.

``ansible-inventory --list`` is asked: it knows INI, YAML, folders with host_vars and group_vars, ranges, children and
inventory plugins, and nothing here reads them a second way.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archonctl.deployment.problems import closest, printable
from archonctl.errors import DeclarationError, UsageError
from archonctl.fleet.host_variables import ENDPOINTS, FleetHost, read_host

DEADLINE_S = 300


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts in the order of their names (``gpu2`` before ``gpu10``); ``sources`` as they were given."""

    sources: tuple[str, ...]
    hosts: tuple[FleetHost, ...]
    groups: Mapping[str, tuple[str, ...]]
    """The hosts of each group, those of its children too."""

    def refuse_idle(self) -> None:
        """Raises UsageError ``fleet-nothing-declared`` where nothing lies on any of its hosts: that is no good news.

        A host whose variables are wrong says so itself.
        """
        if any(host.endpoints or host.problem is not None for host in self.hosts):
            return
        given = {name for host in self.hosts for name in host.archon_vars}
        close = next((name for name in sorted(given) if closest(name.removeprefix("archon_"), ["endpoints"])), "")
        hint = f"{close} is no variable of ours: {ENDPOINTS}?" if close else "name their declarations in the inventory"
        why = f"none of {len(self.hosts):,} hosts has {ENDPOINTS}"
        raise UsageError("fleet-nothing-declared", why, hint=hint)

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
        if "," not in source:
            _refuse_no_file(source)
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
    if not chosen:
        why = f"--limit {printable(limit)!r} leaves none of {len(names):,} hosts"
        raise UsageError("fleet-inventory-empty", why, where=", ".join(sources))
    hosts = tuple(read_host(name, of_host[name], variables.get(name, {}), folders) for name in chosen)
    return Inventory(tuple(sources), hosts, groups)


def _refuse_no_file(source: str) -> None:
    """Nothing there, and a pipe: it is read more than once."""
    where = printable(source, 4096)
    if not os.path.lexists(source):
        raise UsageError("fleet-inventory-not-found", "there is no such inventory", where=where)
    if Path(source).is_fifo() or Path(source).is_socket():
        hint = "it is read more than once: write it to a file"
        raise UsageError("fleet-inventory-not-found", "a pipe or a socket is no inventory", where=where, hint=hint)


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
