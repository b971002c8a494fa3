"""A systemd unit with its drop-ins and environment files, as the engine starts in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

from archonctl.errors import UsageError
from archonctl.foreign.files import read_text
from archonctl.foreign.launch import Launch, launches
from archonctl.foreign.shell import read_script
from archonctl.foreign.start import Start, env_file_settings, plain_name
from archonctl.foreign.units import Unit, read_unit
from archonctl.foreign.words import Command, Setting, Unread, Word

UNIT_FOLDERS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
_SPAN = re.compile(r"([0-9]+)(s|sec|min|m|h)?")
_SECONDS = {"": 1, "s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}
_IMPLIED = re.compile(
    r"Type|Restart(Sec|PreventExitStatus|Steps|MaxDelaySec)?|User|ExecStart|Environment(File)?|TimeoutStartSec|"
    r"TimeoutStopSec|KillMode|OOMPolicy|KillSignal|LimitMEMLOCK|Standard(Output|Error)|SyslogIdentifier|Delegate|NotifyAccess|"
    r"Log\w+|Protect\w+|NoNewPrivileges|LockPersonality|Restrict\w+|PIDFile|SuccessExitStatus"
)
"""Keys of ``[Service]`` that the rendered unit decides by itself, or that are read here."""


def unit_path(name: str, root: Path) -> Path:
    """The file of a unit by its name, or of its template. Raises UsageError ``import-nothing-found``."""
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


def unit_starts(path: Path, text: str, root: Path) -> tuple[list[Start], list[Unread]]:
    """Every engine of a unit, and what was not read. Raises as ``read_text`` for a drop-in."""
    unit = read_unit("\n".join([text, *(read_text(each) for each in _drop_ins(path, root))]))
    others = [*unit.unread, *other_keys(unit)]
    env: list[Setting] = list(unit.environment())
    for entry in unit.all("Service", "EnvironmentFile"):
        name = entry.value.text.strip('"')
        word = Word(name.removeprefix("-").replace("%%", "%"), entry.line, entry.column)
        env += env_file_settings(word, Path("/"), others, optional=name.startswith("-"))
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
            Start(each, plain_name(path.stem.removeprefix("archon-")), str(path), Path("/"),
                  user.value.text if user else "", load_timeout_s(unit, others))
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


def load_timeout_s(unit: Unit, unread: list[Unread]) -> int | None:
    """``TimeoutStartSec=`` in seconds; None where there is none, or it is endless."""
    entry = unit.last("Service", "TimeoutStartSec")
    if entry is None or entry.value.text in ("0", "infinity"):
        return None
    found = _SPAN.fullmatch(entry.value.text)
    if found is None:
        unread.append(Unread(f"TimeoutStartSec={entry.value.text}"[:80], "not read", entry.line, entry.column))
        return None
    seconds = int(found[1]) * _SECONDS[found[2] or ""]
    return seconds if 0 < seconds <= 7 * 86_400 else None


def other_keys(unit: Unit) -> list[Unread]:
    """Keys of ``[Service]`` that no declaration can say."""
    reason = "the rendered unit has no place for it"
    return [
        Unread(f"{entry.key}={entry.value.text}"[:80], reason, entry.line, entry.column)
        for entry in unit.entries
        if entry.section == "Service" and not _IMPLIED.fullmatch(entry.key) and not entry.key.startswith("Exec")
    ]


def _left(command: Command, reason: str) -> Unread:
    first = command.words[0]
    return Unread(first.text[:80], reason, first.line, first.column)
