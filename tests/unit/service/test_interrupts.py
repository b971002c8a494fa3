"""The first signal raises once, wherever the program is; later ones only hurry."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

import pytest

from archonctl.service.interrupts import SIGNALS, Interrupted, Interrupts


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_raises_and_the_second_hurries(number: signal.Signals) -> None:
    hurried: list[int] = []
    before = signal.getsignal(number)
    with Interrupts() as interrupts:
        interrupts.hurry = lambda: hurried.append(1)
        with pytest.raises(Interrupted, match=number.name) as caught:
            signal.raise_signal(number)
        assert caught.value.number == number
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)
    assert hurried == [1, 1]
    assert signal.getsignal(number) == before


def hold(interrupts: Interrupts, step: Callable[[], object]) -> None:
    with interrupts.held():
        signal.raise_signal(signal.SIGTERM)
        step()


def test_a_held_signal_raises_at_the_end() -> None:
    done: list[int] = []
    with Interrupts() as interrupts, pytest.raises(Interrupted):
        hold(interrupts, lambda: done.append(1))
    assert done == [1]


def test_an_error_in_a_held_step_wins_over_the_signal() -> None:
    with Interrupts() as interrupts, pytest.raises(ZeroDivisionError):
        hold(interrupts, lambda: 1 / 0)


def test_a_shielded_first_signal_is_noted_and_a_second_hurries() -> None:
    hurried: list[int] = []
    with Interrupts() as interrupts:
        interrupts.hurry = lambda: hurried.append(1)
        interrupts.shield()
        signal.raise_signal(signal.SIGINT)
        assert (interrupts.number, hurried) == (signal.SIGINT, [])
        signal.raise_signal(signal.SIGINT)
    assert hurried == [1]


@pytest.mark.parametrize("number", SIGNALS)
def test_asyncio_cancels_its_tasks_in_order(number: signal.Signals) -> None:
    ended: list[str] = []

    async def task() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("task")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(task())
            await asyncio.sleep(0)
            signal.raise_signal(number)

    with Interrupts() as interrupts:
        with pytest.raises(Interrupted, match=number.name), interrupts.for_asyncio():
            asyncio.run(main())
        assert ended == ["task"]
        hurried: list[int] = []
        interrupts.hurry = lambda: hurried.append(1)
        signal.raise_signal(signal.SIGTERM)
        assert hurried == [1]


def test_nothing_is_touched_outside_the_main_thread() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    during: list[object] = []

    def work() -> None:
        with Interrupts() as interrupts, interrupts.held(), interrupts.for_asyncio():
            during.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert during == before
