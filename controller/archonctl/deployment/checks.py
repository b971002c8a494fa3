"""What a schema of types cannot say: values that contradict each other, and text that no file or argv can carry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from archonctl.deployment.keys import Loc, dotted
from archonctl.deployment.problems import KeyProblem, Place, bad_value, describe, printable
from archonctl.deployment.schema import Endpoint
from archonctl.errors import DeclarationError

_INT_LIMIT = 1 << 63
_PROSE: tuple[tuple[str, ...], ...] = (("boot", "source"), ("predict", "name"), ("cards", "name"), ("cards", "source"))
"""Texts for people, where a line break or a tab does no harm."""
_KNOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def raw_problems(data: Mapping[str, object], place: Place) -> list[DeclarationError]:
    """Control characters in text, and whole numbers that do not fit in 64 bits (TOML's own bound)."""
    problems: list[DeclarationError] = []
    for loc, value in walk_leaves(data):
        if isinstance(value, int) and not -_INT_LIMIT <= value < _INT_LIMIT:
            wanted = "a whole number of at most 64 bits"
            problems.append(bad_value(dotted(loc), describe(value), wanted, place(loc), "declaration-out-of-range"))
        if isinstance(value, str) and _unwritable(value, loc):
            wanted = "UTF-8 text without line breaks or control characters"
            problems.append(bad_value(dotted(loc), describe(value), wanted, place(loc)))
    return problems


def walk_leaves(value: object, loc: Loc = (), keep_empty: bool = False) -> Iterator[tuple[Loc, object]]:
    """Every value that is no table and no array, with its key; empty tables and arrays too if asked."""
    parts: Iterable[tuple[str | int, object]]
    if isinstance(value, dict) and (value or not keep_empty):
        parts = ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple) and (value or not keep_empty):
        parts = enumerate(value)
    else:
        yield loc, value
        return
    for key, part in parts:
        yield from walk_leaves(part, (*loc, key), keep_empty)


def _unwritable(text: str, loc: Loc) -> bool:
    """True for control characters, and for the stand-ins of bytes that are no UTF-8."""
    prose = (loc[0], loc[-1]) in _PROSE if loc else False
    return any((c < " " and not (prose and c in "\n\t")) or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in text)


def name_problems(endpoint: Endpoint, place: Place) -> list[DeclarationError]:
    """Knobs and variables whose names could not be written on a command line or into an env file."""
    problems: list[DeclarationError] = []
    for table, names, pattern, wanted in (
        ("knobs", endpoint.engine.knobs, _KNOB, "a flag's name without the leading dashes, such as host-pool-mib"),
        ("env", endpoint.engine.env, _VARIABLE, "a variable's name, such as LLAMA_ARG_THREADS"),
    ):
        for name in names:
            if not pattern.fullmatch(name):
                key = f"engine.{table}.{printable(name)}"
                message = f"{name!a} in [engine.{table}] is no name, expected {wanted}"
                where = place(("engine", table, name))
                problems.append(KeyProblem("declaration-bad-value", key, message, wanted=wanted, where=where))
    return problems


def contradictions(endpoint: Endpoint, place: Place) -> list[DeclarationError]:
    """Values that are right by themselves and impossible together."""
    problems: list[DeclarationError] = []

    def both(table: str, first: str, second: str, hint: str) -> None:
        message = f"{table}.{first} and {table}.{second} are both set, expected one of them"
        where = place((table, second))
        problems.append(KeyProblem("declaration-contradiction", f"{table}.{second}", message, where=where, hint=hint))

    if endpoint.engine.image and endpoint.engine.binary:
        both("engine", "image", "binary", "an engine runs from a container image or from a binary")
    if endpoint.host.profile and endpoint.host.detect:
        both("host", "profile", "detect", "a host is described by its profile or detected on this machine")
    port = int(endpoint.service.listen.rpartition(":")[2])
    if not 1 <= port <= 65_535:
        wanted = "a port from 1 to 65,535"
        problems.append(
            bad_value(
                "service.listen", f"port {port}", wanted, place(("service", "listen")), "declaration-out-of-range"
            )
        )
    seen: dict[str, int] = {}
    for index, prediction in enumerate(endpoint.predict):
        if prediction.name in seen:
            message = f"{printable(prediction.name)!r} is predicted twice, expected one figure a name"
            key = f"predict[{index}].name"
            where = place(("predict", index, "name"))
            problems.append(KeyProblem("declaration-contradiction", key, message, where=where))
        seen.setdefault(prediction.name, index)
    return problems
