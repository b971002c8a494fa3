"""From the lists of many versions to one table, and back."""

from __future__ import annotations

import json
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.engines.knobs import KnobTable, edition, load_folder
from archonctl.engines.knobs.history import default_at, difference, life
from archonctl.engines.knobs.merge import as_toml, first_sentence, merge, snapshots_of
from archonctl.engines.knobs.snapshot import Seen, Snapshot, as_line, read_snapshots
from archonctl.engines.knobs.table import Span
from archonctl.engines.knobs.versions import version_key
from archonctl.errors import UsageError


def snapshot(version: str, *knobs: dict[str, Any], engine: str = "vllm") -> Snapshot:
    line = {"engine": engine, "version": version, "source": f"list of {version}", "knobs": knobs}
    return read_snapshots([json.dumps(line)], "x")[0]


SEQS = {"names": ["--max-num-seqs"], "type": "int", "help": "Most sequences. And more text."}
OLD = snapshot("0.6.0", {**SEQS, "default": 256}, {"names": ["--swap-space"], "type": "float", "default": 4})
MID = snapshot("0.9.0", {**SEQS, "default": 256}, {"names": ["--cache", "-c"], "choices": ["auto", "fp8"]})
NEW = snapshot(
    "0.10.0",
    {"names": ["--cache", "-c"], "choices": ["auto", "fp8", "int4"], "deprecated": "use --kv"},
    {**SEQS, "default": 1024},
    {"env": "VLLM_USE_V1", "default": "1"},
)


def table(tmp_path: Path, *snapshots: Snapshot, rules: str = "") -> KnobTable:
    (tmp_path / "knobs.toml").write_text(as_toml(snapshots, "a table"), encoding="utf-8")
    if rules:
        (tmp_path / "rules.toml").write_text(rules, encoding="utf-8")
    return load_folder(tmp_path)


def test_forms_begin_and_end_where_a_list_differs(tmp_path: Path) -> None:
    found = table(tmp_path, NEW, OLD, MID)
    rows = {(knob.flag, knob.since, knob.removed) for knob in found.knobs}
    assert rows == {
        ("max-num-seqs", "", ""),
        ("swap-space", "", "0.9.0"),
        ("cache", "0.9.0", "0.10.0"),
        ("cache", "0.10.0", ""),
        ("VLLM_USE_V1", "0.10.0", ""),
    }
    assert found.versions == ("0.6.0", "0.9.0", "0.10.0")
    assert found.sources["0.9.0"] == "list of 0.9.0"


def test_the_order_is_that_of_the_newest_list_with_the_dead_at_the_end() -> None:
    assert [knob.flag for knob in merge([OLD, MID, NEW])] == [
        *("cache", "cache", "max-num-seqs", "VLLM_USE_V1", "swap-space"),
    ]


def test_a_default_that_changed_is_kept_by_version(tmp_path: Path) -> None:
    found = table(tmp_path, OLD, MID, NEW)
    seqs = next(knob for knob in found.knobs if knob.flag == "max-num-seqs")
    assert seqs.defaults == {"": "256", "0.10.0": "1024"}
    assert [default_at(found, seqs, version) for version in ("0.6.0", "0.9.5", "0.10.0", "0.11.0")] == [
        *("256", "256", "1024", "1024"),
    ]
    assert seqs.effect == "Most sequences"


def test_merging_is_deterministic_and_the_table_gives_its_lists_back(tmp_path: Path) -> None:
    assert as_toml([OLD, MID, NEW], "h") == as_toml([NEW, MID, OLD], "h")
    found = table(tmp_path, OLD, MID, NEW)
    assert merge(snapshots_of(found)) == merge([OLD, MID, NEW])
    later = snapshot("0.11.0", SEQS)
    assert merge([*snapshots_of(found), later]) == merge([OLD, MID, NEW, later])


