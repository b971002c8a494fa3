"""Anything in any order: requests come, leave, end; the capacity changes; the sums always agree."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from archonctl.guard.admission import Admission, Bounds, Ticket
from archonctl.guard.need import budget_tokens, need_of, slots_of
from archonctl.guard.values import Ask, Capacity, Counts, Refused

CAPACITIES = st.builds(
    Capacity,
    window_tokens=st.sampled_from([None, 100, 200]),
    pool_tokens=st.sampled_from([None, 250, 400]),
    slots=st.sampled_from([None, 2, 3]),
    page_tokens=st.sampled_from([1, 4]),
    queues=st.booleans(),
)


@dataclass
class Coming:
    task: asyncio.Task[Ticket]
    client: str


class Door(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.now = 0.0
        self.door = Admission(
            Capacity(200, 400, 3), bounds=Bounds(waiting=6, waiting_of_client=3), clock=lambda: self.now
        )
        self.coming: list[Coming] = []
        self.tickets: list[Ticket] = []
        self.under: dict[int, Capacity] = {}

    def settle(self) -> None:
        async def turns() -> None:
            for _ in range(8):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        for each in list(self.coming):
            if each.task.done():
                self.coming.remove(each)
                if not each.task.cancelled():
                    error = each.task.exception()
                    assert error is None or isinstance(error, Refused)
                    if error is None:
                        self.tickets.append(each.task.result())
                        self.under[each.task.result().number] = self.door.capacity

    @rule(
        client=st.sampled_from("abc"),
        prompt=st.integers(0, 250),
        answer=st.none() | st.integers(0, 120),
        exact=st.booleans(),
        n=st.integers(1, 3),
        media=st.booleans(),
    )
    def comes(self, client: str, prompt: int, answer: int | None, exact: bool, n: int, media: bool) -> None:
        async def count() -> Counts | None:
            await asyncio.sleep(0)
            return (prompt // 3,) if prompt % 5 else None

        ask = Ask(client, (prompt,), exact, answer, n, None if exact else count, "media" if media and not exact else "")
        task = self.loop.create_task(self.door.admit(ask, wait_s=3_600))
        self.coming.append(Coming(task, client))
        self.settle()

    @precondition(lambda self: self.coming)
    @rule(data=st.data(), late=st.booleans())
    def leaves(self, data: st.DataObject, late: bool) -> None:
        each = data.draw(st.sampled_from(self.coming))
        if late and self.tickets:
            self.tickets.pop(0).release()  # its turn may come in the very moment
        each.task.cancel()
        self.settle()

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        self.now += 1.0
        ticket = data.draw(st.sampled_from(self.tickets))
        self.tickets.remove(ticket)
        ticket.release()
        ticket.release()
        self.settle()

    @rule(capacity=CAPACITIES)
    def changes(self, capacity: Capacity) -> None:
        self.door.set_capacity(capacity)
        self.settle()

    @invariant()
    def sums_agree(self) -> None:
        now = self.door.snapshot()
        assert now.in_flight == len(self.tickets)
        assert now.waiting == len(self.coming)
        if not self.tickets:
            assert (now.held_tokens, now.held_slots) == (0, 0)
            assert now.waiting == 0, "somebody waits for nothing"

    @invariant()
    def the_known_ones_fit_together(self) -> None:
        capacity = self.door.capacity
        if len(self.tickets) < 2 or not all(t.known and self.under[t.number] == capacity for t in self.tickets):
            return  # one alone always runs, what passed unchecked may be too much, and so may what was held before
        budget, slots = budget_tokens(capacity), slots_of(capacity)
        needs = [need_of(t.ask, capacity) for t in self.tickets]
        assert budget is None or sum(n.tokens for n in needs) <= budget
        assert slots is None or sum(n.slots for n in needs) <= slots

    def teardown(self) -> None:
        for each in list(self.coming):
            each.task.cancel()
        self.settle()
        for ticket in self.tickets:
            ticket.release()
        self.tickets.clear()
        self.sums_agree()
        assert not asyncio.all_tasks(self.loop), "something of those who left still runs"
        self.loop.close()


TestDoor = Door.TestCase
TestDoor.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
