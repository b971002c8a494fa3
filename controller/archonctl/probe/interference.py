"""The interference leg: what a conversation feels while another one's prompt is read; drafts; the prefix cache."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from archonctl.probe.budget import ALONE_TOKENS, disturbing_tokens
from archonctl.probe.calibrate import calibrate
from archonctl.probe.engine import count_tokens, must_be_alone, wait_idle
from archonctl.probe.faults import unseen
from archonctl.probe.prompts import Prompt
from archonctl.probe.sampling import Counters, Timed, acceptance, counters, hit_rate, median_ms, step_ms, timed
from archonctl.probe.session import Session
from archonctl.probe.shape import Shape
from archonctl.probe.values import Figure, Leg

LEG = "interference"
LEAST_GAPS = 4
_ANSWERING, _PREFILLING = 3, 4


async def interference(session: Session) -> Leg:
    """Measure; nothing is promised of these figures, so that a measured one passes. Raises Fault."""
    await wait_idle(session)
    shape, _pace = await calibrate(session, LEG)
    length = session.contract.len
    size = partial(count_tokens, session)
    prompt = await session.prompts.sized(_PREFILLING, disturbing_tokens(length), size)
    numbers = await _disturbed(session, shape, prompt)
    await must_be_alone(session)
    numbers |= await _twice(session, shape, prompt)
    await must_be_alone(session)
    return Leg(LEG, "pass", _words(numbers), required=False, numbers=numbers)


async def _disturbed(session: Session, shape: Shape, prompt: Prompt) -> dict[str, Figure]:
    """One stream alone for a while, then beside the prefill of ``prompt``."""
    loop = asyncio.get_running_loop()
    bound_s = session.deadline_s or session.limits.floor_s + session.limits.calibrate_s
    budget = max(2, min(session.contract.len // 2, 32 * ALONE_TOKENS))
    zero = await counters(session)
    watch = Timed(loop.time())
    session.tell(LEG, 0, prompt.tokens, "one conversation alone")
    stream = asyncio.create_task(timed(session, shape, session.prompts.text(_ANSWERING, 8), budget, watch))
    try:
        async with asyncio.timeout(bound_s):
            while watch.seen.tokens < min(ALONE_TOKENS, budget // 4) and not stream.done():
                await asyncio.sleep(0.01)
            if stream.done():
                stream.result()
            alone = await counters(session)
            session.tell(LEG, 0, prompt.tokens, f"a prompt of {prompt.tokens:,} tokens beside it")
            sent = loop.time()
            other = await timed(session, shape, prompt.text, 2)
            until = other.reads[0] if other.reads else loop.time()
            was_there = not stream.done()
            after = await counters(session)
    except TimeoutError:
        raise unseen("interference-unseen", f"no figures in {bound_s:.0f} s") from None
    else:  # a stream that is cut off may pass for somebody else's until the engine notices
        await asyncio.wait({stream}, timeout=session.limits.idle_s)
    finally:
        cut_off = stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
    if cut_off:
        await wait_idle(session)
    return _figures(watch, (watch.sent, sent, until), (zero, alone, after), other, was_there)


def _figures(
    watch: Timed,
    moments: tuple[float, float, float],
    counted: tuple[Counters, Counters, Counters],
    other: Timed,
    was_there: bool,
) -> dict[str, Figure]:
    began, sent, until = moments
    zero, alone, after = counted
    before, during = watch.gaps_s(began, sent), watch.gaps_s(sent, until)
    if len(before) < LEAST_GAPS or not during or not was_there:
        raise unseen(
            "interference-unseen",
            f"{len(before):,} steps alone and {len(during):,} beside a prefill were seen: too few to tell"
            + ("" if was_there else ", the first answer had ended before"),
            expected=f"{LEAST_GAPS} steps alone and 1 beside a prefill",
            actual=f"{len(before):,} and {len(during):,}",
        )
    own = step_ms(zero, alone)
    tokens, span = watch.seen.tokens, max(watch.reads[-1] - watch.reads[0], 1e-6)
    numbers: dict[str, Figure] = {
        "step_ms": own if own is not None else median_ms(before),
        "step_ms_source": "engine counter" if own is not None else "pauses of the stream",
        "step_ms_with_prefill": median_ms(during),
        "longest_pause_ms": round(max(during) * 1000, 2),
        "prefill_beside_s": round(until - sent, 3),
        "decode_tps": round(_rate(watch, began, sent, tokens / len(watch.reads)), 2),
        "decode_tps_with_prefill": round(_rate(watch, sent, until, tokens / len(watch.reads)), 2),
        "answer_span_s": round(span, 3),
    }
    drafts = acceptance(zero, after, (watch.seen, other.seen))
    return numbers if drafts is None else numbers | {"draft_acceptance": drafts}


def _rate(watch: Timed, since: float, until: float, tokens_per_read: float) -> float:
    """Tokens a second between two moments."""
    start = max(since, watch.reads[0])
    reads = sum(1 for at in watch.reads if start < at <= until)
    return reads * tokens_per_read / max(until - start, 1e-6)


async def _twice(session: Session, shape: Shape, prompt: Prompt) -> dict[str, Figure]:
    """The same new prompt twice, the prefix cache allowed: how much of it the second time found there."""
    cached = replace(shape, extra={k: (True if k == "cache_prompt" else v) for k, v in shape.extra.items()})
    text = session.prompts.text(_PREFILLING + 1, prompt.text.count(" ") + 1)
    found: dict[str, Figure] = {}
    for name in ("cold", "warm"):
        session.tell(LEG, 0, prompt.tokens, f"the prefix cache, {name}")
        before = await counters(session)
        bound_s = session.deadline_s or session.limits.floor_s + session.limits.calibrate_s
        try:
            async with asyncio.timeout(bound_s):
                once = await timed(session, cached, text, 2)
        except TimeoutError:
            raise unseen("interference-unseen", f"a repeated prompt was not answered in {bound_s:.0f} s") from None
        rate = hit_rate(before, await counters(session), once.seen)
        found[f"ttft_{name}_s"] = round(once.ttft_s, 4)
        if rate is not None:
            found[f"prefix_hit_rate_{name}"] = rate
    return found


def _words(numbers: dict[str, Figure]) -> str:
    said = [f"a step takes {numbers['step_ms']} ms alone, {numbers['step_ms_with_prefill']} ms beside a prefill"]
    if "draft_acceptance" in numbers:
        said.append(f"{numbers['draft_acceptance']:.1%} of the drafts accepted")
    if "prefix_hit_rate_warm" in numbers:
        said.append(f"{numbers['prefix_hit_rate_warm']:.1%} of a repeated prompt from the prefix cache")
    return "; ".join(said)