def test_a_flag_whose_variable_lives_on_was_renamed() -> None:
    one = snapshot("b1", {"names": ["--webui"], "type": "bool", "env": "LLAMA_ARG_UI"}, engine="llamacpp")
    two = snapshot("b2", {"names": ["--ui"], "type": "bool", "env": "LLAMA_ARG_UI"}, engine="llamacpp")
    rows = merge([one, two])
    assert [(row.flag, row.removed, row.renamed_to) for row in rows] == [("ui", "", ""), ("webui", "b2", "ui")]


def test_a_version_between_two_lists_that_differ_is_uncertain(tmp_path: Path) -> None:
    found = table(tmp_path, OLD, MID, NEW)
    between = edition(found, "0.7.0")
    assert between.standing == "between"
    assert not between.options["--swap-space"].certain
    assert not between.options["--cache"].certain
    assert between.options["--max-num-seqs"].certain
    assert [edition(found, version).standing for version in ("0.5", "0.9.0", "0.9", "0.11")] == [
        *("older", "read", "read", "newer"),
    ]


def test_what_is_known_better_than_from_the_lists_narrows_the_gap() -> None:
    key = [version_key("vllm", text) for text in ("0.6.0", "0.7.0", "0.8.0", "0.9.0")]
    span = Span(None, key[0], key[1], key[3])
    assert [span.holds(one) for one in key] == [True, True, None, False]
    assert Span(None, key[1], key[1], key[0]).holds(key[1]) is False


def test_hand_kept_rules_are_laid_over_the_rows(tmp_path: Path) -> None:
    rules = (
        '[[amend]]\nflag = "max-num-seqs"\nmin = 1\nsource = "s"\n'
        '[[retired]]\nnames = ["--swap-space"]\nreplaced_by = "cache"\neffect = "gone"\nsource = "s"\n'
    )
    found = table(tmp_path, OLD, MID, NEW, rules=rules)
    assert next(knob for knob in found.knobs if knob.flag == "max-num-seqs").min == 1
    assert load_folder(tmp_path, amended=False).knobs[2].min is None
    moved = difference(found, "0.6.0", "0.10.0").renamed
    assert [(one.knob.flag, one.to) for one in moved] == [("swap-space", "cache")]


def test_a_difference_tells_what_was_added_removed_and_changed(tmp_path: Path) -> None:
    found = table(tmp_path, OLD, MID, NEW)
    diff = difference(found, "0.6.0", "0.10.0")
    assert [knob.flag for knob in diff.added] == ["cache", "VLLM_USE_V1"]
    assert [moved.knob.flag for moved in diff.removed] == ["swap-space"]
    assert [(one.flag, [(c.what, c.before, c.after) for c in one.changes]) for one in diff.altered] == [
        ("max-num-seqs", [("default", "256", "1024")])
    ]
    choices = next(one for one in difference(found, "0.9.0", "0.10.0").altered if one.flag == "cache").changes[0]
    assert (choices.what, choices.before, choices.after) == ("choices", "", "int4")
    assert difference(found, "0.10.0", "0.10.0").empty


def test_a_life_has_every_form(tmp_path: Path) -> None:
    found = table(tmp_path, OLD, MID, NEW)
    assert [knob.since for knob in life(found, "cache").forms] == ["0.9.0", "0.10.0"]
    assert life(found, "VLLM_USE_V1").known
    assert not life(found, "").known
    assert not life(found, "nothing").known


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"engine":"vllm"}', "version"),
        ('{"engine":"vllm","version":"1","source":"s","knobs":[{"nam":["--a"]}]}', "nam"),
        ('{"engine":"vllm","version":"1","source":"s","knobs":[{"names":["--a"],"type":"number"}]}', "type"),
    ],
)
def test_a_line_that_is_no_snapshot_is_named(line: str, told: str) -> None:
    with pytest.raises(UsageError, match=told) as refused:
        read_snapshots(["", line], "lists.jsonl")
    assert refused.value.code == "snapshot-invalid"
    assert refused.value.where == "lists.jsonl:2"


