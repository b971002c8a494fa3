"""What is set for kernel modules, and where: modprobe.d, this boot's command line, and what the next one will have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from archonctl.findings import Place

Via = Literal["modprobe", "boot", "running"]
"""``modprobe``: a file that modprobe reads; ``boot``: the next boot's command line; ``running``: this boot's."""

MODPROBE_FOLDERS = ("etc", "run", "usr/local/lib", "usr/lib", "lib")
"""In the order of their rank: a file masks those of its name in later folders (modprobe.d(5))."""

_LARGEST_BYTES = 1 << 20
_GRUB = re.compile(r"\s*(?:export\s+)?GRUB_CMDLINE_LINUX(?:_DEFAULT)?=(.*)")


@dataclass(frozen=True, slots=True)
class Setting:
    """One parameter of a module. Names have ``_`` where the source may have ``-``: the kernel takes them as one."""

    module: str
    name: str
    value: str
    via: Via
    place: Place


def read_settings(root: Path) -> tuple[Setting, ...]:
    """Every module parameter that is set below ``root``. What cannot be read is passed over: nothing is set there."""
    return (*_modprobe(root), *_command_lines(root))


def modprobe_files(root: Path) -> Iterator[Path]:
    """The files that modprobe reads, masked ones left out, in its order (by name)."""
    found: dict[str, Path] = {}
    for folder in MODPROBE_FOLDERS:
        for path in (root / folder / "modprobe.d").glob("*.conf"):
            found.setdefault(path.name, path)
    yield from (found[name] for name in sorted(found))


def _modprobe(root: Path) -> Iterator[Setting]:
    for path in modprobe_files(root):
        for number, line in _logical_lines(path):
            words = line.split()
            if len(words) > 2 and words[0] == "options":
                for word in words[2:]:
                    yield _setting(words[1], word, "modprobe", _place(root, path, number))


def _logical_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines without comments, a backslash at the end continuing one; each with the number of its first."""
    held, first = "", 0
    for number, line in enumerate(_lines(path), 1):
        first = first or number
        if line.endswith("\\"):
            held += line[:-1] + " "
            continue
        text = (held + line).strip()
        if text and not text.startswith("#"):
            yield first, text
        held, first = "", 0


def _command_lines(root: Path) -> Iterator[Setting]:
    for number, line in enumerate(_lines(root / "proc/cmdline"), 1):
        yield from _words(line, "running", _place(root, root / "proc/cmdline", number))
    for path in (root / "etc/default/grub", *sorted((root / "etc/default/grub.d").glob("*.cfg"))):
        for number, line in enumerate(_lines(path), 1):
            if found := _GRUB.fullmatch(line):
                yield from _words(" ".join(_split(found[1])), "boot", _place(root, path, number))
    plain = [root / "etc/kernel/cmdline", *sorted((root / "etc/cmdline.d").glob("*.conf"))]
    for path in plain:
        for number, line in enumerate(_lines(path), 1):
            yield from _words(line, "boot", _place(root, path, number))
    for path in sorted((root / "boot/loader/entries").glob("*.conf")):
        for number, line in enumerate(_lines(path), 1):
            if line.startswith("options"):
                yield from _words(line.removeprefix("options"), "boot", _place(root, path, number))


def _words(text: str, via: Via, place: Place) -> Iterator[Setting]:
    for word in _split(text):
        target, equals, value = word.partition("=")
        module, dot, name = target.partition(".")
        if equals and dot and module and name:
            yield _setting(module, f"{name}={value}", via, place)


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _setting(module: str, word: str, via: Via, place: Place) -> Setting:
    name, _, value = word.partition("=")
    return Setting(module.replace("-", "_"), name.replace("-", "_"), value.strip("\"'"), via, place)


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_BYTES).decode("utf-8", "backslashreplace").splitlines()
    except OSError:
        return []


def _place(root: Path, path: Path, line: int) -> Place:
    return Place(f"/{path.relative_to(root)}", line)
