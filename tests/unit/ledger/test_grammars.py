"""Every row of every grammar reads its own example, and says where it comes from."""

from __future__ import annotations

import re

import pytest

from archonctl.engines.sighting import FigureRule
from archonctl.errors import DeclarationError, UsageError
from archonctl.ledger.clean import clean
from archonctl.ledger.essentials import ESSENTIALS
from archonctl.ledger.grammar import ENGINES, Grammar, Row, all_grammars, common_grammar, grammar, kind_of, shorts
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.sieve import Sieve

GRAMMARS = [*all_grammars(), common_grammar()]
ROWS = [(g, row) for g in GRAMMARS for row in g.rows if g.engine == "unknown" or row not in common_grammar().rows]
OWN_ROWS = [(g, row) for g, row in ROWS if g.engine != "unknown"]
IDS = [f"{g.engine}-{row.id}" for g, row in ROWS]
SEVERITIES = {"refusal", "warning", "info"}
UNITS = {"", "tokens", "B", "KiB", "MiB", "GiB", "s"}


@pytest.mark.parametrize(("found", "row"), ROWS, ids=IDS)
def test_a_row_reads_its_own_example(found: Grammar, row: Row) -> None:
    match = row.regex.match(clean(row.example).text)
    assert match, f"{row.pattern} does not match {row.example}"
    assert row.literal in row.example
    sighting = found.read(row, match, "", 1, row.example)
    assert sighting is not None
    read: dict[str, float | str] = {name: find.value.best for name, find in sighting.figures.items()}
    read |= sighting.facts
    assert read == pytest.approx(dict(row.yields)) if _numbers(row) else read == dict(row.yields)


def _numbers(row: Row) -> bool:
    return bool(row.yields) and all(not isinstance(value, str) for value in row.yields.values())


@pytest.mark.parametrize(("found", "row"), OWN_ROWS, ids=lambda part: getattr(part, "id", ""))
def test_the_whole_reader_takes_the_example_too(found: Grammar, row: Row) -> None:
    line = f"{row.levels or 'I'} {row.example}" if row.levels else row.example
    reader = LedgerReader(found.engine)
    if row.effect == "stop":
        return  # says something of what follows it alone
    if reader.feed(line) is None:  # a message that may go on is held until it is clear that it does not
        ledger = reader.result()
        assert ledger.figures or ledger.remarks


@pytest.mark.parametrize(("found", "row"), ROWS, ids=IDS)
def test_a_row_has_a_source_and_sound_words(found: Grammar, row: Row) -> None:
    assert row.source
    assert row.effect in {"figures", "boot", "ready", "remark", "stop"}
    assert bool(row.code) == bool(row.severity)
    assert not row.severity or row.severity in SEVERITIES
    assert row.effect != "remark" or row.code
    assert re.fullmatch(r"[a-z0-9-]+", row.id)


@pytest.mark.parametrize(("found", "row"), ROWS, ids=IDS)
def test_the_cheap_tests_let_the_example_through(found: Grammar, row: Row) -> None:
    coarse = row.marker or row.literal
    assert coarse in row.example
    assert not re.search(r"\d", coarse + row.literal), "the first test is blind to digits"
    assert Sieve([(coarse, row.literal)], shorts()).wants(row.example.encode())


@pytest.mark.parametrize("found", GRAMMARS, ids=lambda g: g.engine)
def test_every_group_of_a_unit_belongs_to_a_figure(found: Grammar) -> None:
    for row in found.rows:
        for group in row.regex.groupindex:
            if group.endswith("_unit"):
                assert group.removesuffix("_unit").partition("__")[0] in found.rules


@pytest.mark.parametrize("found", GRAMMARS, ids=lambda g: g.engine)
def test_figures_have_a_unit_a_rule_and_a_description(found: Grammar) -> None:
    for rule in found.rules.values():
        assert isinstance(rule, FigureRule)
        assert rule.about
        assert rule.unit in UNITS
        assert {rule.rule, rule.ranks} <= {"first", "last", "min", "max", "sum"}


@pytest.mark.parametrize("found", GRAMMARS, ids=lambda g: g.engine)
def test_the_names_a_grammar_refers_to_exist(found: Grammar) -> None:
    ids = [row.id for row in found.rows]
    assert len(ids) == len(set(ids)) or found.engine == "ollama"
    assert set(found.healthy) <= set(found.rules)
    assert found.core <= set(ids)
    assert set(found.essentials) <= set(ESSENTIALS)
    assert {part for each in found.essentials.values() for figure in each for part in figure.split(" + ")} <= {
        *found.rules
    }


def test_few_markers_do_for_all_engines_together() -> None:
    reader = LedgerReader()
    assert len(reader._sieve.groups) <= 36
    reader.feed_block(b"noise\n" * 3_000_000)
    assert len(reader._sieve.groups) <= 8, "far into a log only capacity is looked for"


def test_an_unknown_engine_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="engine-unknown"):
        LedgerReader("nonsense")
    with pytest.raises(DeclarationError):
        grammar("nonsense")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("llama.cpp", "llamacpp"),
        ("llamacpp", "llamacpp"),
        ("TensorRT-LLM", "tensorrt_llm"),
        ("tensorrt-llm", "tensorrt_llm"),
        ("vLLM", "vllm"),
        ("vllm.rs (xinfer)", "vllm_rs"),
        ("mistral.rs", "mistral_rs"),
        ("exllamav3", "exllama"),
        ("ik_llama.cpp", "llamacpp"),
        ("", ""),
        ("gpt4all", ""),
    ],
)
def test_engines_are_known_by_the_names_people_use(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_every_engine_with_a_grammar_is_listed_once() -> None:
    assert len(set(ENGINES)) == len(ENGINES)
    assert {g.engine for g in all_grammars()} == set(ENGINES)
