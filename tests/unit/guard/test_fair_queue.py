"""The order of those who wait: fair among clients, and nobody waits for ever."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.guard.queue import OVERTAKES, FairQueue


def drain(queue: FairQueue[str]) -> list[str]:
    return [entry.item for entry in iter(lambda: queue.take(lambda _: True), None) if entry is not None]


def test_one_client_s_requests_go_in_their_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in ("1", "2", "3"):
        queue.put("a", 10, name)
    assert drain(queue) == ["1", "2", "3"]


def test_a_client_with_many_requests_does_not_hold_up_one_with_few() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(100):
        queue.put("greedy", 1_000, f"greedy {number}")
    queue.put("modest", 1_000, "modest")
    assert drain(queue).index("modest") <= 1


def test_what_a_client_was_given_counts_by_its_tokens() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(40):
        queue.put("long", 100_000, f"long {number}")
        queue.put("short", 10_000, f"short {number}")
    first = Counter(name.split()[0] for name in drain(queue)[:22])
    assert first["short"] >= 6 * first["long"], "all but what it may be overtaken at most"


def test_a_long_request_is_overtaken_a_bounded_number_of_times() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("big", 200_000, "big")
    overtaken = 0
    while True:
        queue.put(f"client {overtaken}", 100, "small")
        entry = queue.take(lambda item: item == "small")
        if entry is None:
            break
        overtaken += 1
    assert overtaken == OVERTAKES
    taken = queue.take(lambda _: True)
    assert taken is not None
    assert taken.item == "big"


def test_those_who_stood_there_first_are_not_held_up_for_a_later_one() -> None:
    queue: FairQueue[str] = FairQueue(overtakes=2)
    queue.put("a", 1, "first")
    queue.put("b", 1, "second")
    assert queue.take(lambda item: item == "second") is not None
    assert queue.take(lambda item: item == "second") is None


def test_one_that_leaves_pays_nothing_and_keeps_nobody_back() -> None:
    queue: FairQueue[str] = FairQueue(overtakes=1)
    big = queue.put("big", 200_000, "big")
    queue.put("a", 1, "small")
    assert queue.take(lambda item: item == "small") is not None
    queue.put("a", 1, "small")
    assert queue.take(lambda item: item == "small") is None, "the big one is due"
    assert queue.remove(big)
    assert not queue.remove(big)
    assert queue.take(lambda item: item == "small") is not None
    assert len(queue) == 0


def test_a_flood_of_invented_clients_leaves_no_memory_behind_and_starves_nobody() -> None:
    queue: FairQueue[str] = FairQueue()
    for _ in range(5):
        queue.put("heavy", 1_000_000, "heavy")  # has been given much, then comes back
        assert queue.take(lambda _: True) is not None
        queue.put("other", 1, "other")
    queue.put("heavy", 1, "heavy again")
    for number in range(1_000):
        queue.put(f"invented {number}", 1, "invented")
        entry = queue.take(lambda _: True)
        assert entry is not None
        if entry.item == "heavy again":
            break
    else:
        raise AssertionError("starved")
    assert len(queue._paid) < 20


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_request_is_admitted_after_a_bounded_number_of_later_arrivals(data: st.DataObject) -> None:
    """A pool of 10; requests of 1 to 10 for a few clients, which come whenever they like and hold for a while."""
    overtakes, room = 3, 10
    queue: FairQueue[tuple[int, int]] = FairQueue(overtakes)
    running: list[int] = []
    waiting: dict[int, tuple[int, str]] = {}
    passed: Counter[int] = Counter()

    def admit() -> None:
        while (entry := queue.take(lambda item: sum(running) + item[1] <= room)) is not None:
            number, size = entry.item
            running.append(size)
            del waiting[number]
            for other, (_, client) in waiting.items():
                first = min(n for n, (_, c) in waiting.items() if c == client)
                passed[other] += other < number and other == first

    for number in range(data.draw(st.integers(1, 60))):
        size, client = data.draw(st.integers(1, room)), data.draw(st.sampled_from("abc"))
        queue.put(client, size, (number, size))
        waiting[number] = (size, client)
        admit()
        while running and data.draw(st.booleans()):
            running.pop(data.draw(st.integers(0, len(running) - 1)))
            admit()
        # once due, only what came before it and the due ones of two other clients may still go first
        assert all(passed[each] <= overtakes + 2 for each in waiting)
    while waiting:
        assert running, "those who wait keep an idle pool idle"
        running.pop()
        admit()
