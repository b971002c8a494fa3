"""Grammars of boot logs: ``engines/<name>/ledger.toml`` as typed rows.

A row is one line pattern. Its named groups are figures (declared under ``[figures]`` with unit and rule) or facts
(words). A group ``x_unit`` beside ``x`` says the printed unit; ``x__2`` is another place for ``x`` in one pattern.
Patterns are tried at the start of a message (see ``clean``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files
from typing import Literal, cast

from archonctl.engines.sighting import Book, BookMaker, FigureRule, Find, Rule, Sighting
from archonctl.errors import DeclarationError
from archonctl.memory.interval import Interval

Effect = Literal["figures", "boot", "ready", "remark", "stop"]

ENGINES = (
    *("radiance", "llamacpp", "vllm", "sglang", "tensorrt_llm", "ollama", "lmdeploy", "vllm_rs", "mistral_rs"),
    "exllama",
)
"""Engine folders with a grammar, in the order in which a tie between two is looked at."""

# Engines print "GB" for 2**30 bytes: SGLang and llama.cpp divide by 1 << 30, old vLLM by 2**30 (DeviceMemoryProfiler).
_BYTES = {
    "B": 1.0,
    "bytes": 1.0,
    "KiB": 1024.0,
    "MiB": 1024.0**2,
    "GiB": 1024.0**3,
    "TiB": 1024.0**4,
    "k": 1024.0,
    "M": 1024.0**2,
    "KB": 1024.0,
    "MB": 1024.0**2,
    "GB": 1024.0**3,
    "TB": 1024.0**4,
}


_SOURCE_LINE = re.compile(r"[a-z_]+\.py:\d+")


@dataclass(frozen=True)
class Row:
    """One line pattern. ``literal`` is a substring of every line that can match: it is looked for first, for speed."""

    id: str
    literal: str
    pattern: str
    example: str
    source: str
    marker: str = ""
    """A substring that the coarse test looks for instead of the literal, where many rows can share it."""
    effect: Effect = "figures"
    code: str = ""
    severity: str = ""
    tells: bool = True
    """False where the line alone does not tell which engine wrote it."""
    wraps: bool = False
    """True where the message may go on in the next lines (wrapped by the engine, a terminal or a paste)."""
    proof: bool = False
    """True where the line shows that what failed before it has been overcome."""
    after_ready: bool = False
    """True where the line still counts once the engine serves."""
    early: bool = False
    """True where the line stands before the one that begins a boot, and belongs to that boot."""
    levels: str = ""
    """If given, only lines of these level letters match."""
    places: int = 0
    """Decimals that the engine rounds to, though it may print fewer of them ("22.5" for 22.50)."""
    since: str = ""
    until: str = ""
    set: Mapping[str, str] = field(default_factory=dict)
    """Facts that the line states by being there."""
    yields: Mapping[str, float | str] = field(default_factory=dict)
    """What the example gives; checked by a test."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """Named groups that carry a value."""
        names = self.regex.groupindex
        return tuple(n for n in names if not n.endswith("_unit"))


@dataclass(frozen=True)
class Grammar:
    """How one engine talks while it boots."""

    engine: str
    display: str
    healthy: tuple[str, ...]
    """Figures that a healthy boot prints; those that are absent are reported as missing."""
    rules: Mapping[str, FigureRule]
    rows: tuple[Row, ...]
    core: frozenset[str] = frozenset()
    """Ids of the rows that a ledger is about: looked for however far into a log."""
    own: frozenset[str] = frozenset()
    """Ids of the rows that only this engine prints."""
    source_lines: Mapping[str, str] = field(default_factory=dict)
    """Version by the source line that logs the capacity ("kv_cache_utils.py:716"): a hint, no more."""
    essentials: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each essential (see ``essentials``) the figures that carry it, the best first; "a + b" is a sum."""
    make_book: BookMaker = Book

    def read(self, row: Row, match: re.Match[str], rank: str, line_no: int, text: str) -> Sighting | None:
        """Turn a match into a sighting. None where what should be a number is none ("1.2.3 MiB"): nobody's line."""
        figures: dict[str, Find] = {}
        facts: dict[str, str] = dict(row.set)
        if self.source_lines and (at := _SOURCE_LINE.search(text)) and at.group() in self.source_lines:
            facts["version_hint"] = self.source_lines[at.group()]
        for group in row.groups:
            printed = match.group(group)
            if printed is None:
                continue
            name = group.partition("__")[0]
            rule = self.rules.get(name)
            if rule is None:
                facts[name] = printed.strip()
                continue
            unit = match.groupdict().get(f"{group}_unit") or ""
            value = number(printed, unit, rule.unit, row.places)
            if value is None:
                return None
            figures[name] = Find(value, line_no, text)
        return Sighting(row.id, figures, facts, rank, line_no, text)


def bytes_in(unit: str) -> float:
    """Bytes in one of a unit as engines print it ("GB" is 2**30); 1 for a unit that is none of bytes."""
    return _BYTES.get(unit, 1.0)


