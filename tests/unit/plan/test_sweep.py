"""Ranges and lists of values; a plan at every point; what a declaration cannot be is a row that says so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.errors import ArchonError, DeclarationError, UsageError
from archonctl.plan.sweep import MOST_POINTS, Load, best_verdict, parse_axis, sweep


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("seqs=1..4", "seqs", "1 2 3 4"),
        ("len=8k..32k:8k", "len", "8192 16384 24576 32768"),
        ("len=1k..8k:x2", "len", "1024 2048 4096 8192"),
        ("len=1..10:4", "len", "1 5 9"),
        ("utilization=0.8..0.9:0.05", "utilization", "0.80 0.85 0.90"),
        ("utilization=0.1..0.3:0.1", "utilization", "0.1 0.2 0.3"),
        ("kv-dtype=f16,q8_0", "kv-dtype", "f16 q8_0"),
        ("engine.knobs.tp = 1, 2,4", "engine.knobs.tp", "1 2 4"),
        ("len=100_000..100_001", "len", "100000 100001"),
        ("seqs=3..3", "seqs", "3"),
        ("contract.margin=0", "contract.margin", "0"),
        ("engine.env.A=x=y", "engine.env.A", "x=y"),
    ],
)
def test_a_sweep_is_a_key_and_values(text: str, name: str, values: str) -> None:
    axis = parse_axis(text)
    assert axis.name == name
    assert [float(v) if v[0].isdigit() and "." in v else v for v in axis.values] == [
        float(v) if v[0].isdigit() and "." in v else v for v in values.split()
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "len", "=1..2", "len=", "len=1..", "len=..2", "len=4..1", "len=1..9:0", "len=1..9:-1", "len=1..9:x1"),
        *("len=a..b", "len=1,,2", "len=1..2,5", "len=0..8:x2", "len=1..inf", "len=nan..2", "len=1..9:x", "len=1..2..3"),
    ],
)
def test_what_is_no_sweep_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_axis(text)
    assert caught.value.code == "sweep-malformed"


@given(st.text(max_size=40))
def test_any_text_is_a_sweep_or_refused(text: str) -> None:
    try:
        axis = parse_axis(text)
    except UsageError:
        return
    assert axis.name
    assert 0 < len(axis.values) <= MOST_POINTS


@pytest.mark.parametrize("text", ["len=1..1000000000000", "len=1..2:0.0000001", "len=1..1e300:x1.0000001"])
def test_a_step_too_small_is_refused_before_it_is_taken(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_axis(text)
    assert caught.value.code == "sweep-too-many"


def loading(path: Path) -> tuple[list[Mapping[str, str]], Load]:
    asked: list[Mapping[str, str]] = []

    def load(more: Mapping[str, str]) -> LoadedEndpoint:
        asked.append(more)
        return load_endpoint(path, more, {})

    return asked, load


def test_every_combination_is_planned_the_last_axis_fastest(repository: Path) -> None:
    _, load = loading(repository / "env" / "archon.toml")
    points = sweep([parse_axis("seqs=2,4"), parse_axis("len=50000,200000")], load)
    assert [point.values for point in points] == [("2", "50000"), ("2", "200000"), ("4", "50000"), ("4", "200000")]
    contracts = [(point.plan.contract.seqs, point.plan.contract.len) for point in points if point.plan]
    assert contracts == [(2, 50_000), (2, 200_000), (4, 50_000), (4, 200_000)]
    assert [point.plan.verdict for point in points if point.plan] == ["holds", "holds", "holds", "short"]
    assert best_verdict(points) == "holds"


def test_a_short_name_moves_the_knobs_that_mirror_it(repository: Path) -> None:
    asked, plain = loading(repository / "env" / "archon-pair.toml")

    def load(more: Mapping[str, str]) -> LoadedEndpoint:
        return plain({"engine.knobs.max-num-seqs": "3", **more})

    points = sweep([parse_axis("seqs=2,3")], load)
    assert asked[1:] == [{"engine.knobs.max-num-seqs": n, "contract.seqs": n} for n in ("2", "3")]
    assert all(point.plan for point in points)


def test_a_value_that_cannot_be_is_a_row_and_not_the_end(repository: Path) -> None:
    _, load = loading(repository / "env" / "archon.toml")
    points = sweep([parse_axis("kv-dtype=fp8,f16,not a dtype")], load)
    assert [point.refused.code if point.refused else "" for point in points][:2] == ["", "kv-dtype-unknown"]
    assert points[2].refused is not None


def test_where_every_value_is_refused_the_mistake_is_the_answer(repository: Path) -> None:
    _, load = loading(repository / "env" / "archon.toml")
    with pytest.raises(DeclarationError) as caught:
        sweep([parse_axis("no.such.key=1,2")], load)
    assert "declaration" in caught.value.code


def test_too_many_combinations_are_refused_before_the_first(repository: Path) -> None:
    asked, load = loading(repository / "env" / "archon.toml")
    axes = [parse_axis("seqs=1..200"), parse_axis("len=1000..1999")]
    with pytest.raises(ArchonError) as caught:
        sweep(axes, load)
    assert (caught.value.code, asked) == ("sweep-too-many", [])


def test_a_sweep_with_something_free_is_the_frontier(repository: Path) -> None:
    _, load = loading(repository / "env" / "archon.toml")
    points = sweep([parse_axis("seqs=1..4")], load, ["len"])
    longest = [point.solution.answers[0].value for point in points if point.solution]
    assert longest == sorted(longest, reverse=True)  # type: ignore[type-var]
    assert len(set(longest)) == 4
