"""``docker run`` and ``podman run`` command lines: options, image and what the image is given."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from archonctl.foreign.words import Setting, Unread, Word

RUNTIMES = ("podman", "docker", "nerdctl")


@dataclass(frozen=True, slots=True)
class Option:
    """One option by its long name without dashes; ``value`` is empty for a switch. Place of the flag."""

    name: str
    value: Word
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Container:
    """A container as it would be started: ``runtime`` is podman, docker, compose, kubernetes or quadlet."""

    runtime: str
    image: Word
    options: tuple[Option, ...] = ()
    command: tuple[Word, ...] = ()
    """What follows the image: the arguments of its entrypoint."""

    def all(self, name: str) -> tuple[Word, ...]:
        """Every value of one option."""
        return tuple(option.value for option in self.options if option.name == name)


def variable(word: Word) -> Setting:
    """``NAME=value`` or ``NAME`` (the caller's own value) as a setting."""
    name, equals, value = word.text.partition("=")
    return Setting(
        name, Word(value, word.line, word.column, word.unresolved, word.assumed, word.conditional), not equals
    )


@cache
def _flags() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("container_flags.toml").read_text(encoding="utf-8"))


def read_run(words: Sequence[Word]) -> tuple[Container | None, tuple[Unread, ...]]:
    """``podman … run OPTIONS IMAGE ARGS``; None where it runs no container."""
    at = 1
    while at < len(words) and words[at].text not in ("run", "create"):
        option_or_value = words[at].text.startswith("-") or words[at - 1].text.startswith("--")
        if not option_or_value and words[at].text != "container":  # another verb
            return None, ()
        at += 1
    options: list[Option] = []
    at += 1
    while at < len(words):
        word = words[at]
        if not word.text.startswith("-") or word.text == "-":
            break
        at += 1
        if word.text == "--":
            break
        at = _option(words, at, word, options)
    if at >= len(words):
        return None, (Unread(words[0].text if words else "", "no image is named", *_place(words)),)
    return Container(Path(words[0].text).name, words[at], tuple(options), tuple(words[at + 1 :])), ()


def _place(words: Sequence[Word]) -> tuple[int, int]:
    return (words[0].line, words[0].column) if words else (0, 0)


def _option(words: Sequence[Word], at: int, word: Word, options: list[Option]) -> int:
    """Read the option ``word``; gives the index after its value."""
    if word.text.startswith("--"):
        name, equals, value = word.text[2:].partition("=")
        name = _flags()["same"].get(name, name)
        if equals or name in _flags()["switches"]:
            options.append(_made(name, value, word))
            return at
    else:
        letters = word.text[1:]
        name = ""
        while letters:
            name, letters = _flags()["short"].get(letters[0], letters[0]), letters[1:]
            if name not in _flags()["switches"]:
                break
            options.append(_made(name, "", word))
            name = ""
        if not name:
            return at
        if letters:
            options.append(_made(name, letters.removeprefix("="), word))
            return at
    if at < len(words):
        options.append(Option(name, words[at], word.line, word.column))
    return at + 1


def _made(name: str, value: str, word: Word) -> Option:
    return Option(name, replace(word, text=value), word.line, word.column)
