"""The prefill leg: prompts of the very sizes that predictions name, one at a time, nothing beside them."""

from __future__ import annotations

import asyncio
from functools import partial

from archonctl.probe.calibrate import calibrate
from archonctl.probe.engine import count_tokens, must_be_alone, wait_idle
from archonctl.probe.faults import unseen
from archonctl.probe.predictions import prefill_sizes
from archonctl.probe.sampling import timed
from archonctl.probe.session import Session
from archonctl.probe.values import Figure, Leg

LEG = "prefill"
_FIRST_PROMPT = 12
_ANSWER = 2
_LEAST_S = 0.005
"""Below this a time to the first token is mostly the way there and back."""


async def prefill(session: Session) -> Leg:
    """Measure every size that fits in the contract's length. Raises Fault."""
    sizes = prefill_sizes(session.endpoint.predict)
    fitting = {name: tokens for name, tokens in sizes.items() if tokens + _ANSWER <= session.contract.len}
    if not fitting:
        said = "no prediction of a prefill" if not sizes else "no predicted size fits in the contract's length"
        return Leg(LEG, "skip", said, required=False)
    shape, pace = await calibrate(session, LEG)
    numbers: dict[str, Figure] = {}
    for index, (name, tokens) in enumerate(fitting.items()):
        await wait_idle(session)
        prompt = await session.prompts.sized(_FIRST_PROMPT + index, tokens, partial(count_tokens, session))
        session.tell(LEG, 0, prompt.tokens, f"one prompt of {prompt.tokens:,} tokens alone")
        bound_s = session.deadline_s or max(session.limits.floor_s, pace.prefill_bound_s(tokens))
        try:
            async with asyncio.timeout(bound_s):
                once = await timed(session, shape, prompt.text, _ANSWER)
        except TimeoutError:
            raise unseen("deadline-reached", f"{prompt.tokens:,} tokens were not read in {bound_s:.0f} s") from None
        await must_be_alone(session)
        counted = once.seen.prompt_tokens
        if counted is None or once.ttft_s < _LEAST_S:
            continue
        numbers[name] = round(counted / once.ttft_s, 1)
    said = ", ".join(f"{value:,} tokens/s ({name})" for name, value in numbers.items())
    if not said:
        raise unseen("interference-unseen", "the engine was too quick, or did not count its prompts: no prefill figure")
    return Leg(LEG, "pass", said, required=False, numbers=numbers)
