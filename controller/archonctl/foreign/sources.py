"""What a person names (a file, a folder, a unit, a process) as the engine starts that are found in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from archonctl.errors import ArchonError, UsageError
from archonctl.foreign.compose_source import compose_starts
from archonctl.foreign.files import read_text
from archonctl.foreign.launch import in_container, launches
from archonctl.foreign.process import read_process
from archonctl.foreign.quadlet import read_quadlet
from archonctl.foreign.shell import read_script
from archonctl.foreign.start import Start, plain_name, with_env_files
from archonctl.foreign.unit_source import load_timeout_s, other_keys, unit_path, unit_starts
from archonctl.foreign.units import read_unit
from archonctl.foreign.words import Unread

_COMPOSE = (".yml", ".yaml")
_UNITS = (".service", ".conf")
_SCRIPTS = (".sh", ".bash")


def find_starts(named: str, root: Path = Path("/")) -> tuple[list[Start], list[Unread]]:
    """Every engine start in what was named, and what was looked at and held none.

    ``root`` is where processes and units are looked up. Raises UsageError ``import-nothing-found``,
    ``process-unreadable`` and those of ``read_text`` and ``read_compose``.
    """
    path = Path(named)
    if named.isdecimal() and not path.exists():
        starts, unread = _process(int(named), root)
    elif path.is_dir():
        starts, unread = _folder(path)
    elif path.exists() or "/" in named:
        starts, unread = _file(path, root)
    else:
        starts, unread = _file(unit_path(named, root), root)
    if not starts:
        reason = f"; {unread[0].text!a}: {unread[0].reason}" if unread else ""
        raise UsageError(
            "import-nothing-found",
            f"no engine is started there{reason}",
            where=named,
            hint="name the script, unit, Quadlet, compose file or process of a llama-server, vllm, sglang or radiance",
        )
    return [with_env_files(start) for start in starts], unread


def _process(pid: int, root: Path) -> tuple[list[Start], list[Unread]]:
    command, user, unread = read_process(pid, root)
    found, more = launches(command)
    return [Start(each, f"pid-{pid}", "", Path("/"), user) for each in found], [*unread, *more]


def _folder(folder: Path) -> tuple[list[Start], list[Unread]]:
    if (folder / "argv.json").is_file() and (folder / "start").is_file():  # a rendered release: one start, many forms
        return _file(folder / "start", Path("/"))
    starts: list[Start] = []
    unread: list[Unread] = []
    wanted = (*_COMPOSE, *_UNITS[:1], ".container", *_SCRIPTS)
    for path in sorted(path for path in folder.iterdir() if path.suffix in wanted):
        try:
            found, more = _file(path, Path("/"))
        except ArchonError as err:
            found, more = [], [Unread(path.name, err.message)]
        starts += found
        unread += more or ([] if found else [Unread(path.name, "starts no engine that is known here")])
    return starts, unread


def _file(path: Path, root: Path) -> tuple[list[Start], list[Unread]]:
    text = read_text(path)
    if path.suffix in _COMPOSE:
        return compose_starts(path, text)
    if path.suffix == ".container":
        return _quadlet(path, text)
    if path.suffix in _UNITS or re.match(r"\s*([#;].*\n\s*)*\[(Unit|Service)\]", text):
        return unit_starts(path, text, root)
    return _script(path, text)


def _script(path: Path, text: str) -> tuple[list[Start], list[Unread]]:
    script = read_script(text)
    starts: list[Start] = []
    unread = list(script.unread)
    for command in script.commands:
        found, more = launches(replace(command, env=(*script.exported, *command.env)))
        starts += [Start(each, plain_name(path.stem), str(path), path.absolute().parent) for each in found]
        unread += more
    return starts, unread


def _quadlet(path: Path, text: str) -> tuple[list[Start], list[Unread]]:
    unit = read_unit(text)
    container, command, unread = read_quadlet(unit)
    if container is None:
        return [], [Unread(path.name, "a Quadlet without an Image")]
    others = [*unit.unread, *unread, *other_keys(unit)]
    found, more = in_container(container, command)
    starts = [
        Start(each, plain_name(path.stem), str(path), path.absolute().parent,
              "", load_timeout_s(unit, others), tuple(others))
        for each in found
    ]  # fmt: skip
    return starts, list(more)
