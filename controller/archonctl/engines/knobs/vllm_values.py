"""What vLLM refuses behind its argument parser: stale keys and words, parsers by name, options that need another one.

``engines/vllm/values.toml`` holds what each release knows.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

from packaging.version import Version
from pydantic import ConfigDict, TypeAdapter

from archonctl.engines.knobs.reading import Misread, python
from archonctl.engines.knobs.row import Knob
from archonctl.engines.knobs.verdict import ArgvFinding, Judge
from archonctl.engines.knobs.versions import version_key

_FILE = Path(__file__).parent.parent / "vllm" / "values.toml"
_PLUGINS = {"tool-call-parser": "tool-parser-plugin", "reasoning-parser": "reasoning-parser-plugin"}
_SWITCHES = {"tool-call-parser": "enable-auto-tool-choice", "reasoning-parser": "enable-reasoning"}
"""A parser's name is looked up only where its switch is on, if the release has one."""
_KEY_VALUE_UNTIL = version_key("vllm", "0.10.0")
_KEY_VALUE = frozenset({"limit-mm-per-prompt"})
"""Up to there a JSON option of the configuration takes ``image=2,video=1`` too (``nullable_kvs``)."""


@dataclass(frozen=True, slots=True)
class Value:
    """A key or word of an option, from ``since`` on and before ``removed``."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    option: str
    name: str
    source: str
    since: str = ""
    removed: str = ""
    replaced_by: str = ""

    def gone(self, key: Version) -> bool:
        """True at a version that has it no more."""
        return bool(self.removed) and version_key("vllm", self.removed) <= key

    def there(self, key: Version) -> bool:
        """True at a version that has it."""
        return not self.gone(key) and (not self.since or version_key("vllm", self.since) <= key)


@dataclass(frozen=True, slots=True)
class Needs:
    """An option that is refused without the ``other``."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    option: str
    other: str
    source: str


@dataclass(frozen=True, slots=True)
class Values:
    """``values.toml``."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    key: tuple[Value, ...]
    word: tuple[Value, ...]
    parser: tuple[Value, ...]
    needs: tuple[Needs, ...]


@cache
def values() -> Values:
    """The file, read once. Raises pydantic.ValidationError for a row that is none: a fault of ours."""
    return TypeAdapter(Values).validate_python(tomllib.loads(_FILE.read_text(encoding="utf-8")))


def misread_at(key: Version) -> Misread:
    """argparse of Python, and what the release that ``key`` names no more knows of a value that has its form."""

    def misread(knob: Knob, text: str) -> str:
        if knob.flag in _KEY_VALUE and key < _KEY_VALUE_UNTIL and _is_key_value(text):
            return ""
        if reason := python(knob, text):
            return reason
        if knob.type == "json" or text.startswith("{"):
            return next(_stale_keys(knob.flag, text, key), "")
        if knob.flag == "quantization":
            row = next((row for row in values().word if row.name == text and row.gone(key)), None)
            return _went(row) if row is not None else ""
        return ""

    return misread


def _is_key_value(text: str) -> bool:
    pairs = [part.partition("=") for part in text.split(",")]
    return all(name.strip() and value.strip().isdigit() for name, _, value in pairs)


def _stale_keys(flag: str, text: str, key: Version) -> Iterator[str]:
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return
    for row in values().key:
        option, _, inner = row.option.partition(".")
        if option == flag and row.gone(key):
            place = whole.get(inner) if inner and isinstance(whole, Mapping) else whole
            if isinstance(place, Mapping) and row.name in place:
                yield _went(row)


def _went(row: Value) -> str:
    return f"{row.name} is gone since {row.removed}{f', use {row.replaced_by}' if row.replaced_by else ''}"


def check(judge: Judge) -> None:
    """Names of parsers, and options that need another one."""
    if judge.seen.keys() & {"config", "help"} or any(kind == "words" for kind in judge.open_words.values()):
        return
    for need in values().needs:
        if _on(judge, need.option) and need.other not in judge.seen:
            message = f"{judge.engine} refuses --{need.option} without --{need.other}"
            fix = f"add --{need.other}, or take --{need.option} out"
            finding = ArgvFinding("knob-needs-another", "error", message, fix, judge.seen[need.option])
            judge.add(finding, certain=judge.read)
    for option, plugin in _PLUGINS.items():
        if option in judge.seen and plugin not in judge.seen:
            _named(judge, option)


def _on(judge: Judge, flag: str) -> bool:
    """True if an option is given, in a form that turns it on."""
    if flag not in judge.seen:
        return False
    found = judge.edition.options.get(judge.argv[judge.seen[flag]].partition("=")[0].replace("_", "-"))
    return found is None or found.positive


def _named(judge: Judge, option: str) -> None:
    """A parser that nobody registered ends the start, where it is looked up."""
    switch, at = _SWITCHES[option], judge.seen[option]
    found = judge.edition.options.get(f"--{option}")
    if found is None or found.knob.choices or (f"--{switch}" in judge.edition.options and not _on(judge, switch)):
        return
    text, index = _value(judge, at)
    key = judge.edition.table.key(judge.edition.version)
    rows: list[Value] = [row for row in values().parser if row.option == option]
    known = [row.name for row in rows if row.there(key)]
    if not known or not text or text in known or judge.is_open(index) or text == "none":
        return
    row = next((row for row in rows if row.name == text), None)
    why = "it has no such parser" if row is None else _went(row) if row.gone(key) else f"it came with {row.since}"
    judge.bad_value(index, f"--{option}", found, text, f"{why}; {judge.engine} knows {', '.join(sorted(known))}")


def _value(judge: Judge, at: int) -> tuple[str, int]:
    _, equals, text = judge.argv[at].partition("=")
    if equals:
        return text, at
    return (judge.argv[at + 1], at + 1) if at + 1 < len(judge.argv) else ("", at)
