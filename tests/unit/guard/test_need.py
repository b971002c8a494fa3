"""The law of one request: what it takes at most, and whether it can ever fit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from archonctl.guard.need import largest_answer, need_of, too_long
from archonctl.guard.values import Ask, Capacity

ARCHON = Capacity(window_tokens=200_000, pool_tokens=556_348, slots=3, page_tokens=4)
"""The first boot of 1.8.1 on the archon host: a pool of 2.8 conversations."""


def ask(*prompts: int, answer: int | None = 1, n: int = 1) -> Ask:
    return Ask("client", prompts, True, answer, n)


def test_tokens_are_reserved_in_whole_pages() -> None:
    assert need_of(ask(9, answer=4), ARCHON).tokens == 16
    assert need_of(ask(8, answer=4), ARCHON).tokens == 12


def test_answers_at_once_share_the_whole_pages_of_their_prompt() -> None:
    # 10 tokens are 2 whole pages and a half; each of 3 answers has the half page and 6 more tokens: 2 pages
    assert need_of(ask(10, answer=6, n=3), ARCHON) == need_of(ask(10, answer=6, n=3), ARCHON)
    assert need_of(ask(10, answer=6, n=3), ARCHON).tokens == 8 + 3 * 8


def test_an_answer_that_nobody_bounds_takes_what_is_left_of_the_declared_conversation() -> None:
    wide = Capacity(window_tokens=600_000, pool_tokens=600_000, sequence_tokens=200_000)
    assert need_of(ask(1_000, answer=None), wide).tokens == 200_000
    assert need_of(ask(300_000, answer=None), wide).tokens == 600_000, "already longer than declared: up to the window"
    assert need_of(ask(1_000, answer=None), Capacity(window_tokens=8_192, answer_tokens=512)).tokens == 1_512
    assert need_of(ask(1_000, answer=None), Capacity(slots=2)).tokens == 1_000, "nothing is known: nothing is invented"


def test_a_request_over_the_window_is_told_the_largest_answer_that_fits() -> None:
    found = too_long(ask(190_000, answer=10_001), ARCHON)
    assert found is not None
    assert (found.limit, found.want_tokens, found.budget_tokens, found.largest_max_tokens) == (
        "window",
        200_001,
        200_000,
        10_000,
    )
    assert too_long(ask(190_000, answer=10_000), ARCHON) is None
    alone = too_long(ask(200_000, answer=None), ARCHON)
    assert alone is not None
    assert alone.largest_max_tokens is None


def test_a_pool_smaller_than_the_window_bounds_a_conversation() -> None:
    small = Capacity(window_tokens=200_000, pool_tokens=150_003, page_tokens=4)
    found = too_long(ask(140_000, answer=20_000), small)
    assert found is not None
    assert (found.limit, found.budget_tokens, found.largest_max_tokens) == ("pool", 150_000, 10_000)


def test_several_prompts_must_be_held_at_once_only_where_the_engine_makes_none_wait() -> None:
    many = ask(200_000 - 1, 200_000 - 1, 200_000 - 1)
    found = too_long(many, ARCHON)
    assert found is not None
    assert found.limit == "pool"
    queueing = Capacity(window_tokens=200_000, pool_tokens=556_348, slots=3, queues=True)
    assert too_long(many, queueing) is None
    assert need_of(many, queueing).tokens == 556_348, "it has the pool for itself"


def test_more_sequences_than_slots_wait_inside_the_engine() -> None:
    need = need_of(ask(100, 200, 300, 400, answer=0), Capacity(pool_tokens=10_000, slots=2))
    assert (need.tokens, need.slots) == (700, 2)


def test_a_window_that_slides_is_all_that_an_answer_takes() -> None:
    slides = Capacity(window_tokens=4_096, pool_tokens=8_192, slides=True)
    assert too_long(ask(4_000, answer=1_000_000), slides) is None
    assert need_of(ask(4_000, answer=1_000_000), slides).tokens == 4_096
    assert too_long(ask(4_096, answer=10), slides) is not None, "the prompt itself must fit"


def test_an_embedding_needs_no_room_for_an_answer() -> None:
    assert too_long(ask(512, answer=0), Capacity(window_tokens=512)) is None
    assert too_long(ask(512, answer=1), Capacity(window_tokens=512)) is not None


def test_what_is_unknown_refuses_nothing() -> None:
    huge = ask(1 << 50, answer=1 << 50, n=1_000)
    assert too_long(huge, Capacity()) is None
    assert too_long(huge, Capacity(slots=4)) is None


_SMALL = st.integers(0, 300)
capacities = st.builds(
    Capacity,
    window_tokens=st.none() | st.integers(1, 200),
    pool_tokens=st.none() | st.integers(8, 400),
    slots=st.none() | st.integers(1, 4),
    page_tokens=st.sampled_from([1, 4, 16]),
    queues=st.booleans(),
)
"""Of windows that do not slide: there the longest answer has no bound."""


@given(st.lists(_SMALL, min_size=1, max_size=4), _SMALL | st.none(), st.integers(1, 4), capacities)
def test_the_largest_answer_fits_and_one_token_more_does_not(
    prompts: list[int], answer: int | None, n: int, capacity: Capacity
) -> None:
    asked = ask(*prompts, answer=answer, n=n)
    if too_long(asked, capacity) is None:
        return
    largest = largest_answer(asked, capacity)
    more = (largest or 0) + 1
    assert too_long(ask(*prompts, answer=more, n=n), capacity) is not None
    if largest is not None:
        assert too_long(ask(*prompts, answer=largest, n=n), capacity) is None


@given(st.lists(_SMALL, min_size=1, max_size=4), _SMALL, st.integers(1, 4), capacities)
def test_a_need_covers_every_sequence_that_runs_and_grows_with_the_answer(
    prompts: list[int], answer: int, n: int, capacity: Capacity
) -> None:
    need = need_of(ask(*prompts, answer=answer, n=n), capacity)
    assert need.tokens % capacity.page_tokens == 0 or capacity.queues
    assert need.tokens <= need_of(ask(*prompts, answer=answer + 1, n=n), capacity).tokens
    if not capacity.queues and capacity.slots is None:
        assert need.tokens >= sum(prompts) + n * len(prompts) * answer
