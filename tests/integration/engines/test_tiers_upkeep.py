"""What only slots hold outlives the engine; engines that are swapped, and disks that hang, cost nobody an answer."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archonctl.guard import placement
from archonctl.tiers.slots import Moved
from archonctl.tiers.upkeep import Upkeep
from support.tiering import Bench, Desk, bench, spill, story

pytestmark = pytest.mark.engine
TinyGguf = Callable[..., Path]


@pytest.fixture(scope="module")
def made(llama_server: Path, tiny_gguf: TinyGguf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(llama_server, tiny_gguf("llama"), tmp_path_factory.mktemp("upkeep")) as running:
        yield running


@pytest.fixture
def engine(made: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(placement, "_SURE_S", 0.0)  # a model as small as this one is back sooner
    return made.fresh()


def test_an_engine_that_dies_takes_nothing_with_it_that_was_idle(engine: Bench) -> None:
    prompts = [story(n) for n in range(2)]

    async def work(desk: Desk) -> None:
        for prompt in prompts:
            await desk.ask(prompt)
        upkeep = Upkeep(desk.executor, None, desk.said.append, quiet_s=0.0)
        await upkeep.look()
        assert all(desk.of(prompt).live and desk.of(prompt).in_file for prompt in prompts)
        files = sorted((engine.root / "dram").iterdir())
        await upkeep.look()  # nothing changed: nothing is saved again
        assert sorted((engine.root / "dram").iterdir()) == files
        assert desk.count("archon_tiers_moves_total", action="save_ahead", reason="idle") == 2
        engine.engine.kill()
        back = [asyncio.create_task(desk.ask(prompt)) for prompt in prompts]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(engine.engine.start)
        assert [answer.prefilled for answer in await asyncio.gather(*back)] == [1, 1]

    engine.run(work)


def test_what_is_in_a_file_already_is_not_saved_a_second_time(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        prompt = story(1)
        await desk.ask(prompt)
        await Upkeep(desk.executor, None, desk.said.append, quiet_s=0.0).look()
        before = desk.of(prompt).staged
        desk.executor.client.save = None  # type: ignore[method-assign,assignment]
        for place in ("dram", "disk"):
            (outcome,) = await desk.executor.carry_out(spill(desk, prompt, place))
            assert outcome.done
            assert (desk.of(prompt).places, desk.of(prompt).staged) == ((place,), before)
        assert (await desk.ask(prompt)).prefilled == 1

    engine.run(work)


def test_the_copy_of_a_conversation_that_goes_on_makes_room_for_another(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        one, further, other = story(1), story(1) + " and on", story(2)
        await desk.ask(one)
        await desk.executor.carry_out(spill(desk, one, "disk"))
        desk.store.specs["disk"] = dataclasses.replace(
            desk.store.specs["disk"], quota_bytes=desk.store.used_bytes("disk") * 3 // 2
        )
        await desk.ask(further)
        await desk.ask(other)
        (outcome,) = await desk.executor.carry_out(spill(desk, other, "disk"))
        assert outcome.done
        assert (desk.of(further).places, desk.of(other).places) == ((), ("disk",))

    engine.run(work)


def test_another_engine_that_was_given_a_file_is_emptied_at_once(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        prompt = story(3)
        first = await desk.ask(prompt)
        await desk.executor.carry_out(spill(desk, prompt, "dram"))
        restore = desk.executor.client.restore

        async def swapped(slot: int, name: str) -> Moved:
            moved = await restore(slot, name)
            desk.executor._boot = None  # as if it were another one by now
            return moved

        desk.executor.client.restore = swapped  # type: ignore[method-assign]
        again = await desk.ask(prompt)
        assert (again.text, again.cached) == (first.text, 0)
        assert desk.count("archon_tiers_failures_total", action="restore", reason="bad_answer") == 1

    engine.run(work)


def test_a_slot_of_another_engine_is_not_taken_for_the_same_because_it_looks_it(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        prompt = story(4)
        await desk.ask(prompt)
        desk.executor._boot = None
        (outcome,) = await desk.executor.carry_out(spill(desk, prompt, "dram"))
        assert (outcome.done, outcome.trouble) == (False, "gone")
        assert not desk.store.entries

    engine.run(work)


def test_a_disk_that_hangs_hangs_nobody(engine: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(desk: Desk) -> None:
        prompt, ready, freed = story(5), desk.store.ready, threading.Event()
        await desk.ask(prompt)
        await desk.executor.carry_out(spill(desk, prompt, "dram"))

        def hangs(id_: str) -> object:
            freed.wait(60)
            return ready(id_)

        desk.store.ready = hangs  # type: ignore[method-assign,assignment]
        monkeypatch.setattr(placement, "_PLACE_S", 0.1)
        desk.placer.close = _nothing  # type: ignore[method-assign]
        assert (await desk.ask(prompt)).slot == -1  # it was answered, and not placed
        monkeypatch.setattr(placement, "_PLACE_S", 60.0)
        for other in (story(6), story(7)):
            assert (await desk.ask(other)).slot == -1  # nobody waits behind it
        assert desk.count("archon_tiers_failures_total", action="place", reason="timed_out") == 1
        freed.set()
        desk.store.ready, desk.placer.close = ready, type(desk.placer).close.__get__(desk.placer)  # type: ignore[method-assign]
        await desk.placer.close()
        assert (await desk.ask(prompt)).cached > 0
        assert [seat.guests for seat in desk.placer.book.seats] == [0, 0]

    engine.run(work)


async def _nothing() -> None:
    return
