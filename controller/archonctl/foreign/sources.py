"""What a person names (a file, a folder, a unit, a process) as the engine starts that are found in it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from archonctl.errors import ArchonError, UsageError
from archonctl.foreign.compose import Service, read_compose
from archonctl.foreign.containers import Container, Option
from archonctl.foreign.env_file import read_env_file
from archonctl.foreign.files import read_text
from archonctl.foreign.launch import Launch, in_container, launches
from archonctl.foreign.process import read_process
from archonctl.foreign.quadlet import read_quadlet
from archonctl.foreign.shell import read_script
from archonctl.foreign.units import Unit, read_unit
from archonctl.foreign.words import Command, Setting, Unread, Word

UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_COMPOSE = (".yml", ".yaml")
_UNITS = (".service", ".conf")
_SCRIPTS = (".sh", ".bash")
_SPAN = re.compile(r"([0-9]+)(s|sec|min|m|h)?")
_SECONDS = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}
_IMPLIED = re.compile(
    r"Type|Restart(Sec|PreventExitStatus|Steps|MaxDelaySec)?|User|ExecStart|Environment(File)?|TimeoutStartSec|"
    r"TimeoutStopSec|KillMode|KillSignal|LimitMEMLOCK|Standard(Output|Error)|SyslogIdentifier|Delegate|NotifyAccess|"
    r"Log\w+|Protect\w+|NoNewPrivileges|LockPersonality|Restrict\w+|PIDFile|SuccessExitStatus"
)
"""Keys of ``[Service]`` that the rendered unit decides by itself, or that are read here."""
_OPTIONS = {
    "devices": "device",
    "volumes": "volume",
    "ports": "publish",
    "group_add": "group-add",
    "shm_size": "shm-size",
    "network_mode": "network",
    "networks": "network",
    "security_opt": "security-opt",
    "cap_add": "cap-add",
    "mem_limit": "memory",
    "stop_signal": "stop-signal",
    "stop_grace_period": "stop-timeout",
    "ipc": "ipc",
    "user": "user",
    "init": "init",
    "runtime": "runtime",
    "gpus": "gpus",
    "cpuset": "cpuset-cpus",
    "extra_hosts": "add-host",
    "working_dir": "workdir",
    "container_name": "name",
    "restart": "restart",
    "env_file": "env-file",
    "privileged": "privileged",
    "pull_policy": "pull",
    "hostname": "hostname",
    "labels": "label",
    "logging": "log-driver",
    "depends_on": "requires",
    "profiles": "label",
    "platform": "platform",
}
"""Keys of a compose service by the option of ``docker run`` that they become."""


@dataclass(frozen=True, slots=True)
class Start:
    """One engine start. ``path`` is the file it was found in, ``base`` where its relative paths begin."""

    launch: Launch
    name: str
    path: str
    base: Path
    user: str = ""
    load_timeout_s: int | None = None
    unread: tuple[Unread, ...] = ()


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
        starts, unread = _file(_unit_path(named, root), root)
    if not starts:
        reason = f"; {unread[0].text!a}: {unread[0].reason}" if unread else ""
        raise UsageError(
            "import-nothing-found",
            f"no engine is started there{reason}",
            where=named,
            hint="name the script, unit, Quadlet, compose file or process of a llama-server, vllm, sglang or radiance",
        )
    return [_with_env_files(start) for start in starts], unread


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


def _unit_path(name: str, root: Path) -> Path:
    file = name if PurePosixPath(name).suffix in (".service", ".container") else f"{name}.service"
    template = re.sub(r"@[^.]*\.", "@.", file)
    for candidate in (file, template):
        for folder in UNIT_FOLDERS:
            if (root / folder / candidate).is_file():
                return root / folder / candidate
    folders = ", ".join(f"/{each}" for each in UNIT_FOLDERS)
    raise UsageError(
        "import-nothing-found",
        f"there is no file {name[:80]!a}, and no unit {file[:80]!a} in {folders}",
        hint="name a file, a folder, a unit or a process by its number",
    )


def _file(path: Path, root: Path) -> tuple[list[Start], list[Unread]]:
    text = read_text(path)
    if path.suffix in _COMPOSE:
        return _compose(path, text)
    if path.suffix == ".container":
        return _quadlet(path, text)
    if path.suffix in _UNITS or re.match(r"\s*([#;].*\n\s*)*\[(Unit|Service)\]", text):
        return _unit(path, text, root)
    return _script(path, text)


def _script(path: Path, text: str) -> tuple[list[Start], list[Unread]]:
    script = read_script(text)
    starts: list[Start] = []
    unread = list(script.unread)
    for command in script.commands:
        found, more = launches(replace(command, env=(*script.exported, *command.env)))
        starts += [Start(each, _plain(path.stem), str(path), path.absolute().parent) for each in found]
        unread += more
    return starts, unread


def _compose(path: Path, text: str) -> tuple[list[Start], list[Unread]]:
    compose = read_compose(text, str(path))
    starts: list[Start] = []
    unread = list(compose.unread)
    for service in compose.services:
        if service.image is None:
            unread.append(Unread(service.name, "it has no image (build is not followed)", service.line))
            continue
        container, others = _of_service(service, service.image)
        found, more = in_container(container, service.command)
        starts += [Start(each, service.name, str(path), path.absolute().parent, unread=tuple(others)) for each in found]
        unread += more if found or more else [Unread(service.name, "starts no engine that is known here", service.line)]
    return starts, unread


def _of_service(service: Service, image: Word) -> tuple[Container, list[Unread]]:
    options: list[Option] = []
    unread: list[Unread] = []
    for key, words in service.others.items():
        if key == "ulimits":
            options += [Option("ulimit", word, word.line, word.column) for word in words]
        elif key == "deploy":
            options += _reserved(words, unread)
        elif key in ("healthcheck", "ports", *_OPTIONS):
            name = _OPTIONS.get(key, "health-cmd")
            options += [Option(name, word, word.line, word.column) for word in words]
        else:
            unread += [
                Unread(f"{key}: {word.text}"[:80], "a key that is not read", word.line, word.column)
                for word in words[:1]
            ]
    return Container("compose", image, tuple(options)), unread


def _reserved(words: Iterable[Word], unread: list[Unread]) -> list[Option]:
    """The cards of ``deploy.resources.reservations.devices``."""
    ids, count, driver = list[str](), "", ""
    for word in words:
        key, _, value = word.text.rpartition("=")
        last = key.rpartition("=")[2]
        if last == "device_ids":
            ids.append(value)
        elif last == "count":
            count = value
        elif last in ("driver", "capabilities"):
            driver = driver or value
        else:
            unread.append(Unread(word.text[:80], "a key of deploy that is not read", word.line, word.column))
    if not (ids or count or driver):
        return []
    chosen = f"device={','.join(ids)}" if ids else "all"
    if count not in ("", "all", "-1"):
        unread.append(Unread(f"count: {count}", "a number of cards, and not which: all are taken"))
    return [Option("gpus", Word(chosen))]


def _with_env_files(start: Start) -> Start:
    """The variables of ``--env-file`` before those that are stated."""
    container = start.launch.container
    unread = list(start.unread)
    found: list[Setting] = []
    for word in container.all("env-file") if container else ():
        found += _env_file(word, start.base, unread, optional=False)
    return replace(start, launch=replace(start.launch, env=(*found, *start.launch.env)), unread=tuple(unread))


def _env_file(word: Word, base: Path, unread: list[Unread], *, optional: bool) -> list[Setting]:
    try:
        settings, more = read_env_file(read_text(base / word.text))
    except ArchonError as err:
        if not optional:
            unread.append(Unread(word.text[:80], err.message, word.line, word.column))
        return []
    unread += more
    return [replace(each, value=Word(each.value.text, word.line, word.column)) for each in settings]


def _quadlet(path: Path, text: str) -> tuple[list[Start], list[Unread]]:
    unit = read_unit(text)
    container, command, unread = read_quadlet(unit)
    if container is None:
        return [], [Unread(path.name, "a Quadlet without an Image")]
    others = [*unit.unread, *unread, *_other_keys(unit)]
    found, more = in_container(container, command)
    starts = [
        Start(each, _plain(path.stem), str(path), path.absolute().parent,
              "", _timeout(unit, others), tuple(others))
        for each in found
    ]  # fmt: skip
    return starts, list(more)


def _unit(path: Path, text: str, root: Path) -> tuple[list[Start], list[Unread]]:
    unit = read_unit("\n".join([text, *(read_text(each) for each in _drop_ins(path, root))]))
    others = [*unit.unread, *_other_keys(unit)]
    env: list[Setting] = list(unit.environment())
    for entry in unit.all("Service", "EnvironmentFile"):
        name = entry.value.text.strip('"')
        word = Word(name.removeprefix("-").replace("%%", "%"), entry.line, entry.column)
        env += _env_file(word, Path("/"), others, optional=name.startswith("-"))
    values = {setting.name: setting.value.text for setting in env}
    user = unit.last("Service", "User")
    starts: list[Start] = []
    unread: list[Unread] = []
    for command in unit.commands():
        if command.label != "ExecStart":
            others.append(_left(command, f"a command of {command.label}, which the rendered unit does not run"))
            continue
        known = Command(tuple(_filled(word, values) for word in command.words), tuple(env), "ExecStart")
        found, more = _followed(known, root)
        starts += [
            Start(each, _plain(path.stem.removeprefix("archon-")), str(path), Path("/"),
                  user.value.text if user else "", _timeout(unit, others))
            for each in found
        ]  # fmt: skip
        unread += more
    return [replace(start, unread=tuple(others)) for start in starts], unread


def _drop_ins(path: Path, root: Path) -> list[Path]:
    folders = [path.parent / f"{path.name}.d"]
    if any(path.parent == root / folder for folder in UNIT_FOLDERS):
        folders += [root / folder / f"{path.name}.d" for folder in UNIT_FOLDERS]
    found = {each.name: each for folder in reversed(folders) for each in folder.glob("*.conf") if each.is_file()}
    return [found[name] for name in sorted(found)]


def _followed(command: Command, root: Path) -> tuple[tuple[Launch, ...], tuple[Unread, ...]]:
    """A unit's command, or those of the shell script that it runs."""
    found, unread = launches(command)
    if found:
        return found, unread
    script = next(
        (word.text for word in command.words if word.text.startswith("/") and _is_script(root, word.text)), ""
    )
    if not script:
        return (), unread
    text = read_text(root / script.lstrip("/"))
    inner = read_script(text)
    env = (*command.env, *inner.exported)
    each = [launches(replace(part, env=(*env, *part.env))) for part in inner.commands]
    return tuple(one for ones, _ in each for one in ones), (*inner.unread, *(one for _, ones in each for one in ones))


