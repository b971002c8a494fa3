"""Conversations moved between the slots of a real llama-server, memory and disk; and everything that goes wrong."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archonctl.tiers.store import StagingError
from support.tiering import Bench, Desk, bench, spill, story

pytestmark = pytest.mark.engine
TinyGguf = Callable[..., Path]


@pytest.fixture(scope="module")
def made(llama_server: Path, tiny_gguf: TinyGguf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(llama_server, tiny_gguf("llama"), tmp_path_factory.mktemp("tiers")) as running:
        yield running


@pytest.fixture
def engine(made: Bench) -> Bench:
    return made.fresh()


def test_a_restored_conversation_goes_on_with_the_same_words_and_next_to_no_prefill(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        prompt = story(1)
        first = await desk.ask(prompt)
        further = prompt + first.text + " and then"
        live = await desk.ask(further, 12)
        assert live.cached >= len(prompt)
        for place in ("dram", "disk"):
            (outcome,) = await desk.executor.carry_out(spill(desk, further, place))
            assert outcome.done
            assert desk.of(further).places == (place,)
            assert not desk.of(further).live
            again = await desk.ask(further, 12)
            assert again.text == live.text
            assert again.prefilled == 1
            assert again.cached == live.prefilled + live.cached - 1
        # a file on disk is kept as it is while the conversation goes on; the copy in memory only passed through
        assert desk.of(further).places == ("disk",)
        assert not list((engine.root / "dram").iterdir())

    engine.run(work)


def test_conversations_that_outgrow_the_slots_are_not_prefilled_again(engine: Bench) -> None:
    async def mix(desk: Desk, *, placed: bool) -> int:
        prompts, again = [story(n) for n in range(5)], 0
        for turn in range(3):
            for index, prompt in enumerate(prompts):
                answer = await (desk.ask(prompt) if placed else desk.plain(prompt, cache_prompt=True))
                again += 0 if turn == 0 else max(0, answer.prefilled - 40)
                prompts[index] += answer.text + f" turn {turn}"
        return again

    async def without(desk: Desk) -> int:
        return await mix(desk, placed=False)

    async def with_tiers(desk: Desk) -> int:
        again = await mix(desk, placed=True)
        assert desk.count("archon_tiers_reprefilled_tokens_total") == 0
        assert desk.count("archon_tiers_requests_total", how="restored") == 10
        assert desk.count("archon_tiers_kept_tokens_total") > 2000
        assert sum(desk.store.used_bytes(name) for name in ("dram", "disk")) > 0
        return again

    assert engine.run(without) > 2000
    engine.clear()
    assert engine.run(with_tiers, dram_mib=1) == 0  # most of them have to go on to the disk


def test_a_restart_of_engine_and_guard_loses_nothing_that_was_staged(engine: Bench) -> None:
    prompts = [story(n) for n in range(4)]

    async def before(desk: Desk) -> None:
        for prompt in prompts:
            await desk.ask(prompt)
        for prompt in prompts:
            if desk.of(prompt).live:
                await desk.executor.carry_out(spill(desk, prompt, "dram"))

    async def after(desk: Desk) -> None:
        for prompt in prompts[:2]:
            assert (await desk.ask(prompt)).prefilled == 1
        engine.engine.kill()
        engine.engine.start()
        for prompt in prompts[2:]:
            assert (await desk.ask(prompt)).prefilled == 1

    engine.run(before)
    engine.engine.kill()
    engine.engine.start()
    engine.run(after)


def test_a_staging_that_fails_keeps_the_live_copy(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        prompt, name = story(1), "a" * 32
        answer = await desk.ask(prompt)
        held = engine.tokens(answer.slot)
        (engine.root / "dram" / f"{name}.kv").symlink_to("/dev/full")
        desk.store.new_id = lambda: name  # type: ignore[method-assign]
        (outcome,) = await desk.executor.carry_out(spill(desk, prompt, "dram"))
        assert (outcome.done, outcome.reason, outcome.trouble) == (False, "staging_failed", "failed")
        assert desk.of(prompt).live
        assert engine.tokens(answer.slot) == held
        assert not list((engine.root / "dram").iterdir())
        assert (await desk.ask(prompt)).prefilled == 1
        assert desk.count("archon_tiers_failures_total", action="spill", reason="failed") == 1

    engine.run(work)


def test_a_folder_that_is_gone_or_too_small_keeps_the_live_copy(engine: Bench) -> None:
    async def gone(desk: Desk) -> None:
        prompt = story(2)
        await desk.ask(prompt)
        (engine.root / "dram").rename(engine.root / "elsewhere")
        (outcome,) = await desk.executor.carry_out(spill(desk, prompt, "dram"))
        (engine.root / "elsewhere").rename(engine.root / "dram")
        assert (outcome.done, outcome.trouble) == (False, "failed")
        assert (await desk.ask(prompt)).prefilled == 1

    async def small(desk: Desk) -> None:
        prompt = story(3)
        await desk.ask(prompt)
        for to in ("dram", "disk"):
            (outcome,) = await desk.executor.carry_out(spill(desk, prompt, to))
            assert (outcome.done, outcome.trouble) == (False, "no_room")
            assert (await desk.ask(prompt)).prefilled == 1
        assert not list((engine.root / "disk").iterdir())

    engine.run(gone)
    engine.clear()
    engine.run(small, dram_mib=0)
    engine.clear()

    async def no_disk(desk: Desk) -> None:
        prompt = story(4)
        await desk.ask(prompt)
        (outcome,) = await desk.executor.carry_out(spill(desk, prompt, "disk"))
        assert (outcome.done, outcome.trouble) == (False, "no_room")
        assert desk.of(prompt).live
        assert (await desk.ask(prompt)).prefilled == 1

    engine.run(no_disk, disk_mib=0)


def test_a_slot_that_works_is_not_touched(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        prompt = story(5)
        answer = await desk.ask(prompt)
        long = {"prompt": "x", "n_predict": 2500, "id_slot": answer.slot, "ignore_eos": True, "n_probs": 20}
        busy = asyncio.create_task(desk.http.post("/completion", json=long))
        while not (await desk.executor.client.slots())[answer.slot].busy and not busy.done():
            await asyncio.sleep(0.01)
        (outcome,) = await desk.executor.carry_out(spill(desk, prompt, "dram"))
        assert (outcome.done, outcome.trouble) == (False, "refused")
        await busy
        # another request ran in it: what is there is no longer that conversation, and is not staged as such
        (outcome,) = await desk.executor.carry_out(spill(desk, prompt, "dram"))
        assert (outcome.done, outcome.trouble) == (False, "gone")
        assert not desk.store.entries

    engine.run(work)


def test_killing_the_engine_while_it_saves_leaves_no_half_of_a_file_that_counts(engine: Bench) -> None:
    async def work(desk: Desk, wait_s: float) -> None:
        prompt = story(6, 700)
        await desk.ask(prompt)
        moving = asyncio.create_task(desk.executor.carry_out(spill(desk, prompt, "dram")))
        await asyncio.sleep(wait_s)
        engine.engine.kill()
        (outcome,) = await moving
        desk.store.clean()
        for id_, entry in desk.store.entries.items():
            assert outcome.done
            assert desk.store.ready(id_) == entry.staged
        assert outcome.done == bool(desk.store.entries)
        engine.engine.start()
        assert (await desk.ask(prompt)).prefilled == (1 if outcome.done else len(prompt))

    for wait_s in (0.0, 0.004, 0.01):
        engine.run(lambda desk, wait_s=wait_s: work(desk, wait_s))  # type: ignore[misc]
        engine.clear()


def test_a_damaged_file_never_reaches_the_engine_and_the_request_is_served(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        for how in ("cut", "flipped"):
            prompt = story(7 if how == "cut" else 8)
            first = await desk.ask(prompt)
            await desk.executor.carry_out(spill(desk, prompt, "dram"))
            kv = engine.root / "dram" / desk.of(prompt).staged.kv  # type: ignore[union-attr]
            data = bytearray(kv.read_bytes())
            data[len(data) // 2] ^= 1
            kv.write_bytes(data if how == "flipped" else data[:-100])
            again = await desk.ask(prompt)
            assert again.text == first.text
            assert not kv.exists()
        assert desk.count("archon_tiers_failures_total", action="restore", reason="damaged") == 2
        assert engine.engine.process is not None
        assert engine.engine.process.poll() is None

    engine.run(work)


def test_the_cache_of_another_conversation_changes_no_answer(engine: Bench) -> None:
    """Even if placement were all wrong: the engine goes on from equal tokens only."""

    async def work(desk: Desk) -> None:
        mine, other = story(1) + " same end", story(1)[:200] + story(2) + " same end"
        right = await desk.plain(other, 12)
        await desk.ask(mine)
        await desk.executor.carry_out(spill(desk, mine, "dram"))
        staged = desk.of(mine).staged
        assert staged is not None
        assert engine.act(1, "restore", staged.kv).status_code == 200
        body = {"prompt": other, "n_predict": 12, "temperature": 0, "id_slot": 1}
        answer = (await desk.http.post("/completion", json=body)).json()
        assert answer["content"] == right.text
        assert 190 <= answer["timings"]["cache_n"] < 260

    engine.run(work)


def test_a_branch_takes_a_copy_and_leaves_the_conversation_where_it_is(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        common = story(9, 1000)
        one, two, three = common + " one", common + " two", common + " three"
        await desk.ask(one)
        second = await desk.ask(two)  # its beginning is in a slot: that one is staged first
        assert second.cached >= 4096
        assert desk.of(one).staged is not None
        await desk.executor.carry_out(spill(desk, two, "dram"))
        third = await desk.ask(three)
        assert third.cached >= 4096
        for prompt in (one, two):
            assert (await desk.ask(prompt)).prefilled == 1
        assert desk.count("archon_tiers_requests_total", how="branch") == 2

    engine.run(work)


def test_requests_that_no_slot_can_be_chosen_for_go_as_they_are(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        for more in ({"n": 2}, {"lora": [{"id": 0, "scale": 1.0}]}, {"cache_prompt": False}, {"id_slot": 1}):
            assert desk.placer is not None
            body = {"prompt": "hello", **more}
            from archonctl.guard.prompt import Prompt
            from support.tiering import PATH, Ticket

            asked = Prompt.of(PATH, body)
            assert asked is not None
            assert (await desk.placer.place(asked, Ticket())).id_slot is None

    engine.run(work)


def test_a_client_that_leaves_while_it_is_placed_gives_its_slot_back(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        prompts = [story(n) for n in range(3)]
        for prompt in prompts:
            await desk.ask(prompt)
        for _ in range(5):
            asking = asyncio.create_task(desk.ask(prompts[0]))
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            prompts.append(prompts.pop(0))
        await desk.placer.close()
        assert [seat.guests for seat in desk.placer.book.seats] == [0, 0]
        for prompt in prompts:
            assert (await desk.ask(prompt)).cached > 0
        assert len(prompts) == len({desk.of(prompt).id for prompt in prompts})

    engine.run(work)


def test_the_state_of_another_model_of_the_same_shape_is_never_restored(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    prompt = story(1)

    async def stage(desk: Desk) -> None:
        await desk.ask(prompt)
        await desk.executor.carry_out(spill(desk, prompt, "dram"))
        assert len(desk.store.entries) == 1

    async def refuse(desk: Desk) -> None:
        answer = await desk.ask(prompt, 12)
        assert answer.cached == 0
        assert answer.text == (await desk.plain(prompt, 12)).text
        (entry,) = desk.store.entries.values()  # it stays for the day the other model is back
        # without this the engine takes it, and answers from it
        assert running.act(1, "restore", entry.staged.kv).json()["n_restored"] == entry.staged.tokens

    with bench(llama_server, tiny_gguf("llama", seed=1), tmp_path) as running:
        running.run(stage)
    for model, options in (
        (tiny_gguf("llama", seed=2), ()),
        (tiny_gguf("llama", seed=1), ("--rope-freq-base", "5000")),
    ):
        with bench(llama_server, model, tmp_path, *options) as running:
            running.run(refuse)
    with bench(llama_server, tiny_gguf("llama", seed=1), tmp_path) as running:

        async def restore(desk: Desk) -> None:
            assert (await desk.ask(prompt)).prefilled == 1

        running.run(restore)


def test_nothing_is_moved_for_models_that_cannot_go_on_from_a_file(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    """With a sliding window, what a file holds is not enough to take back a token; the whole cache would be."""

    async def mix(desk: Desk) -> str:
        prompts = [story(n, 250) for n in range(3)]
        for _ in range(3):
            for index, prompt in enumerate(prompts):
                answer = await desk.ask(prompt)
                prompts[index] += answer.text + " go on"
        return desk.executor.why_not

    with bench(llama_server, tiny_gguf("gemma3"), tmp_path) as running:
        assert running.run(mix) == "restores_unused"
    with bench(llama_server, tiny_gguf("gemma3"), tmp_path, "--swa-full") as running:
        assert running.run(mix) == ""


def test_an_engine_that_saves_nowhere_or_elsewhere_is_served_without_tiers(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    async def work(desk: Desk) -> str:
        assert (await desk.ask(story(1))).slot >= 0
        assert (await desk.ask(story(1))).cached > 0
        assert not desk.store.entries
        return desk.executor.why_not

    (tmp_path / "other").mkdir()
    with bench(llama_server, tiny_gguf("llama"), tmp_path, "--slot-save-path", str(tmp_path / "other")) as running:
        assert running.run(work) == "other_folder"


def test_staging_something_that_is_not_there_is_told(engine: Bench) -> None:
    async def work(desk: Desk) -> None:
        await desk.ask(story(1))
        each = desk.of(story(1))
        lost = dataclasses.replace(each, seat=None)
        with pytest.raises(StagingError):
            await desk.executor.stage(lost, "dram")

    engine.run(work)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_tmpfs_that_fills_up_while_the_engine_writes_keeps_the_live_copy_and_the_engine(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    (tmp_path / "dram").mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", tmp_path / "dram"], check=True)

    async def work(desk: Desk) -> None:
        room = desk.store.room_bytes
        desk.store.room_bytes = lambda place: 1 << 30 if place == "dram" else room(place)  # type: ignore[method-assign]
        small, large = story(1, 20), story(2, 400)
        await desk.ask(small)
        await desk.ask(large)
        (outcome,) = await desk.executor.carry_out(spill(desk, large, "disk"))
        assert (outcome.done, outcome.trouble) == (False, "failed")
        assert desk.of(large).live
        assert not list((tmp_path / "dram").iterdir())
        assert (await desk.ask(large)).prefilled == 1
        (outcome,) = await desk.executor.carry_out(spill(desk, small, "disk"))
        assert outcome.done
        assert (await desk.ask(small)).prefilled == 1

    try:
        with bench(llama_server, tiny_gguf("llama"), tmp_path) as running:
            running.run(work)
    finally:
        subprocess.run(["umount", tmp_path / "dram"], check=True)
