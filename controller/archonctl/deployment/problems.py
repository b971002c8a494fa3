"""What is wrong with a declaration, a host profile or a manifest: every mistake as one error, all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pydantic import BaseModel, ValidationError

from archonctl.deployment.keys import Loc, dotted, expected, is_model, key_type, table_keys
from archonctl.errors import DeclarationError

SHOWN_LIMIT = 20
"""So many problems of one file are told; the count of the rest is."""

Place = Callable[[Loc], str]
"""From a key to where its value came from: ``env/tiny.toml:12``, ``environment ARCHON__...`` or ``flag --seqs``."""

_TYPE_ERRORS = ("_type", "_parsing", "int_from_float", "string_unicode", "is_instance_of")
_RANGE_ERRORS = ("greater_than", "less_than", "finite_number", "too_long", "too_short", "int_parsing_size")


class KeyProblem(DeclarationError):
    """One mistake at one key: what was got and what was expected."""

    def __init__(
        self, code: str, key: str, message: str, *, got: str = "", wanted: str = "", where: str = "", hint: str = ""
    ) -> None:
        super().__init__(code, message, where=where, hint=hint)
        self.key = key
        self.got = got
        self.wanted = wanted

    def as_dict(self) -> dict[str, str]:
        """As every error, and the key, what was got and what was expected."""
        return super().as_dict() | {"key": self.key, "got": self.got, "expected": self.wanted}


class InvalidDeclaration(DeclarationError):
    """Everything that is wrong with one file. The first problem gives the code; ``str`` is one line each."""

    def __init__(self, problems: Sequence[DeclarationError]) -> None:
        first = problems[0]
        super().__init__(first.code, first.message, where=first.where, hint=first.hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        shown = [str(problem) for problem in self.problems[:SHOWN_LIMIT]]
        rest = len(self.problems) - len(shown)
        return "\n".join([*shown, *([f"... and {rest:,} more"] if rest else [])])


def raise_all(problems: Sequence[DeclarationError]) -> None:
    """Raise if there is anything to tell: a single problem as itself, several as InvalidDeclaration, by line."""
    problems = sorted(problems, key=lambda problem: _line(problem.where))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise InvalidDeclaration(problems)


def _line(where: str) -> int:
    line = where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def bad_value(key: str, got: str, wanted: str, place: str, code: str = "declaration-bad-value") -> KeyProblem:
    """A value that cannot stand at ``key``."""
    return KeyProblem(code, key, f"{key} is {got}, expected {wanted}", got=got, wanted=wanted, where=place)


def unknown_key(model: type[BaseModel], loc: Loc, place: str) -> KeyProblem:
    """A key that the schema does not have, with the one that was probably meant."""
    key = dotted(loc)
    known = table_keys(model, loc[:-1])
    table = dotted(loc[:-1])
    wanted = f"one of {', '.join(known)}"
    where = f"in [{table}]" if table else "at the top level"
    if len(loc) > 1 and isinstance(loc[-2], int):
        where = f"in [[{dotted(loc[:-2])}]]"
    hint = _meant(model, str(loc[-1]), known, table)
    return KeyProblem(
        "declaration-unknown-key",
        key,
        f"{key} is no key {where}, expected {wanted}",
        wanted=wanted,
        where=place,
        hint=hint,
    )


def _meant(model: type[BaseModel], name: str, known: Iterable[str], table: str) -> str:
    if close := closest(name, known):
        return f"did you mean {table + '.' if table else ''}{close}?"
    homes = [t for t in table_keys(model, ()) if name.replace("-", "_") in table_keys(model, (t,))]
    if homes:
        return f"it belongs in [{homes[0]}]"
    if table == "engine" and is_model(model) and "engine" in table_keys(model, ()):
        return f"flags of the engine belong in [engine.knobs], as {name.replace('_', '-')}"
    return ""


def closest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, or an empty string."""
    import difflib  # only on errors

    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else ""


def from_validation(error: ValidationError, model: type[BaseModel], place: Place) -> list[DeclarationError]:
    """One problem a key from pydantic's report (which has one entry for each member of a union)."""
    problems: dict[Loc, DeclarationError] = {}
    for entry in error.errors(include_url=False, include_context=False):
        loc = _key_of(model, entry["loc"])
        if loc not in problems:
            problems[loc] = _problem(model, loc, place(loc), (entry["type"], entry["msg"], entry["input"]))
    return list(problems.values())


def _key_of(model: type[BaseModel], loc: Loc) -> Loc:
    """``loc`` without the names of union members that pydantic appends to it."""
    for end in range(1, len(loc) + 1):
        found = key_type(model, loc[:end])
        if found is None or found.spot == "value":
            return loc[:end]
    return loc


def _problem(model: type[BaseModel], loc: Loc, place: str, entry: tuple[str, str, object]) -> DeclarationError:
    kind, text, value = entry
    key, wanted = dotted(loc), expected(model, loc)
    if kind == "extra_forbidden":
        return unknown_key(model, loc, place)
    if kind == "missing":
        return KeyProblem(
            "declaration-missing-key", key, f"{key} is missing, expected {wanted}", wanted=wanted, where=place
        )
    if kind.startswith(_RANGE_ERRORS):
        return bad_value(key, describe(value), wanted, place, "declaration-out-of-range")
    if kind.endswith(_TYPE_ERRORS):
        return bad_value(key, describe(value), wanted, place, "declaration-wrong-type")
    problem = bad_value(key, describe(value), wanted, place)
    if kind == "literal_error" and isinstance(value, str):
        close = closest(value, wanted.removeprefix("one of ").split(", "))
        problem.hint = f"did you mean {close}?" if close else ""
    elif kind not in ("literal_error", "string_pattern_mismatch"):
        problem.message += f": {text}"
    return problem


def describe(value: object) -> str:
    """A value in words, short and printable whatever it holds."""
    if isinstance(value, str):
        return f"the text {printable(value)!r}" if value else "empty text"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    return _scalar(value)


def _scalar(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**21 else f"a number of {value.bit_length():,} bits"
    return repr(value) if isinstance(value, float) else f"a {type(value).__name__}"


def printable(text: str, limit: int = 60) -> str:
    """``text`` cut to ``limit`` characters, with bytes that are no UTF-8 as escapes."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return cut.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
