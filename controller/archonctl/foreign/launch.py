"""Which engine a command starts, behind the programs and containers that start it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from archonctl.deployment.schema import EngineKind
from archonctl.foreign.containers import RUNTIMES, Container, read_run, variable
from archonctl.foreign.shell import read_script
from archonctl.foreign.words import Command, Setting, Unread, Word

_SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox")
PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_DEPTH = 16
"""Programs that start one another; more of them is no start script."""


First = Literal["", "program", "model"]


@dataclass(frozen=True, slots=True)
class Launch:
    """An engine as a command starts it.

    ``arguments`` are the engine's own: for vLLM they begin with ``serve MODEL`` (``serve`` alone where no model is
    said before the flags), for the others with their first flag. ``program`` is the binary, or the image's name where
    the image's entrypoint is the engine.
    """

    kind: EngineKind
    program: Word
    arguments: tuple[Word, ...]
    env: tuple[Setting, ...] = ()
    container: Container | None = None
    label: str = ""
    conditional: bool = False
    first: First = ""
    """What the first word behind an image is whose own entrypoint starts the engine."""


def launches(command: Command) -> tuple[tuple[Launch, ...], tuple[Unread, ...]]:
    """The engines that a command starts (several for ``sh -c 'a & b'``), and what hid one from us."""
    return _launches(command, None, 0)


def _launches(
    command: Command, container: Container | None, depth: int
) -> tuple[tuple[Launch, ...], tuple[Unread, ...]]:
    words, env = command.words, command.env
    while words and depth < _DEPTH:
        depth += 1
        name = PurePosixPath(words[0].text).name
        if name in RUNTIMES and container is None:
            return _in_container(replace(command, words=words, env=env), depth)
        if name in _SHELLS:
            return _in_shell(replace(command, words=words, env=env), container, depth)
        if name == "env":
            words, more = past_env(words)
            env = (*env, *more)
        elif name in wrappers():
            words = past_wrapper(words, wrappers()[name])
        elif words[0].text == "--":
            words = words[1:]
        else:
            break
    found = _engine(words, container) if words else None
    if found is None:
        return (), ()
    kind, program, arguments = found
    if container is not None:
        env = (*(variable(word) for word in container.all("env")), *env)
    return (Launch(kind, program, arguments, env, container, command.label, command.conditional),), ()


def in_container(container: Container, command: Command) -> tuple[tuple[Launch, ...], tuple[Unread, ...]]:
    """The engine of a container: its entrypoint with ``command.words``, or the image's own.

    The runtime's own environment (``command.env``) does not reach the engine, ``container``'s ``env`` options do.
    """
    entrypoint = [word for word in container.all("entrypoint") if word.text]
    if not entrypoint:
        kind = _image_kind(container.image.text)
        first = command.words[0].text if command.words else "-"
        if kind and (first.startswith("-") or (kind == "vllm" and not _starts_program(command.words))):
            words = command.words
            if kind == "llamacpp" and first in ("--server", "-s"):  # the "full" images: /app/tools.sh --server
                words = words[1:]
            arguments = _vllm(words) if kind == "vllm" else words
            env = (*(variable(word) for word in container.all("env")), *command.env)
            role: First = "program" if first == "serve" else "" if first.startswith("-") else "model"
            role = role if _starts_itself(container.image.text) else ""
            made = Launch(kind, container.image, arguments, env, container, command.label, command.conditional, role)
            return (made,), ()
    found, unread = _launches(replace(command, words=(*entrypoint, *command.words)), container, 1)
    if not container.all("entrypoint") and _starts_itself(container.image.text):
        found = tuple(replace(each, first="program") for each in found)
    return found, unread


def _starts_itself(image: str) -> bool:
    """True for an image that its engine's project publishes, with the engine as its entrypoint."""
    name = image.partition("@")[0]
    return any(re.fullmatch(row["starts_itself"], name) for row in engine_rows() if "starts_itself" in row)


def _in_container(command: Command, depth: int) -> tuple[tuple[Launch, ...], tuple[Unread, ...]]:
    container, unread = read_run(command.words)
    if container is None or depth >= _DEPTH:
        return (), unread
    found, left = in_container(container, replace(command, words=container.command, env=()))
    values = {setting.name: setting.value for setting in command.env}
    return tuple(replace(each, env=_inherited(each.env, values)) for each in found), left


def _inherited(env: tuple[Setting, ...], values: Mapping[str, Word]) -> tuple[Setting, ...]:
    """``--env NAME`` is the value that the runtime itself is given, where that is known."""
    return tuple(
        Setting(each.name, values[each.name]) if each.inherited and each.name in values else each for each in env
    )


def _starts_program(words: Sequence[Word]) -> bool:
    """True if the words of an image's command name a program, rather than the model of its entrypoint."""
    name = PurePosixPath(words[0].text).name if words else ""
    return bool(name in (*_SHELLS, *wrappers(), "env", "vllm") or PYTHON.fullmatch(name))


