"""Who goes in, who waits, who is refused; and that nothing is held that nobody uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import generate_latest

from archonctl.guard.admission import Admission, Bounds, Ticket
from archonctl.guard.values import Ask, Capacity, Counts, Refused

ARCHON = Capacity(window_tokens=200_000, pool_tokens=556_348, slots=4, page_tokens=4)
FULL = Ask("", (190_000,), True, 10_000)


def full(client: str) -> Ask:
    return replace(FULL, client=client)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def turns(count: int = 5) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def refusal_of(coming: Awaitable[Ticket]) -> Any:
    with pytest.raises(Refused) as caught:
        await coming
    return caught.value.refusal


def sample(admission: Admission, line: str) -> float:
    text = generate_latest(admission.metrics.registry).decode()
    return float(next(each.rpartition(" ")[2] for each in text.splitlines() if each.startswith(line)))


@pytest.mark.parametrize("page_tokens", [1, 4, 16])
@pytest.mark.parametrize("prompt", [1, 149_997, 199_999])
def test_a_pool_that_holds_exactly_three_takes_three_of_exactly_the_window(page_tokens: int, prompt: int) -> None:
    async def count() -> Counts:
        return (prompt,)

    async def test() -> None:
        door = Admission(Capacity(200_000, 600_000, 4, page_tokens, sequence_tokens=200_000))
        await door.admit(Ask("a", (3 * prompt,), False, 200_000 - prompt, count=count), wait_s=0)
        for _ in range(2):
            await door.admit(Ask("b", (prompt,), True, 200_000 - prompt), wait_s=0)
        assert (await refusal_of(door.admit(Ask("c", (1,), True, 1), wait_s=0))).code == "pool-busy"
        over = await refusal_of(door.admit(Ask("c", (prompt,), True, 200_001 - prompt), wait_s=0))
        assert (over.status, over.largest_max_tokens) == (400, 200_000 - prompt)

    run(test)


def test_three_conversations_of_a_pool_that_holds_two_point_eight_the_third_waits() -> None:
    async def test() -> None:
        door = Admission(ARCHON)
        first, second = await door.admit(full("a"), wait_s=0), await door.admit(full("b"), wait_s=0)
        third = asyncio.create_task(door.admit(full("c"), wait_s=60))
        await turns()
        assert not third.done()
        assert door.snapshot().waiting == 1
        assert sample(door, "archon_guard_plan_margin_tokens") == 556_348 - 3 * 200_000
        second.release()
        await turns()
        assert (await third).known
        assert sample(door, "archon_guard_held_high_water_tokens") == 400_000
        first.release()
        (await third).release()
        assert door.snapshot().held_tokens == 0

    run(test)


def test_what_waits_too_long_is_told_who_holds_what_and_when_to_come_again() -> None:
    async def test() -> None:
        now = [0.0]
        door = Admission(ARCHON, clock=lambda: now[0])
        past = await door.admit(full("a"), wait_s=0)
        now[0] = 100.0
        past.release()
        for client in "ab":
            await door.admit(full(client), wait_s=0)
        now[0] = 130.0
        refusal = await refusal_of(door.admit(full("c"), wait_s=0))
        assert (refusal.status, refusal.code, refusal.kv_class) == (503, "pool-busy", "kv_cache")
        assert dict(refusal.breakdown) == {"pool": 556_348, "admitted": 400_000, "waiting": 0, "asked": 200_000}
        assert refusal.retry_after_s == 70, "such a request took 100 s, those that run have run for 30"
        assert door.snapshot().waiting == 0

    run(test)


def test_a_request_that_can_never_fit_is_refused_at_once() -> None:
    async def test() -> None:
        refusal = await refusal_of(Admission(ARCHON).admit(replace(FULL, max_tokens=10_001), wait_s=60))
        assert (refusal.status, refusal.code, refusal.largest_max_tokens) == (400, "request-over-window", 10_000)

    run(test)


def test_slots_are_kept_to_as_well() -> None:
    async def test() -> None:
        door = Admission(ARCHON)
        for _ in range(4):
            await door.admit(Ask("a", (10,), True, 10), wait_s=0)
        refusal = await refusal_of(door.admit(Ask("b", (10,), True, 10), wait_s=0))
        assert (refusal.code, refusal.kv_class) == ("slots-busy", None)

    run(test)


def test_an_unknown_capacity_lets_everything_pass_and_counts_it() -> None:
    async def test() -> None:
        door = Admission()
        tickets = [await door.admit(Ask("a", (1 << 40,), True, 1 << 40), wait_s=0) for _ in range(50)]
        assert not any(ticket.known for ticket in tickets)
        assert sample(door, 'archon_guard_passed_unknown_total{reason="capacity"}') == 50

    run(test)


def test_a_bound_that_fits_is_not_counted_and_one_that_does_not_is() -> None:
    async def test() -> None:
        asked = []

        def bound(tokens: int, exact: int | None) -> Ask:
            async def count() -> Counts | None:
                asked.append(tokens)
                return None if exact is None else (exact,)

            return Ask("a", (tokens,), False, 1_000, count=count)

        door = Admission(ARCHON)
        await door.admit(bound(199_000, 50_000), wait_s=0)
        assert asked == []
        await door.admit(bound(800_000, 190_000), wait_s=0)
        assert asked == [800_000]
        unknown = await door.admit(bound(800_000, None), wait_s=0)
        assert not unknown.known
        assert sample(door, 'archon_guard_passed_unknown_total{reason="count-failed"}') == 1

    run(test)


def test_room_that_a_bound_holds_for_nothing_is_found_for_one_that_waits() -> None:
    async def test() -> None:
        async def count() -> Counts:
            return (50_000,)

        door = Admission(ARCHON)
        for client in "ab":
            await door.admit(Ask(client, (190_000,), False, 10_000, count=count), wait_s=0)
        third = await door.admit(full("c"), wait_s=60)
        assert third.known
        assert door.snapshot().held_tokens == 60_000 + 200_000 + 200_000, "one was enough"

    run(test)


def test_a_count_that_does_not_come_lets_the_request_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr("archonctl.guard.admission._COUNT_S", 0.01)

        async def count() -> Counts:
            await asyncio.sleep(3_600)
            raise AssertionError

        ticket = await Admission(ARCHON).admit(Ask("a", (800_000,), False, 10, count=count), wait_s=0)
        assert not ticket.known

    run(test)


def test_a_client_that_leaves_while_it_waits_holds_nothing_and_keeps_nobody_back() -> None:
    async def test() -> None:
        door = Admission(ARCHON)
        first = await door.admit(full("a"), wait_s=0)
        await door.admit(full("b"), wait_s=0)
        leaving = asyncio.create_task(door.admit(full("c"), wait_s=60))
        staying = asyncio.create_task(door.admit(full("d"), wait_s=60))
        await turns()
        leaving.cancel()
        await turns()
        assert leaving.cancelled()
        assert door.snapshot().waiting == 1
        first.release()
        await staying
        assert sample(door, "archon_guard_left_waiting_total") == 1

    run(test)


def test_a_client_that_leaves_in_the_moment_of_its_turn_gives_it_to_the_next() -> None:
    async def test() -> None:
        door = Admission(ARCHON)
        first = await door.admit(full("a"), wait_s=0)
        await door.admit(full("b"), wait_s=0)
        leaving = asyncio.create_task(door.admit(full("c"), wait_s=60))
        staying = asyncio.create_task(door.admit(full("d"), wait_s=60))
        await turns()
        first.release()  # its turn is set, its task has not run yet
        leaving.cancel()
        await turns(10)
        assert leaving.cancelled()
        assert staying.done()
        assert door.snapshot().held_tokens == 400_000

    run(test)


def test_a_ticket_is_given_back_once() -> None:
    async def test() -> None:
        door = Admission(ARCHON)
        ticket = await door.admit(full("a"), wait_s=0)
        await door.admit(full("b"), wait_s=0)
        ticket.release()
        ticket.release()
        assert door.snapshot().held_tokens == 200_000

    run(test)


def test_more_may_not_wait_than_the_bounds_say() -> None:
    async def test() -> None:
        door = Admission(replace(ARCHON, slots=1), bounds=Bounds(waiting=3, waiting_of_client=2))
        await door.admit(Ask("a", (10,), True, 10), wait_s=0)
        waiting = [asyncio.create_task(door.admit(Ask("a", (10,), True, 10), wait_s=60)) for _ in range(2)]
        await turns()
        refusal = await refusal_of(door.admit(Ask("a", (10,), True, 10), wait_s=60))
        assert (refusal.status, refusal.code) == (429, "client-queue-full")
        waiting.append(asyncio.create_task(door.admit(Ask("b", (10,), True, 10), wait_s=60)))
        await turns()
        refusal = await refusal_of(door.admit(Ask("c", (10,), True, 10), wait_s=60))
        assert (refusal.status, refusal.code) == (503, "guard-queue-full")
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert door.snapshot().waiting == 0

    run(test)


def test_another_capacity_is_taken_into_account_by_those_who_wait() -> None:
    async def test() -> None:
        door = Admission(ARCHON)
        for client in "ab":
            await door.admit(full(client), wait_s=0)
        waiting = asyncio.create_task(door.admit(full("c"), wait_s=60))
        longer = asyncio.create_task(door.admit(Ask("d", (150_000,), True, 50_000), wait_s=60))
        await turns()
        door.set_capacity(replace(ARCHON, window_tokens=195_000))
        refusal = await refusal_of(waiting)
        assert refusal.code == "request-over-window"
        assert (await refusal_of(longer)).code == "request-over-window"
        again = asyncio.create_task(door.admit(Ask("d", (150_000,), True, 40_000), wait_s=60))
        await turns()
        assert not again.done()
        door.set_capacity(replace(ARCHON, pool_tokens=700_000))
        assert (await again).known
        unsized = asyncio.create_task(door.admit(full("e"), wait_s=60))
        await turns()
        door.set_capacity(Capacity())
        assert await unsized

    run(test)


def test_a_request_that_cannot_be_sized_passes_and_holds_what_is_known_of_it() -> None:
    async def test() -> None:
        door = Admission(ARCHON)
        for client in "ab":
            await door.admit(full(client), wait_s=0)
        ticket = await door.admit(Ask("c", (0,), False, 200_000, unknown="media"), wait_s=0)
        assert not ticket.known
        assert door.snapshot().held_tokens == 600_000
        assert sample(door, 'archon_guard_passed_unknown_total{reason="media"}') == 1

    run(test)


def test_an_answer_that_nobody_bounds_is_held_to_the_declared_length() -> None:
    async def test() -> None:
        async def count() -> Counts:
            return (50_000,)

        wide = Capacity(window_tokens=600_000, pool_tokens=600_000, slots=4, sequence_tokens=200_000)
        door = Admission(wide)
        ticket = await door.admit(Ask("a", (100_000,), False, None, count=count), wait_s=0)
        assert ticket.answer_limit == 150_000, "by the count: the bound would have cut it"
        assert door.snapshot().held_tokens == 200_000
        assert (await door.admit(Ask("a", (100,), True, 10), wait_s=0)).answer_limit is None
        assert (await Admission(ARCHON).admit(Ask("a", (100,), True, None), wait_s=0)).answer_limit is None

    run(test)