@pytest.mark.parametrize(
    ("snapshots", "told"),
    [
        ([], "no snapshot"),
        ([OLD, OLD], "twice"),
        ([OLD, snapshot("b1", SEQS, engine="llamacpp")], "several engines"),
        ([snapshot("1", SEQS, SEQS)], "twice"),
        ([snapshot("1", {"names": ["x"]})], "dash"),
        ([snapshot("1", {"type": "int"})], "neither"),
    ],
)
def test_snapshots_that_contradict_each_other_are_refused(snapshots: list[Snapshot], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        merge(snapshots)


@pytest.mark.parametrize(
    ("engine", "text", "same"),
    [
        ("llamacpp", "b11434", "11434"),
        ("vllm", "v0.9.2", "0.9.2"),
        ("vllm", "0.32.0+cpu", "0.32.0"),
        ("sglang", "v0.4.6.post1-cu124", "0.4.6.post1"),
        ("radiance", "1.8.1-rc.2", "1.8.1-rc.2"),
    ],
)
def test_a_version_has_many_spellings(engine: str, text: str, same: str) -> None:
    assert version_key(engine, text) == version_key(engine, same)


@pytest.mark.parametrize(
    ("engine", "text", "code"),
    [
        ("llamacpp", "latest", "engine-version-invalid"),
        ("llamacpp", "0.9.2", "engine-version-invalid"),
        ("vllm", "latest", "engine-version-invalid"),
        ("vllm", " ", "engine-version-missing"),
    ],
)
def test_what_is_no_version_is_a_usage_error(engine: str, text: str, code: str) -> None:
    with pytest.raises(UsageError) as refused:
        version_key(engine, text)
    assert refused.value.code == code


@given(st.text(max_size=20), st.sampled_from(["llamacpp", "vllm", "sglang", "radiance"]))
def test_any_text_is_a_version_or_an_error_in_words(text: str, engine: str) -> None:
    with suppress(UsageError):
        assert version_key(engine, text) == version_key(engine, text)


_NAMES = st.lists(st.sampled_from(["--a", "--b", "--c-d", "-e", "--no-a", "--f"]), min_size=1, max_size=3, unique=True)
_CELL = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))
_SEEN = st.builds(
    Seen,
    names=_NAMES.map(tuple),
    type=st.sampled_from(["int", "str", "bool", "json"]),
    choices=st.one_of(st.none(), st.lists(st.text(max_size=4), max_size=3, unique=True).map(tuple)),
    default=_CELL,
    help=st.text(max_size=30),
    deprecated=st.one_of(st.none(), st.just(True), st.text(max_size=10)),
)


@settings(max_examples=40)
@given(st.lists(st.lists(_SEEN, max_size=4), min_size=1, max_size=4))
def test_any_lists_make_a_table_that_reads_back(lists: list[list[Seen]]) -> None:
    found = [Snapshot("vllm", f"0.{at}", "s", _distinct(seen)) for at, seen in enumerate(lists)]
    rows = tomllib.loads(as_toml(found, "h")).get("knob", [])
    assert len(rows) == len(merge(found))
    assert merge(read_snapshots(map(as_line, found), "x")) == merge(found)


def _distinct(seen: list[Seen]) -> tuple[Seen, ...]:
    taken, kept = set[str](), []
    for one in seen:
        if not taken & {*one.names}:
            taken |= {*one.names}
            kept.append(one)
    return tuple(kept)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("", ""),
        ("One thing. Another.", "One thing. Another"),
        ("A sentence that is long. And one more", "A sentence that is long"),
        ("Size of X, e.g. 4. Then (default: 3)", "Size of X, e.g. 4. Then"),
        ("word " * 40, "word " * 18 + "word..."),
    ],
)
def test_a_help_text_is_cut_to_a_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first
