"""Single streams measured: when each read came, how long the first token took, what the counters did. No judgement."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from archonctl.probe.engine import read_text
from archonctl.probe.faults import Fault
from archonctl.probe.hold import READ_GAP_S
from archonctl.probe.metrics import samples
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.stream import Change, Seen, run_stream

_DRAFTED = frozenset({"vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"})
_ACCEPTED = frozenset({"vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"})
_ACCEPTANCE = frozenset(
    {"radiance:draft_acceptance_ratio", "sglang:spec_accept_rate", "vllm:spec_decode_draft_acceptance_rate"}
)
_STEPS = frozenset({"radiance:engine_steps_decode_total"})
_STEP_SECONDS = frozenset({"radiance:engine_step_seconds_decode_total"})
_HITS = frozenset({"vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits"})
_QUERIES = frozenset({"vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries"})


@dataclass(slots=True)
class Timed:
    """One stream as it came: ``reads`` are the moments of separate reads after it was sent at ``sent``; seconds."""

    sent: float
    reads: list[float] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen)
    first: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, change: Change, seen: Seen) -> None:
        if change not in ("token", "finish"):
            return
        now = asyncio.get_running_loop().time()
        self.seen = seen
        if not self.reads or now - self.reads[-1] > READ_GAP_S:
            self.reads.append(now)
        self.first.set()

    @property
    def ttft_s(self) -> float:
        """Seconds from the request to its first token."""
        return self.reads[0] - self.sent if self.reads else 0.0

    def gaps_s(self, since: float, until: float) -> list[float]:
        """Seconds between reads of which at least a part lies between the two moments."""
        return [b - a for a, b in zip(self.reads, self.reads[1:], strict=False) if b > since and a < until]


async def timed(session: Session, shape: Shape, text: str, answer: int, watch: Timed | None = None) -> Timed:
    """One stream from its request to its end. Raises Fault."""
    watch = watch or Timed(asyncio.get_running_loop().time())
    watch.seen = await run_stream(session, shape, text, answer, watch)
    return watch


def median_ms(gaps_s: Sequence[float]) -> float:
    """The median of some pauses, in milliseconds."""
    return round(statistics.median(gaps_s) * 1000, 2)


@dataclass(frozen=True, slots=True)
class Counters:
    """What the engine has counted so far; None where it does not."""

    drafted: float | None = None
    accepted: float | None = None
    acceptance: float | None = None
    steps: float | None = None
    step_seconds: float | None = None
    hits: float | None = None
    queries: float | None = None


async def counters(session: Session) -> Counters:
    """All of them, now; empty where there are no metrics or they cannot be read."""
    try:
        text = await read_text(session, session.api.metrics) or ""
    except Fault:
        return Counters()
    names = (_DRAFTED, _ACCEPTED, _ACCEPTANCE, _STEPS, _STEP_SECONDS, _HITS, _QUERIES)
    return Counters(*(samples(text, each) for each in names))


def step_ms(before: Counters, after: Counters) -> float | None:
    """The engine's own decode-only step between two moments, in milliseconds; None where it does not count them."""
    if None in (before.steps, before.step_seconds, after.steps, after.step_seconds):
        return None
    steps = (after.steps or 0) - (before.steps or 0)
    seconds = (after.step_seconds or 0) - (before.step_seconds or 0)
    return round(1000 * seconds / steps, 3) if steps > 0 else None


def acceptance(before: Counters, after: Counters, seen: Sequence[Seen]) -> float | None:
    """Draft tokens that were accepted, as a share: of this very time by counters or by answers, else since the boot."""
    if before.drafted is not None and after.drafted is not None and after.drafted > before.drafted:
        return round(((after.accepted or 0) - (before.accepted or 0)) / (after.drafted - before.drafted), 4)
    drafted = sum(each.drafted for each in seen)
    if drafted:
        return round(sum(each.accepted for each in seen) / drafted, 4)
    return None if after.acceptance is None or not after.acceptance else round(after.acceptance, 4)


def hit_rate(before: Counters, after: Counters, seen: Seen) -> float | None:
    """Prompt tokens that were served from the prefix cache, as a share of one prompt; None if nothing tells."""
    if seen.cached_tokens is not None and seen.prompt_tokens:
        return round(min(1.0, seen.cached_tokens / seen.prompt_tokens), 4)
    if None in (before.hits, before.queries, after.hits, after.queries):
        return None
    queries = (after.queries or 0) - (before.queries or 0)
    return round(((after.hits or 0) - (before.hits or 0)) / queries, 4) if queries > 0 else None
