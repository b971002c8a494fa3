"""Were the sequences held at once? Decided from what the streams showed, and from nothing else.

Pure: ticks in, a judgement out. Two ways to be fooled are met here. A server that serialises looks concurrent if its
answers pile up unread, so every sequence must visibly advance, in separate reads, while all are past prefill. And a
client that was not scheduled for a moment sees events of a very fast engine in the wrong order, so "not at once" is
only said if the late sequence came late by as much as its own prefill takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

TickKind = Literal["sent", "token", "finish"]

READ_GAP_S = 0.0005
"""Two ticks further apart than this were not in one read of the socket."""
WORKED_SHARE = 0.75
"""Reads a token of a late answer, as a share of the first one's, at least. An engine that had let it in during the
first half of the first answer and held its text back would show at most half of it bit by bit."""
BITS = 16
"""Reads of the first answer, at least, before anything is concluded from what another one did not show meanwhile. A
proxy may pass an answer on in pieces of some kilobytes, or whole: each stream is seen late by one piece then."""
STALL_S = 2.0


@dataclass(frozen=True, slots=True)
class Tick:
    """One event of one stream: sent, a token (``tokens`` answered so far), or the end of the answer.

    ``read``: the number of the look at the sockets in which it was seen; events of one stream and one look came in one
    piece. None where that was not noted: events less than ``READ_GAP_S`` apart did.
    """

    at: float
    stream: int
    kind: TickKind
    tokens: int = 0
    read: int | None = None

    def is_of(self, read: Tick) -> bool:
        """True if it came in one piece with ``read``, the first one of a piece of this stream."""
        if self.read is None or read.read is None:
            return self.at - read.at <= READ_GAP_S
        return self.read == read.read


@dataclass(frozen=True, slots=True)
class Hold:
    """What the ticks prove.

    ``at_once``: most sequences past prefill and unfinished at one moment. ``together``: all of them advanced while all
    were past prefill. ``peak_tokens``: most tokens of prompts and answers held at one moment, at least.
    ``late_s``: how long after the first end the last first token came; negative if before. ``stalled``: sequences
    that had stopped advancing when the first one ended. ``worked_late``: each late or stalled sequence was seen to
    generate its answer after the first end, bit by bit: what an engine merely holds back comes in one piece.
    """

    at_once: int
    together: bool
    peak_tokens: int
    late_s: float | None
    stalled: tuple[int, ...] = ()
    worked_late: bool = False


def judge_hold(ticks: Sequence[Tick], prompts: Mapping[int, int], answers: Mapping[int, int] | None = None) -> Hold:
    """Judge ``ticks`` (in the order seen) of the streams in ``prompts`` (prompt tokens by stream).

    ``answers``: tokens of each whole answer as the engine counted them at its end. An event may carry several
    (speculative decoding): what a stream had at one moment is then taken in proportion.
    """
    ticks = _scaled(ticks, answers or {})
    live: dict[int, int] = {}
    started: set[int] = set()
    at_once = peak = held = 0
    for tick in ticks:
        if tick.kind == "sent":
            continue
        if tick.stream not in started:
            started.add(tick.stream)
            live[tick.stream] = 0
            held += prompts[tick.stream]
        if tick.stream in live:
            held += max(0, tick.tokens - live[tick.stream])
            live[tick.stream] = max(live[tick.stream], tick.tokens)
        if _first_tick(tick):
            at_once, peak = max(at_once, len(live)), max(peak, held)
        if tick.kind == "finish" and tick.stream in live:
            held -= prompts[tick.stream] + live.pop(tick.stream)
    firsts = _first(ticks, ("token", "finish"))
    ends = _first(ticks, ("finish",))
    all_in = max(firsts.values()) if len(firsts) == len(prompts) else None
    first_end = min(ends.values(), default=None)
    stalled = _stalled(ticks, prompts)
    return Hold(
        at_once=at_once,
        together=at_once == len(prompts) and _advanced(ticks, prompts),
        peak_tokens=peak,
        late_s=all_in - first_end if all_in is not None and first_end is not None else None,
        stalled=stalled,
        worked_late=_worked_late(ticks, prompts, stalled),
    )


def _scaled(ticks: Sequence[Tick], answers: Mapping[int, int]) -> Sequence[Tick]:
    last = {tick.stream: tick.tokens for tick in ticks}
    scale = {s: answers[s] / n for s, n in last.items() if n and answers.get(s, 0) > n}
    if not scale:
        return ticks
    return [replace(t, tokens=int(t.tokens * scale[t.stream])) if t.stream in scale else t for t in ticks]


def _worked_late(ticks: Sequence[Tick], prompts: Mapping[int, int], stalled: tuple[int, ...]) -> bool:
    """True if every late or stalled stream advanced after the first end, in as many reads a token as the first one,
    which was seen bit by bit."""
    end = next((i for i, tick in enumerate(ticks) if tick.kind == "finish"), None)
    if end is None:
        return False
    first, began = ticks[end].stream, {tick.stream for tick in ticks[:end] if tick.kind == "token"}
    shown = len(_reads(ticks[: end + 1], first))
    if shown < BITS:
        return False
    pattern = shown / max(1, ticks[end].tokens)
    late = [stream for stream in prompts if stream != first and (stream not in began or stream in stalled)]
    for stream in late:
        before = max((t.tokens for t in ticks[:end] if t.stream == stream), default=0)
        whole = max((t.tokens for t in ticks if t.stream == stream), default=0)
        if whole <= before or len(_reads(ticks[end:], stream)) < WORKED_SHARE * pattern * (whole - before):
            return False
    return bool(late)


def _reads(ticks: Iterable[Tick], stream: int) -> list[float]:
    """When a stream's tokens came, piece by piece."""
    reads: list[Tick] = []
    for tick in ticks:
        if tick.stream == stream and tick.kind == "token" and not (reads and tick.is_of(reads[-1])):
            reads.append(tick)
    return [each.at for each in reads]


def _first_tick(tick: Tick) -> bool:
    return tick.kind in ("token", "finish")


def _first(ticks: Iterable[Tick], kinds: tuple[str, ...]) -> dict[int, float]:
    found: dict[int, float] = {}
    for tick in ticks:
        if tick.kind in kinds:
            found.setdefault(tick.stream, tick.at)
    return found


def _advanced(ticks: Sequence[Tick], prompts: Mapping[int, int]) -> bool:
    """True if between the last first token and the first end every stream advanced in two reads of its own."""
    if len(prompts) == 1:
        return True
    started: set[int] = set()
    reads: dict[int, list[Tick]] = {stream: [] for stream in prompts}
    for tick in ticks:
        if tick.kind == "sent":
            continue
        if len(started) == len(prompts):
            own = reads[tick.stream]
            if not (own and tick.is_of(own[-1])):
                own.append(tick)
        if tick.kind == "finish":
            break
        started.add(tick.stream)
    return all(len(own) >= 2 for own in reads.values())


def _stalled(ticks: Sequence[Tick], prompts: Mapping[int, int]) -> tuple[int, ...]:
    """Streams past prefill that stood still while the first one to end still generated its last tokens."""
    end = next((i for i, tick in enumerate(ticks) if tick.kind == "finish"), None)
    if end is None:
        return ()
    own = _reads(ticks[:end], ticks[end].stream)
    last = {tick.stream: tick.at for tick in ticks[:end] if tick.kind == "token"}
    if len(own) <= BITS:
        return ()
    since = min(own[-BITS], ticks[end].at - STALL_S)
    return tuple(stream for stream in prompts if stream in last and last[stream] < since)