def _is_script(root: Path, name: str) -> bool:
    try:
        with (root / name.lstrip("/")).open("rb") as file:
            return bool(re.match(rb"#![^\n]*sh\b", file.read(128)))
    except (OSError, ValueError):
        return False


def _filled(word: Word, values: dict[str, str]) -> Word:
    """Variables of the unit itself put in; what is left stays unresolved."""
    text, left = word.text, []
    for mark in word.unresolved:
        name = mark.strip("${}")
        if mark.startswith("$") and name in values:
            text = text.replace(mark, values[name])
        else:
            left.append(mark)
    return replace(word, text=text, unresolved=tuple(left))


def _timeout(unit: Unit, unread: list[Unread]) -> int | None:
    entry = unit.last("Service", "TimeoutStartSec")
    if entry is None or entry.value.text in ("0", "infinity"):
        return None
    found = _SPAN.fullmatch(entry.value.text)
    if found is None:
        unread.append(Unread(f"TimeoutStartSec={entry.value.text}"[:80], "not read", entry.line, entry.column))
        return None
    seconds = int(found[1]) * _SECONDS[found[2] or ""]
    return seconds if 0 < seconds <= 7 * 86_400 else None


def _other_keys(unit: Unit) -> list[Unread]:
    reason = "the rendered unit has no place for it"
    return [
        Unread(f"{entry.key}={entry.value.text}"[:80], reason, entry.line, entry.column)
        for entry in unit.entries
        if entry.section == "Service" and not _IMPLIED.fullmatch(entry.key) and not entry.key.startswith("Exec")
    ]


def _left(command: Command, reason: str) -> Unread:
    first = command.words[0]
    return Unread(first.text[:80], reason, first.line, first.column)


def _plain(name: str) -> str:
    """A file's name as an endpoint's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.@") or "endpoint"
