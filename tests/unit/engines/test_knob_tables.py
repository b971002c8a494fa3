"""The tables as they are shipped: every row says what it is, and takes what it says that it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from archonctl.engines.knobs import Edition, Knob, KnobTable, check_argv, edition, load_folder, load_table, table_names
from archonctl.engines.knobs.merge import merge, snapshots_of
from archonctl.engines.knobs.table import _ENGINES

MODEL = {"vllm": ["serve", "m"], "sglang": ["--model-path", "m"], "radiance": ["--model", "m"], "llamacpp": []}
HARVESTED = [engine for engine in table_names() if engine != "radiance"]


def some(table: KnobTable) -> list[str]:
    """A handful of versions: the ends and what lies between."""
    return [*table.versions[:: max(1, len(table.versions) // 4)], table.newest]


@pytest.mark.parametrize("engine", table_names())
def test_every_row_names_its_source_and_stays_within_what_was_read(engine: str) -> None:
    table = load_table(engine)
    assert list(table.read) == sorted(set(table.read))
    for knob in table.knobs:
        assert knob.effect, knob.flag
        assert len(knob.source) > 4, knob.flag
        assert knob.names or knob.negatives or knob.env_key, knob.flag
        assert all(name.startswith("-") for name in (*knob.names, *knob.negatives)), knob.flag
        since = table.key(knob.since) if knob.since else table.read[0]
        assert since <= table.read[-1], knob.flag
        assert not knob.since or not knob.removed or since < table.key(knob.removed), knob.flag
        assert not knob.removed or table.key(knob.removed) <= table.read[-1], knob.flag
        assert all(not version or table.key(version) in table.read for version in knob.defaults), knob.flag


@pytest.mark.parametrize("engine", table_names())
def test_no_version_has_two_meanings_for_one_name(engine: str) -> None:
    table = load_table(engine)
    for version, key in zip(table.versions, table.read, strict=True):
        taken: dict[str, str] = {}
        for knob, span in zip(table.knobs, table.spans, strict=True):
            if span.holds(key):
                for name in {*knob.names, *knob.negatives}:
                    assert name not in taken, f"{version} {name}: {taken[name]} and {knob.flag}"
                    taken[name] = knob.flag


@pytest.mark.parametrize("engine", table_names())
def test_hand_kept_rows_speak_of_flags_that_the_table_knows(engine: str) -> None:
    table = load_table(engine)
    flags = {knob.flag for knob in table.knobs}
    assert {flag for row in table.managed for flag in row.flags} <= flags
    assert {row.flag for row in table.deprecated} <= flags
    for row in table.retired:
        assert row.names or row.env_keys
        assert len(row.effect) > 8
        assert len(row.source) > 8
        known = any(True for name in (*row.names, *row.env_keys) for _ in table.forms(name))
        assert known or row.removed, f"{row.names}: neither a form nor a version"


@pytest.mark.parametrize("engine", table_names())
def test_what_replaces_a_flag_is_there_in_the_newest_version(engine: str) -> None:
    table = load_table(engine)
    now = edition(table, table.newest)
    for knob in table.knobs:
        if knob.renamed_to and knob.removed == table.newest:
            assert now.find(knob.renamed_to), f"{knob.flag} -> {knob.renamed_to}"


@pytest.mark.parametrize("engine", HARVESTED)
def test_a_harvested_table_is_what_its_own_lists_merge_to(engine: str) -> None:
    table = load_folder(_ENGINES / engine, amended=False)
    assert [_form(knob) for knob in merge(snapshots_of(table))] == [_form(knob) for knob in table.knobs]


def _form(knob: Knob) -> tuple[object, ...]:
    return (knob.flag, knob.names, knob.negatives, knob.type, knob.choices, knob.since, knob.removed, knob.default)


OTHER_HALF = {
    "--enable-auto-tool-choice": ("--tool-call-parser", "hermes"),
    "--enable-reasoning": ("--reasoning-parser", "deepseek_r1"),
    "--enable-log-outputs": ("--enable-log-requests",),
}
"""What vLLM wants beside an option."""


@pytest.mark.parametrize("engine", table_names())
def test_a_command_line_of_the_tables_own_rows_is_good(engine: str) -> None:
    table = load_table(engine)
    for version in some(table):
        now = edition(table, version)
        for knob in now.knobs:
            for name in (*knob.names, *knob.negatives):
                for values in _values(now, knob):
                    if name.lstrip("-") in ("model", "model-path"):
                        argv = [*MODEL[engine][:-2], name, "m"] if engine != "vllm" else ["serve", "m"]
                    else:
                        argv = [*MODEL[engine], name, *values, *OTHER_HALF.get(name, ())]
                    found = check_argv(engine, version, argv)
                    wrong = [one for one in found if one.severity == "error"]
                    assert not wrong, f"{version} {argv}: {wrong}"


def _values(now: Edition, knob: Knob) -> Iterator[list[str]]:
    """Values that a row says it takes."""
    if knob.takes == 0:
        yield []
        return
    count = knob.takes if isinstance(knob.takes, int) else 1
    if knob.flag == "reasoning-parser" and not knob.choices:  # looked up behind the parser
        yield ["deepseek_r1"]
        return
    yield from ([word] * count for word in (*knob.choices, *knob.words) if not word.startswith("-"))
    if knob.choices or knob.type in ("bool", "switch"):
        yield from ([] if knob.choices else [["true"]])
        return
    number = next((n for n in (knob.min, knob.max, 1) if n is not None), 1)
    inner = (knob.above + knob.below) / 2 if knob.above is not None and knob.below is not None else None
    plain = inner if inner is not None else knob.max if knob.above is not None and knob.max is not None else number
    yield [
        {"int": str(int(plain)), "size": str(int(plain)), "float": str(plain), "json": json.dumps({"a": 1})}.get(
            knob.type, "x"
        )
    ] * count