def number(printed: str, unit: str, wanted: str, places: int = 0) -> Interval | None:
    """A printed number in the wanted unit, with its rounding; None where it is no number that makes sense.

    ``places`` is the number of decimals that the engine rounds to, where it may print fewer.
    """
    digits = printed.replace(",", "").strip()
    if len(digits) > 32:
        return None
    whole, dot, decimals = digits.partition(".")
    if places > len(decimals):
        digits = f"{whole}.{decimals.ljust(places, '0')}"
    elif dot and not decimals:
        digits = whole
    scale = _BYTES[unit] / _BYTES[wanted] if unit and wanted in _BYTES else 1.0
    try:
        value = Interval.rounded(digits, scale)
    except ValueError:
        return None
    return value if value.best < 0 or value.low >= 0 else Interval(0.0, value.best, value.high, value.source)


def _text(table: Mapping[str, object], key: str) -> str:
    value = table.get(key, "")
    return value if isinstance(value, str) else str(value)


def _row(raw: Mapping[str, object]) -> Row:
    known = {k: v for k, v in raw.items() if k in Row.__dataclass_fields__}
    if unknown := set(raw) - set(known):
        raise DeclarationError("grammar-invalid", f"row {_text(raw, 'id')!r} has unknown keys {sorted(unknown)}")
    return Row(**known)  # type: ignore[arg-type]  # the test of the data checks the types


def _load(engine: str) -> Mapping[str, object]:
    text = files("archonctl.engines").joinpath(engine, "ledger.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _book(engine: str) -> BookMaker:
    try:
        module = import_module(f"archonctl.engines.{engine}.ledger")
    except ModuleNotFoundError as err:
        if err.name in (f"archonctl.engines.{engine}.ledger", f"archonctl.engines.{engine}"):
            return Book
        raise
    return cast(BookMaker, module.BOOK)


@cache
def grammar(engine: str) -> Grammar:
    """The grammar of one engine folder. Raises DeclarationError ``engine-unsupported`` for an unknown one."""
    if engine not in ENGINES:
        raise DeclarationError(
            "engine-unsupported", f"no ledger grammar for engine {engine!r}", hint=f"one of {', '.join(ENGINES)}"
        )
    raw = _load(engine)
    figures = cast(Mapping[str, Mapping[str, str]], raw.get("figures", {}))
    rows = [_row(r) for r in cast("list[Mapping[str, object]]", raw.get("row", []))]
    own = frozenset(row.id for row in rows if row.tells)
    rules = {name: _figure(name, table) for name, table in figures.items()}
    for base in cast("list[str]", raw.get("extends", [])):
        inner = grammar(base)
        rules = {**inner.rules, **rules}
        rows += [row for row in inner.rows if row not in rows]
    return Grammar(
        engine=engine,
        display=_text(raw, "display") or engine,
        healthy=tuple(cast("list[str]", raw.get("healthy", []))),
        rules=rules,
        rows=tuple(rows) + common_rows(),
        core=frozenset(cast("list[str]", raw.get("core", []))),
        own=own,
        source_lines=cast(Mapping[str, str], raw.get("source_lines", {})),
        essentials={k: tuple(v) for k, v in cast("Mapping[str, list[str]]", raw.get("essentials", {})).items()},
        make_book=_book(engine),
    )


def _figure(name: str, table: Mapping[str, str]) -> FigureRule:
    rule = cast(Rule, table.get("rule", "last"))
    return FigureRule(name, table.get("unit", ""), rule, cast(Rule, table.get("ranks", rule)), table.get("about", ""))


@cache
def _common() -> Mapping[str, object]:
    return tomllib.loads(files("archonctl.ledger").joinpath("common.toml").read_text(encoding="utf-8"))


@cache
def common_rows() -> tuple[Row, ...]:
    """Rows that any engine may print: they tell no engine and carry no figure."""
    return tuple(_row(r) for r in cast("list[Mapping[str, object]]", _common()["row"]))


def common_grammar() -> Grammar:
    """What can be read where the engine is not known: remarks only."""
    return Grammar("unknown", "unknown", (), {}, common_rows())


def shorts() -> tuple[str, ...]:
    """Short strings that many lines of interest share."""
    return tuple(cast("list[str]", _common()["shorts"]))


def all_grammars() -> Iterator[Grammar]:
    """Every grammar that this release has."""
    return (grammar(engine) for engine in ENGINES)


def kind_of(name: str) -> str:
    """The engine folder for a name as people write it ("llama.cpp", "TensorRT-LLM"); "" where there is none."""
    if name in ENGINES:
        return name
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    for engine in ENGINES:
        if plain in (engine.replace("_", ""), re.sub(r"[^a-z0-9]", "", grammar(engine).display.lower())):
            return engine
    return _ALIASES.get(plain, "")


_ALIASES = {
    "llamaserver": "llamacpp",
    "ikllamacpp": "llamacpp",
    "trtllm": "tensorrt_llm",
    "tensorrt": "tensorrt_llm",
    "exllamav2": "exllama",
    "exllamav3": "exllama",
    "vllmrs": "vllm_rs",
    "xinfer": "vllm_rs",
    "mistralrs": "mistral_rs",
    "vllmascend": "vllm",
    "turbomind": "lmdeploy",
}