def _in_shell(
    command: Command, container: Container | None, depth: int
) -> tuple[tuple[Launch, ...], tuple[Unread, ...]]:
    words = command.words
    for index, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-z]*c[a-z]*", word.text) and index + 1 < len(words):
            script = words[index + 1]
            # a variable of the outside stays one inside: neither of the two readers knows what it holds
            if not all(name.startswith("$") for name in script.unresolved):
                return (), (
                    Unread(script.text[:80], "a command that only a shell can expand", script.line, script.column),
                )
            read = read_script(script.text, script.line, script.column)
            found: list[Launch] = []
            unread = list(read.unread)
            for inner in read.commands:
                conditional = command.conditional or inner.conditional
                merged = replace(
                    inner,
                    env=(*command.env, *read.exported, *inner.env),
                    label=command.label,
                    conditional=conditional,
                )
                more, left = _launches(merged, container, depth)
                found += more
                unread += left
            return tuple(found), tuple(unread)
        if not word.text.startswith("-"):
            return (), (Unread(word.text[:80], "a script of its own: import that file", word.line, word.column),)
    return (), ()


def past_env(words: tuple[Word, ...]) -> tuple[tuple[Word, ...], list[Setting]]:
    """What stands behind ``env NAME=value ...``, and the variables."""
    found: list[Setting] = []
    at = 1
    while at < len(words):
        text = words[at].text
        if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", text):
            found.append(variable(words[at]))
        elif text in ("-u", "--unset", "-C", "--chdir"):
            at += 1
        elif not text.startswith("-"):
            break
        at += 1
    return words[at:], found


@cache
def wrappers() -> Mapping[str, Mapping[str, Any]]:
    """Programs that start another one, by name (``wrappers.toml``)."""
    rows = tomllib.loads(Path(__file__).with_name("wrappers.toml").read_text(encoding="utf-8"))["wrapper"]
    return {name: row for row in rows for name in row["names"]}


def past_wrapper(words: tuple[Word, ...], row: Mapping[str, Any]) -> tuple[Word, ...]:
    """What stands behind a program that starts another one."""
    left = row.get("positionals", 0)
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "--":
            return words[at + 1 :]
        if text.startswith("-"):
            at += text in row.get("valued", ()) or text in row.get("joined", ())
        elif left:
            left -= 1
        else:
            break
        at += 1
    return words[at:]


@cache
def engine_rows() -> tuple[Mapping[str, Any], ...]:
    """How each engine is recognised (``engines.toml``)."""
    return tuple(tomllib.loads(Path(__file__).with_name("engines.toml").read_text(encoding="utf-8"))["engine"])


def _image_kind(image: str) -> EngineKind | None:
    """The engine that an image's own entrypoint starts, by the last part of its name."""
    name = PurePosixPath(image.partition("@")[0]).name.partition(":")[0]
    return next((row["kind"] for row in engine_rows() if name in row.get("images", ())), None)


def _engine(words: tuple[Word, ...], container: Container | None) -> tuple[EngineKind, Word, tuple[Word, ...]] | None:
    name = PurePosixPath(words[0].text).name
    module, rest = "", words[1:]
    if PYTHON.fullmatch(name):
        at = next((index for index, word in enumerate(words) if word.text == "-m"), 0)
        if at and at + 1 < len(words):
            module, rest = words[at + 1].text, words[at + 2 :]
        elif len(words) > 1 and not words[1].text.startswith("-"):  # python /venv/bin/vllm serve …
            return _engine(words[1:], container)
    elif name.endswith(".py"):
        module = words[0].text.removesuffix(".py").replace("/", ".")
    for row in engine_rows():
        kind: EngineKind = row["kind"]
        if module and any(f".{module}".endswith(f".{known}") for known in row.get("modules", ())):
            return kind, words[0], _vllm(rest) if kind == "vllm" else rest
        if name in row["programs"]:
            if kind not in ("vllm", "sglang"):
                return kind, words[0], rest
            if rest and rest[0].text == "serve":
                return kind, words[0], rest if kind == "vllm" else rest[1:]
    return None


def _vllm(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """The arguments of vLLM's own server module (``--model M …``) or of an image in the form ``serve M …``."""
    if words and words[0].text == "serve":
        return words
    serve = Word("serve", words[0].line, words[0].column) if words else Word("serve")
    for index, word in enumerate(words):
        if word.text == "--model" and index + 1 < len(words):
            return (serve, words[index + 1], *words[:index], *words[index + 2 :])
        if word.text.startswith("--model="):
            model = replace(word, text=word.text.removeprefix("--model="))
            return (serve, model, *words[:index], *words[index + 1 :])
    return (serve, *words)
