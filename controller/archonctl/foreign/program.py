"""The program in front of a command line that was pasted whole: which engine it is, and where its arguments begin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath, PurePosixPath, PureWindowsPath

from archonctl.deployment.schema import EngineKind
from archonctl.engines.knobs import ArgvFinding, check_argv
from archonctl.foreign.launch import PYTHON, engine_rows, past_env, past_wrapper, wrappers
from archonctl.foreign.words import Word

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Line:
    """A command line that was judged: what was found, and how many words in front are the ``program``."""

    findings: tuple[ArgvFinding, ...]
    program: int = 0


def check_line(engine: str, version: str, argv: Sequence[str]) -> Line:
    """``check_argv`` for a command line as it is typed, with its program or without. Raises as that does."""
    program = program_before(argv)
    if program is None or program.kind != engine:
        return Line(check_argv(engine, version, argv))
    found = check_argv(engine, version, argv[program.words :], module=program.module)
    placed = (replace(one, index=one.index + program.words) if one.index >= 0 else one for one in found)
    return Line(tuple(placed), program.words)


@dataclass(frozen=True, slots=True)
class Program:
    """``words`` of the command line name the program. ``module`` is True for an engine's own server module."""

    kind: EngineKind
    words: int
    module: bool = False


def program_before(argv: Sequence[str]) -> Program | None:
    """The program that a command line begins with, behind variables and programs that start another.

    None where it begins with arguments, or with a program that starts no engine.
    """
    words = tuple(map(Word, argv))
    while words:
        name = _name(words[0].text)
        if _ASSIGNMENT.fullmatch(words[0].text):
            words = words[1:]
        elif name == "env":
            words = past_env(words)[0]
        elif name in wrappers():
            words = past_wrapper(words, wrappers()[name])
        else:
            break
    return _program(words, len(argv) - len(words)) if words else None


def _program(words: tuple[Word, ...], skipped: int) -> Program | None:
    name = _name(words[0].text).removesuffix(".exe")
    if PYTHON.fullmatch(name):
        return _of_python(words, skipped)
    if name.endswith(".py"):
        path = words[0].text.removesuffix(".py").replace("\\", "/").replace("/", ".")
        return _module(path, skipped + 1)
    if name == "llama" and len(words) > 1 and words[1].text in ("serve", "server"):
        return Program("llamacpp", skipped + 2)  # app/llama.cpp: one program with all tools
    return next((Program(row["kind"], skipped + 1) for row in engine_rows() if name in row["programs"]), None)


def _of_python(words: tuple[Word, ...], skipped: int) -> Program | None:
    """``python -u -m MODULE`` or ``python PATH``."""
    at = next((index for index, word in enumerate(words) if word.text[:1] != "-" and index), len(words))
    if at < len(words) and words[at - 1].text == "-m":
        return _module(words[at].text, skipped + at + 1)
    return _program(words[1:], skipped + 1) if at == 1 and at < len(words) else None


def _module(name: str, words: int) -> Program | None:
    """The row whose module this is; a path to the module's file ends with its name."""
    for row in engine_rows():
        for module in row.get("modules", ()):
            if name == module or name.endswith(f".{module}"):
                return Program(row["kind"], words, module=not module.endswith(".cli.main"))
    return None


def _name(text: str) -> str:
    path: PurePath = PureWindowsPath(text) if "\\" in text else PurePosixPath(text)
    return path.name
