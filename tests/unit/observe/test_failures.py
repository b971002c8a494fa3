"""Which memory ran out: every row of the table, whole events as engines and kernels print them, and what is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.schema import EngineKind
from archonctl.memory.demand import MemoryClass
from archonctl.observe.failure_journal import command, parse
from archonctl.observe.failure_watch import FailureWatch
from archonctl.observe.failures import By, Classifier, Failure, Line, Pattern, classify, patterns

ENGINES = {"a": "vllm", "b": "llamacpp"}


def said(text: str, *, at: float = 0.0, engine: str = "vllm", endpoint: str = "a") -> Line:
    return Line(at, "engine", text, endpoint, engine)


def told(found: list[Failure]) -> list[tuple[str, str, str]]:
    return [(each.endpoint, each.cls, each.by) for each in found]


@pytest.mark.parametrize("row", patterns(), ids=lambda row: row.id)
def test_a_row_reads_its_own_example_and_no_other_row_comes_first(row: Pattern) -> None:
    assert row.by in get_args(By)
    assert row.cls in get_args(MemoryClass)
    assert row.engines <= {*get_args(EngineKind), "*"}
    assert row.source
    engine = next(iter(row.engines - {"*"}), "vllm")
    line = Line(0.0, "kernel" if row.by == "driver" else row.by, row.example, "a", engine)
    if row.context:
        found = list(classify([line, said("CUDA error: out of memory", engine=engine)]))
        assert told(found) == [("a", row.cls, "engine")]
    else:
        assert [each.row for each in classify([line])] == [row.id]


def test_the_frame_of_a_traceback_tells_the_class_of_what_follows() -> None:
    lines = [
        said("Traceback (most recent call last):"),
        said('  File "/v/gpu_model_runner.py", line 6140, in profile_run'),
        said("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB."),
    ]
    assert told(list(classify(lines))) == [("a", "activation", "engine")]


@pytest.mark.parametrize(
    ("frame", "cls"),
    [
        ('(EngineCore pid=9) ERROR 11-30 16:00:00 [core.py:842]   File "/v/w.py", line 590, in load_model', "weights"),
        ('ERROR 11-30 16:00:00 [core.py:842]   File "/v/r.py", line 6979, in initialize_kv_cache', "kv_cache"),
        ('[rank0]:   File "/v/r.py", line 6482, in capture_model', "scratchpad"),
        ("INFO Request x details: prompt: 'File \"a.py\", line 5, in load_model'", "unknown"),
    ],
)
def test_a_frame_is_read_behind_what_an_engine_puts_before_it_and_not_in_what_it_repeats(frame: str, cls: str) -> None:
    failed = "(EngineCore pid=9) ERROR 11-30 16:00:00 [core.py:842] CUDA error: out of memory"
    assert told(list(classify([said(frame), said(failed)]))) == [("a", cls, "engine")]


def test_a_frame_of_long_ago_tells_nothing() -> None:
    lines = [said('  File "/v/gpu_model_runner.py", line 6140, in profile_run'), *[said("INFO: step")] * 500]
    lines.append(said("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB."))
    assert told(list(classify(lines))) == [("a", "unknown", "engine")]


@pytest.mark.parametrize("swapped", [False, True])
def test_an_event_of_several_lines_counts_once_by_the_line_that_tells_most(*, swapped: bool) -> None:
    lines = [
        said("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", engine="llamacpp"),
        said("llama_init_from_model: failed to allocate buffer for kv cache", at=0.5, engine="llamacpp"),
        said("llama_init_from_model: failed to allocate buffer for kv cache", at=0.6, engine="llamacpp"),
    ]
    found = list(classify(reversed(lines) if swapped else lines))
    assert told(found) == [("a", "kv_cache", "engine")]


def test_two_events_are_two() -> None:
    text = "Context size has been exceeded."
    lines = [said(text, at=at, engine="llamacpp") for at in (0, 1, 30, 31)]
    assert len(list(classify(lines))) == 2
    both = [said(text, engine="llamacpp"), said(text, engine="llamacpp", endpoint="b")]
    assert {each.endpoint for each in classify(both)} == {"a", "b"}


def test_an_unknown_class_waits_for_a_better_word_and_not_for_ever() -> None:
    classifier = Classifier()
    assert classifier.take(said("CUDA error: out of memory", at=100)) == []
    assert classifier.flush(105) == []
    assert told(classifier.flush(111)) == [("a", "unknown", "engine")]
    assert classifier.flush(200) == []


def test_the_kernel_names_the_endpoint_by_its_control_group() -> None:
    group = "/system.slice/system-archon.slice/archon@b.service"
    text = (
        f"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,global_oom,task_memcg={group},task=x,pid=7,uid=0"
    )
    assert told(list(classify([Line(0, "kernel", text)]))) == [("b", "unknown", "kernel")]
    other = text.replace(group, "/user.slice")
    assert told(list(classify([Line(0, "kernel", other)]))) == [("", "unknown", "kernel")]


@pytest.mark.parametrize(
    "line",
    [
        said("Main process exited, code=killed, status=9/KILL"),
        Line(0, "systemd", "archon@a.service: Main process exited, code=exited, status=137/n/a", "a"),
        said("oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/x,task=y,pid=1"),
        said("archon@b.service: A process of this unit has been killed by the OOM killer."),
        Line(0, "kernel", "CUDA out of memory. Tried to allocate"),
        said("INFO: out of memory is what this text is about"),
        said("failed to allocate buffer for kv cache", engine="vllm"),
        said("DEBUG [request_logger.py:56] Request x details: prompt: 'CUDA out of memory. Tried to allocate 1 GiB'"),
        said(
            "[2026-11-30 16:00:00] Receive: obj=GenerateReqInput(text='std::bad_alloc, what is that?')", engine="sglang"
        ),
        said('srv  log_server_r: request: {"prompt":"unable to allocate CUDA0 buffer"}', engine="llamacpp"),
        said("INFO Request x details: prompt: '  File \"a.py\", line 5, in load_model\\nCUDA error: out of memory'"),
        Line(
            0,
            "kernel",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
            "oom_memcg=/system.slice/x.service,task_memcg=/system.slice/x.service,task=x,pid=7,uid=0",
        ),
    ],
    ids=range(12),
)
def test_what_is_no_evidence_of_it_counts_for_nothing(line: Line) -> None:
    assert list(classify([line])) == []


def entry(**more: object) -> bytes:
    value = {"MESSAGE": "x", "__REALTIME_TIMESTAMP": "1000000", "_TRANSPORT": "stdout", **more}
    return json.dumps(value).encode()


def test_an_entry_of_the_journal_becomes_a_line() -> None:
    unit = "archon@a.service"
    assert parse(entry(_SYSTEMD_UNIT=unit), ENGINES) == Line(1.0, "engine", "x", "a", "vllm")
    assert parse(entry(_TRANSPORT="kernel"), ENGINES) == Line(1.0, "kernel", "x")
    assert parse(entry(_PID="1", UNIT=unit, _SYSTEMD_UNIT="init.scope"), ENGINES) == Line(
        1.0, "systemd", "x", "a", "vllm"
    )
    started = (entry(_SYSTEMD_UNIT=unit, _SYSTEMD_INVOCATION_ID="4f"), entry(_PID="1", UNIT=unit, INVOCATION_ID="4f"))
    assert [line.invocation for raw in started if (line := parse(raw, ENGINES))] == ["4f", "4f"]
    bytes_ = parse(entry(_SYSTEMD_UNIT=unit, MESSAGE=[104, 105, 255]), ENGINES)
    assert bytes_ is not None
    assert bytes_.text == "hi\ufffd"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        entry(_SYSTEMD_UNIT="ssh.service"),
        entry(_PID="1", UNIT="ssh.service"),
        entry(_SYSTEMD_UNIT="archon@a.service", MESSAGE=None),
        entry(_SYSTEMD_UNIT="archon@a.service", MESSAGE=[1, 999]),
        entry(_SYSTEMD_UNIT="archon@a.service", __REALTIME_TIMESTAMP="soon"),
        b"[" * 100_000,
    ],
    ids=range(10),
)
def test_an_entry_of_something_else_or_a_damaged_one_is_passed_over(raw: bytes) -> None:
    assert parse(raw, ENGINES) is None


@given(st.lists(st.text(max_size=200)), st.sampled_from(["engine", "kernel", "systemd"]))
def test_no_text_breaks_the_classifier(texts: list[str], by: str) -> None:
    list(classify(Line(float(i), by, each, "a", "vllm") for i, each in enumerate(texts)))  # type: ignore[arg-type]


def test_only_what_may_tell_is_asked_of_the_journal() -> None:
    words = command("-7d", follow=True)
    assert words[-5:] == ["_SYSTEMD_SLICE=system-archon.slice", "+", "_PID=1", "+", "_TRANSPORT=kernel"]
    assert "--follow" in words


def test_a_counter_is_there_before_it_counts_and_for_nothing_that_nobody_says() -> None:
    watch = FailureWatch(lambda: {"a": "llamacpp"}, lambda _words: None)
    assert watch.samples() == {"": []}, "nobody follows the journal: how many there were is unknown"
    watch.is_up = True
    found = {
        name: [each for each in rows if each.metric.startswith("archon_memory_")]
        for name, rows in watch.samples().items()
    }
    assert {each.labels for each in found[""]} == {("", "unknown", "kernel"), ("", "unknown", "driver")}
    classes = {each.labels[1] for each in found["a"] if each.labels[2] == "engine"}
    assert classes == {"weights", "kv_cache", "ddr_cache", "offload", "activation", "unknown"}
    assert all(each.value == 0 for rows in found.values() for each in rows)
    assert {each.metric for rows in found.values() for each in rows} == {"archon_memory_failures_total"}


def test_a_journal_that_ended_is_followed_from_where_it_was_and_no_line_counts_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    watch = FailureWatch(lambda: {"a": "llamacpp"}, lambda _words: None)

    def follows(_engines: object, _begun: object, since: str) -> Iterator[Line]:
        asked.append(since)
        if len(asked) == 3:
            watch.end()
        yield said("Context size has been exceeded.", at=1000.5, engine="llamacpp")

    monkeypatch.setattr("archonctl.observe.failure_watch.follow", follows)
    monkeypatch.setattr("archonctl.observe.failure_watch.AGAIN_S", 0.0)
    watch._run()
    assert asked == ["now", "@1000.500000", "@1000.500000"]
    counts = [each.value for each in watch.samples()["a"] if each.metric == "archon_memory_failures_total"]
    assert counts == [1]
