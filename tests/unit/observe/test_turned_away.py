"""Who was turned away for lack of room: every row of the table, what is none, and how they are counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from archonctl.deployment.schema import EngineKind
from archonctl.memory.demand import MemoryClass
from archonctl.observe.failure_watch import FailureWatch
from archonctl.observe.failures import Line, classify
from archonctl.observe.refusals import (
    Kind,
    LineRow,
    Reason,
    SampleRow,
    counted,
    line_rows,
    logged_kinds,
    refused,
    sample_rows,
)

TOO_LONG = "srv  send_error: task id = {}, error: request (600 tokens) exceeds the available context size (512 tokens)"


def said(text: str, *, at: float = 0.0, engine: str = "llamacpp", by: str = "engine") -> Line:
    return Line(at, by, text, "a", engine)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", line_rows(), ids=lambda row: row.id)
def test_a_row_reads_its_own_example_and_no_other_engine_says_it(row: LineRow) -> None:
    assert row.engines <= set(get_args(EngineKind))
    assert (row.kind.cls in get_args(MemoryClass), row.kind.reason in get_args(Reason)) == (True, True)
    assert row.source
    for engine in get_args(EngineKind):
        wanted = row.kind if engine in row.engines else None
        assert refused(said(row.example, engine=engine)) == wanted


@pytest.mark.parametrize("row", sample_rows(), ids=lambda row: row.engine)
def test_an_engines_own_counter_is_of_a_class_and_a_reason(row: SampleRow) -> None:
    assert row.engine in get_args(EngineKind)
    assert (row.kind.cls in get_args(MemoryClass), row.kind.reason in get_args(Reason)) == (True, True)
    assert row.source
    assert counted(row.engine, f'{row.names[0]}{{a="b"}} 3\n{row.names[0]}{{a="c"}} 1\n') == {row.kind: 4}
    assert counted(row.engine, "") == {}, "what an engine does not state is not there"


def test_no_refusal_is_both_logged_and_counted_by_an_engine() -> None:
    for row in sample_rows():
        assert row.kind not in logged_kinds(row.engine)


def test_a_queue_that_is_full_is_no_memory() -> None:
    kinds = {row.kind for row in line_rows()} | {row.kind for row in sample_rows()}
    assert {kind.cls for kind in kinds if kind.reason == "queue_full"} == {"unknown"}
    assert "unknown" not in {kind.cls for kind in kinds if kind.reason != "queue_full"}


@pytest.mark.parametrize(
    "line",
    [
        said('srv  log_server_r: request: {"prompt":"task id = 1, error: Context size has been exceeded"}'),
        said(TOO_LONG.format(1), by="systemd"),
        said(TOO_LONG.format(1), engine="vllm"),
        said("the request exceeds the available context size"),
        said('Request x: prompt: "ValueError: This model\'s maximum context length is 1 tokens"', engine="vllm"),
        said("srv  update_slots: Context size has been exceeded. off = 0, n_batch = 1, ret = 1"),
    ],
    ids=range(6),
)
def test_what_is_quoted_or_said_by_another_or_of_no_request_counts_for_nothing(line: Line) -> None:
    assert refused(line) is None


def test_a_request_that_does_not_fit_is_no_memory_that_ran_out() -> None:
    assert list(classify([said(TOO_LONG.format(1))])) == []


def test_every_request_counts_and_a_line_that_is_read_again_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = FailureWatch(lambda: {"a": "llamacpp"}, lambda _words: None)
    kind = Kind("kv_cache", "never_fits")
    rounds = iter([[said(TOO_LONG.format(1), at=5.0), said(TOO_LONG.format(2), at=5.1)]] * 2)

    def follows(_engines: object, begun: object, since: str) -> Iterator[Line]:
        lines = next(rounds)
        if since != "now":
            watch.end()
        yield from (each for each in lines if since == "now" or each.at >= float(since[1:]))

    monkeypatch.setattr("archonctl.observe.failure_watch.follow", follows)
    monkeypatch.setattr("archonctl.observe.failure_watch.AGAIN_S", 0.0)
    watch.is_up = True
    none_yet = [each for each in watch.samples()["a"] if each.metric == "archon_admission_refusals_total"]
    assert {each.value for each in none_yet} == {0}
    assert {each.labels[1:3] for each in none_yet} == {(k.cls, k.reason) for k in logged_kinds("llamacpp")}
    watch._run()
    (found,) = [each for each in watch.samples()["a"] if each.labels == ("a", kind.cls, kind.reason, "engine")]
    assert found.value == 2


def test_a_unit_that_systemd_gives_up_is_counted_from_0_and_not_by_an_engines_word() -> None:
    watch = FailureWatch(lambda: {"a": "llamacpp"}, lambda _words: None)

    def hits() -> list[float]:
        return [each.value for each in watch.samples().get("a", ()) if "start_limit" in each.metric]

    assert hits() == []
    watch.is_up = True
    assert hits() == [0]
    words = "archon@a.service: Start request repeated too quickly."
    for line in (Line(1.0, "systemd", words, "a"), Line(2.0, "engine", words, "a"), Line(3.0, "systemd", words, "a")):
        watch._take(line)
    assert hits() == [2]
