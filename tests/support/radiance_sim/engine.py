"""The scheduler: one step after another, each with a token or more for every running sequence and a chunk of prefill.

The pool is real: what a sequence holds, no other can. Before 1.3.0 a sequence takes pages as it grows, and the youngest
is preempted (its pages dropped, computed again later) where there are none, as public 1.0.x does. From 1.3.0 on the
whole height is reserved at admission, and what does not fit beside the others is refused: seen at 1.8.1.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from support.radiance_sim.budget import PAGE_TOKENS, Budget
from support.radiance_sim.config import Simulation
from support.radiance_sim.flags import Options, atoi

CHUNK_BESIDE_DECODE = 1024
"""Prefill tokens a step beside sequences that answer, with --busy-prefill-chunk auto."""


class TooLong(Exception):
    """A request that the pool cannot hold, ever or beside the others; the text names the tokens to cut."""


@dataclass(eq=False)
class Sequence:
    """One request. ``prompt`` and ``answer`` are tokens asked for, ``stop_at`` where its text ends by itself."""

    prompt: int
    answer: int
    stop_at: int
    computed: int = 0
    """Tokens in the cache."""
    produced: int = 0
    reserved: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    finish: str = ""
    error: str = ""
    preempted: bool = False

    @property
    def height(self) -> int:
        """Tokens at its end."""
        return self.prompt + self.answer

    @property
    def ready(self) -> bool:
        """True once all that is known of it is in the cache."""
        return self.computed >= self.prompt + self.produced

    def end(self, why: str) -> None:
        """Finish it, once."""
        self.finish = self.finish or why
        self.news.set()


def pages(tokens: int) -> int:
    """Tokens rounded up to whole pages."""
    return -(-tokens // PAGE_TOKENS) * PAGE_TOKENS


class Engine:
    """All sequences, the pool and the counters that /metrics shows."""

    def __init__(
        self, budget: Budget, options: Options, simulation: Simulation, say: Callable[[str], None] | None = None
    ) -> None:
        self.budget, self.options, self.simulation = budget, options, simulation
        self._say = say
        self.reserves = simulation.release >= (1, 3, 0)
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.work = asyncio.Event()
        self.stopping = False
        self.decode_steps = self.prefill_steps = self.mixed_steps = 0
        self.decode_seconds = 0.0
        self.prompt_tokens = self.answer_tokens = self.drafted = self.accepted = 0
        self.most_held = 0

    @property
    def pool(self) -> int:
        """Tokens of the pool."""
        return self.budget.tokens

    @property
    def held(self) -> int:
        """Tokens that running sequences hold."""
        return sum(seq.reserved for seq in self.running)

    @property
    def in_flight(self) -> int:
        """Requests admitted and not finished."""
        return len(self.waiting) + len(self.running)

    def submit(self, seq: Sequence) -> None:
        """Admit it. Raises TooLong where it cannot fit, ever or (from 1.3.0 on) beside those that run."""
        if pages(seq.height) > self.pool:
            raise TooLong(
                f"{seq.prompt} prompt tokens and {seq.answer} to answer are too large to ever fit the cache of "
                f"{self.pool} tokens; cut at least {seq.height - self.pool} tokens"
            )
        if self.reserves and len(self.running) < self.budget.seqs:
            self._reserve(seq)
        else:
            self.waiting.append(seq)
        self.work.set()

    def _reserve(self, seq: Sequence) -> None:
        free = self.pool - self.held
        if pages(seq.height) > free:
            raise TooLong(
                f"{seq.prompt} prompt tokens and {seq.answer} to answer do not fit beside {len(self.running)} running "
                f"requests: {free} of {self.pool} cache tokens are free; cut at least {seq.height - free} tokens"
            )
        seq.reserved = pages(seq.height)
        self.running.append(seq)
        self.most_held = max(self.most_held, self.held)

    def drop(self, seq: Sequence) -> None:
        """Its client has gone, or it has ended: its pages are free again."""
        seq.reserved = 0
        if seq in self.running:
            self.running.remove(seq)
        with contextlib.suppress(ValueError):
            self.waiting.remove(seq)
        self.work.set()

    async def run(self) -> None:
        """Steps for ever; each takes as long as the simulation says."""
        while True:
            self._seat()
            if not self.running:
                self.work.clear()
                await self.work.wait()
                continue
            seconds = self._step()
            await asyncio.sleep(seconds)

    def _seat(self) -> None:
        while self.waiting and len(self.running) < self.budget.seqs:
            first = self.waiting[0]
            if first.preempted and pages(first.prompt + first.produced) > self.pool - self.held:
                return
            seq = self.waiting.popleft()
            if not self.reserves:
                seq.preempted = False
                self.running.append(seq)
                continue
            try:
                self._reserve(seq)
            except TooLong as refusal:
                seq.error = str(refusal)
                seq.end("error")

    def _step(self) -> float:
        """One step; its duration in seconds."""
        simulation = self.simulation
        decoding = [seq for seq in self.running if seq.ready]
        chunk = self._chunk(bool(decoding))
        prefilled = 0
        for seq in [seq for seq in self.running if not seq.ready]:
            if chunk <= 0:
                break
            if seq not in self.running:
                continue
            take = min(chunk, seq.prompt + seq.produced - seq.computed)
            if not self._grow(seq, seq.computed + take):
                break
            seq.computed += take
            prefilled += take
            chunk -= take
        self.prompt_tokens += prefilled
        for seq in decoding:
            if seq in self.running:
                self._decode(seq)
        seconds = prefilled / simulation.prefill_tps + (simulation.step_s if decoding else 0.0)
        self._count(bool(decoding), prefilled > 0, seconds)
        if self._say:
            self._say(f"step: {len(decoding)} decoding, {prefilled} tokens of prefill, {seconds * 1000:.1f} ms")
        return seconds

    def _chunk(self, beside_decode: bool) -> int:
        most = self.options.number("--max-num-batched-tokens", 8192)
        most = min(most, self.options.number("--checkpoint-interval", 2048) or most)
        busy = self.options.text("--busy-prefill-chunk", "off")
        if beside_decode and busy != "off" and self.simulation.release >= (1, 3, 0):
            most = min(most, CHUNK_BESIDE_DECODE if busy == "auto" else max(1, atoi(busy)))
        return most

    def _grow(self, seq: Sequence, tokens: int) -> bool:
        """Make room for ``tokens`` of a sequence; False if it was preempted itself for the lack of it."""
        if self.reserves:
            return True
        wanted = pages(tokens)
        while self.held - seq.reserved + wanted > self.pool:
            youngest = self.running[-1]
            self._preempt(youngest)
            if youngest is seq:
                return False
        seq.reserved = max(seq.reserved, wanted)
        self.most_held = max(self.most_held, self.held)
        return True

    def _preempt(self, seq: Sequence) -> None:
        seq.preempted = True
        self.running.remove(seq)
        seq.computed = seq.reserved = 0
        self.waiting.appendleft(seq)

    def _decode(self, seq: Sequence) -> None:
        depth = self.options.depth
        accepted = seq.produced % (depth + 1) if depth else 0
        self.drafted += depth
        self.accepted += accepted
        limit = min(seq.answer, seq.stop_at)
        new = min(1 + accepted, limit - seq.produced)
        if not self._grow(seq, seq.computed + new):
            return
        seq.produced += new
        seq.computed += new
        self.answer_tokens += new
        seq.news.set()
        if seq.produced >= limit:
            self.running.remove(seq)
            seq.reserved = 0
            seq.end("length" if seq.produced >= seq.answer else "stop")

    def _count(self, decoded: bool, prefilled: bool, seconds: float) -> None:
        if decoded and prefilled:
            self.mixed_steps += 1
        elif decoded:
            self.decode_steps += 1
            self.decode_seconds += seconds
        elif prefilled:
            self.prefill_steps += 1

    def stop(self) -> None:
        """The step in flight is done; nothing more comes."""
        self.stopping = True
        for seq in self.all():
            seq.error = "the server is shutting down"
            seq.end("error")

    def all(self) -> Iterator[Sequence]:
        """Every unfinished sequence."""
        yield from list(self.waiting)
        yield from list(self.running)
