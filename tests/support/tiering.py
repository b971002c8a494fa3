"""A real llama-server with folders beside it, and requests that are placed as the guard places them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prometheus_client import CollectorRegistry

from archonctl.deployment.tiers import Tiers
from archonctl.guard.hooks import Placed
from archonctl.guard.placement import Placer
from archonctl.guard.prompt import Prompt
from archonctl.tiers.book import Conversation
from archonctl.tiers.counts import TierCounts
from archonctl.tiers.executor import Executor, Setup
from archonctl.tiers.prefix import text_of
from archonctl.tiers.running import running_arguments
from archonctl.tiers.slots import SlotClient
from archonctl.tiers.store import Store
from archonctl.tiers.values import Action, Decision, Item, Placement, Reason
from support.guard_process import Process, environment
from support.ports import free
from support.staged import MIB, specs

_T = TypeVar("_T")
PATH = "/v1/completions"


class Ticket:
    """Of an admission that admits everything."""

    def release(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Answered:
    """One answer: where it was computed, and how much of its prompt had to be."""

    text: str
    prefilled: int
    cached: int
    slot: int
    placed: Placed


@dataclass
class Desk:
    """Places requests and sends them."""

    http: httpx.AsyncClient
    store: Store
    executor: Executor
    placer: Placer
    registry: CollectorRegistry
    said: list[str] = field(default_factory=list)

    async def ask(self, prompt: str, tokens: int = 4, **more: object) -> Answered:
        """Greedy; what is behind the answer is waited for."""
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}
        asked = Prompt.of(PATH, body)
        assert asked is not None
        placed = await self.placer.place(asked, Ticket())
        if placed.id_slot is not None:
            body["id_slot"] = placed.id_slot
        tail = b""
        try:
            answer = await self.http.post(PATH, json=body)
            answer.raise_for_status()
            tail = answer.content[-2048:]
        finally:
            await self.placer.done(placed, tail)
        await self.placer.close()
        value = answer.json()
        timings = value["timings"]
        slot = -1 if placed.id_slot is None else placed.id_slot
        return Answered(value["choices"][0]["text"], timings["prompt_n"], timings["cache_n"], slot, placed)

    async def plain(self, prompt: str, tokens: int = 4, **more: object) -> Answered:
        """The same, of a slot that knows nothing."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "cache_prompt": False, **more}
        value = (await self.http.post(PATH, json=body)).json()
        timings = value["timings"]
        return Answered(value["choices"][0]["text"], timings["prompt_n"], timings["cache_n"], -1, self.placer_nowhere)

    @property
    def placer_nowhere(self) -> Placed:
        """No placement."""
        from archonctl.guard.hooks import Anywhere

        return Anywhere()

    def of(self, prompt: str) -> Conversation:
        """The conversation that a prompt belongs to."""
        text = text_of(PATH, {"prompt": prompt})
        match = self.placer.book.match(text) if text else None
        assert match is not None
        return match.conversation

    def count(self, name: str, **labels: str) -> float:
        """A sample; 0 where there is none yet."""
        return self.registry.get_sample_value(name, labels) or 0.0


@dataclass
class Bench:
    """An engine, and its folders."""

    engine: Process
    root: Path
    port: int

    def run(
        self,
        work: Callable[[Desk], Awaitable[_T]],
        *,
        dram_mib: int = 64,
        disk_mib: int = 256,
        bytes_per_token: float | None = 1040.0,
    ) -> _T:
        """Do something with a store and an executor that were started anew.

        Without ``bytes_per_token`` the first conversation is saved once to learn it.
        """

        async def main() -> _T:
            registry, said = CollectorRegistry(), []
            store = Store(specs(self.root, dram_mib * MIB, disk_mib * MIB))
            try:
                async with httpx.AsyncClient(base_url=self.engine.url, timeout=60) as http:

                    async def send(method: str, path: str, body: bytes | None, _most: int) -> tuple[int, bytes]:
                        try:
                            answer = await http.request(method, path, content=body)
                        except httpx.HTTPError as err:
                            raise OSError(str(err)) from None
                        return answer.status_code, answer.content

                    setup = Setup(Tiers(prefill_tokens_per_s=1.0), lambda: running_arguments(self.port))
                    executor = Executor(setup, SlotClient(send), store, TierCounts(registry))
                    executor.book.bytes_per_token = bytes_per_token
                    # a token takes a second: how fast this machine is decides nothing
                    executor.speeds.prefilled = lambda *_: None  # type: ignore[method-assign]
                    desk = Desk(http, store, executor, Placer(executor, said.append), registry, said)
                    try:
                        return await work(desk)
                    finally:
                        await desk.placer.close()
                        assert not said
            finally:
                store.close()

        return asyncio.run(main())

    def tokens(self, slot: int) -> int:
        """What the engine says lies in a slot."""
        return int(self.slots()[slot].get("n_prompt_tokens", 0))

    def slots(self) -> list[dict[str, Any]]:
        """GET /slots."""
        return list(httpx.get(f"{self.engine.url}/slots", timeout=30).json())

    def act(self, slot: int, action: str, name: str) -> httpx.Response:
        """The slot API, past everything of ours."""
        body = json.dumps({"filename": name})
        return httpx.post(f"{self.engine.url}/slots/{slot}?action={action}", content=body, timeout=60)

    def fresh(self) -> Bench:
        """The engine runs, and nothing is left of an earlier test."""
        if self.engine.process is None or self.engine.process.poll() is not None:
            self.engine.start()
        self.clear()
        return self

    def clear(self) -> None:
        """Empty slots and folders."""
        for slot in self.slots():
            httpx.post(f"{self.engine.url}/slots/{slot['id']}?action=erase", timeout=60)
        for place in ("dram", "disk"):
            for each in (self.root / place).iterdir():
                each.unlink()


@contextmanager
def bench(server: Path, model: Path, folder: Path, *options: str, slots: int = 2) -> Iterator[Bench]:
    """A running engine whose slots are saved below ``folder``."""
    port = free()
    made = specs(folder)
    argv = [str(server), "-m", str(model), "--port", str(port), "-t", "1", "-c", "16384", "-np", str(slots)]
    argv += ["--no-kv-unified", "--cache-ram", "0", "--no-warmup", "--no-webui", "--slot-save-path", str(made[0].path)]
    engine = Process([*argv, *options], folder / "engine.log", f"http://127.0.0.1:{port}", environment(folder))
    try:
        engine.start()
        yield Bench(engine, folder, port)
    finally:
        engine.end()


def story(number: int, words: int = 50) -> str:
    """The beginning of a conversation that begins like no other."""
    return f"{number} " + " ".join(f"{(number * 7919 + i * 104729) % 9973}" for i in range(words))


def spill(desk: Desk, prompt: str, to: str | None = "disk") -> Placement:
    """The decision that moves one conversation."""
    each = desk.of(prompt)
    where = "engine" if each.live else each.places[0]
    item = Item(each.id, where, desk.placer.book.size_of(each), each.tokens, 1.0)
    action = Action.EVICT if to is None else Action.SPILL
    return Placement((Decision(item, action, Reason.RETAIN_CHEAPER, to, item.bytes),))
