"""Held at once or not: decided from ticks, against servers that serialise, burst, stall, and clients that lag."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.probe.hold import Tick, judge_hold


def stream(index: int, begin: float, tokens: int, step: float) -> list[Tick]:
    ticks = [Tick(begin + step * i, index, "token", i + 1) for i in range(tokens)]
    return [*ticks, Tick(begin + step * tokens, index, "finish", tokens)]


def merged(*streams: list[Tick]) -> list[Tick]:
    return sorted((tick for each in streams for tick in each), key=lambda tick: tick.at)


def test_streams_that_overlap_are_held_at_once() -> None:
    hold = judge_hold(merged(stream(0, 0.0, 100, 0.01), stream(1, 0.3, 100, 0.01)), {0: 900, 1: 900})
    assert (hold.at_once, hold.together, hold.stalled) == (2, True, ())
    assert hold.late_s is not None
    assert hold.late_s < 0
    assert hold.peak_tokens >= 900 + 100 + 900 + 69


def test_streams_one_after_the_other_are_not() -> None:
    hold = judge_hold(merged(stream(0, 0.0, 100, 0.01), stream(1, 1.5, 100, 0.01)), {0: 900, 1: 900})
    assert (hold.at_once, hold.together) == (1, False)
    assert hold.late_s is not None
    assert hold.late_s >= 0.4
    assert hold.peak_tokens == 1000


def test_a_third_that_waits_for_the_first_is_seen() -> None:
    streams = [stream(0, 0.0, 50, 0.01), stream(1, 0.1, 50, 0.01), stream(2, 0.7, 50, 0.01)]
    hold = judge_hold(merged(*streams), {0: 10, 1: 10, 2: 10})
    assert (hold.at_once, hold.together) == (2, False)


def test_a_burst_read_in_one_go_proves_nothing() -> None:
    ticks = [Tick(0.0, 0, "token", 1), Tick(0.0, 1, "token", 1)]
    ticks += [Tick(0.00001 * i, i % 2, "token", 2 + i) for i in range(50)]
    ticks += [Tick(0.001, 0, "finish", 60), Tick(0.001, 1, "finish", 60)]
    hold = judge_hold(ticks, {0: 100, 1: 100})
    assert hold.at_once == 2
    assert not hold.together


def test_a_sequence_put_aside_until_another_ends_is_stalled() -> None:
    aside = [Tick(0.5, 1, "token", 1), Tick(0.6, 1, "token", 2), *stream(1, 11.0, 50, 0.01)]
    hold = judge_hold(merged(stream(0, 0.0, 100, 0.1), aside), {0: 10, 1: 10})
    assert hold.stalled == (1,)


def test_a_pause_of_a_moment_is_no_stall() -> None:
    slow = [Tick(0.5, 1, "token", 1), *stream(1, 9.0, 50, 0.1)]
    hold = judge_hold(merged(stream(0, 0.0, 100, 0.1), slow), {0: 10, 1: 10})
    assert hold.stalled == ()


def test_one_sequence_is_its_own_proof() -> None:
    hold = judge_hold(stream(0, 0.0, 3, 0.0), {0: 10})
    assert (hold.at_once, hold.together, hold.peak_tokens) == (1, True, 13)


def test_nothing_seen_proves_nothing() -> None:
    hold = judge_hold([], {0: 10, 1: 10})
    assert (hold.at_once, hold.together, hold.peak_tokens, hold.late_s) == (0, False, 0, None)


STREAMS = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 40), st.floats(0.001, 0.2)), min_size=1, max_size=6).map(
    lambda rows: [stream(i, *row) for i, row in enumerate(rows)]
)


@settings(deadline=None)
@given(STREAMS, st.integers(1, 1000))
def test_no_claim_is_ever_more_than_was_there(streams: list[list[Tick]], prompt: int) -> None:
    prompts = dict.fromkeys(range(len(streams)), prompt)
    hold = judge_hold(merged(*streams), prompts)
    spans = [(ticks[0].at, ticks[-1].at) for ticks in streams]
    overlap = max(sum(1 for begin, end in spans if begin <= at <= end) for at, _ in spans)
    assert hold.at_once <= overlap
    assert hold.peak_tokens <= sum(prompt + ticks[-1].tokens for ticks in streams)
    if hold.together and len(streams) > 1:
        assert max(begin for begin, _ in spans) <= min(end for _, end in spans)


@settings(deadline=None)
@given(STREAMS)
def test_streams_in_a_row_are_never_together(streams: list[list[Tick]]) -> None:
    at, moved = 0.0, []
    for ticks in streams:
        shift = at - ticks[0].at
        moved.append([Tick(tick.at + shift, tick.stream, tick.kind, tick.tokens) for tick in ticks])
        at = moved[-1][-1].at + 1.0
    hold = judge_hold([tick for ticks in moved for tick in ticks], dict.fromkeys(range(len(moved)), 5))
    assert hold.at_once == 1
    assert hold.together == (len(moved) == 1)
