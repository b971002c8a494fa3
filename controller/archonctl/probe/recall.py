"""The recall leg: a fact from the beginning of a full-height prompt can be asked back.

Only asked for by name: it judges the model and its window together. A model that cannot do it over a short distance
either proves nothing, so a short one is asked first.
"""

from __future__ import annotations

import json
import secrets
from functools import partial

from archonctl.probe.answers import Generation, read_generation
from archonctl.probe.budget import RECALL_ANSWER, RECALL_NEAR, RECALL_TRIES
from archonctl.probe.calibrate import calibrate
from archonctl.probe.capacity_judge import truncated
from archonctl.probe.engine import count_tokens, wait_idle
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.patience import patiently
from archonctl.probe.session import Session
from archonctl.probe.values import Leg

LEG = "recall"
ROOM = 160
"""Tokens for the fact, the question and a chat template."""
_FIRST_PROMPT = 8


async def recall(session: Session) -> Leg:
    """Ask near, then at full height, twice if need be. Raises Fault."""
    length = session.contract.len
    if length < RECALL_NEAR + RECALL_ANSWER + ROOM:
        return Leg(LEG, "skip", f"{length:,} tokens are no distance to forget over", required=False)
    await wait_idle(session)
    _shape, pace = await calibrate(session, LEG)
    bound_s = session.limits.generation_s
    if not await _knows(session, _FIRST_PROMPT, RECALL_NEAR, bound_s):
        raise unseen(
            "recall-unseen", f"the model does not say a number back over {RECALL_NEAR:,} tokens: no height tells more"
        )
    height = length - RECALL_ANSWER - ROOM
    bound_s = session.deadline_s or min(session.limits.cap_s, session.limits.floor_s + pace.prefill_bound_s(height))
    for attempt in range(1, RECALL_TRIES + 1):
        if await _knows(session, _FIRST_PROMPT + attempt, height, bound_s):
            said = f"a number from the beginning of {height:,} tokens was said back"
            return Leg(LEG, "pass", said, required=False, numbers={"recall_tokens": height, "attempts": attempt})
    raise Fault(
        "recall-lost",
        f"a number from the beginning of {height:,} tokens was not said back in {RECALL_TRIES} attempts, "
        f"over {RECALL_NEAR:,} it was",
        expected="the number",
        actual="something else",
    )


async def _knows(session: Session, index: int, target: int, bound_s: float) -> bool:
    """True if the answer, or the thinking before it, holds the number."""
    session.tell(LEG, 0, target, f"a number at the beginning of {target:,} tokens")
    prompt = await session.prompts.sized(index, target, partial(count_tokens, session))
    number = str(secrets.randbelow(9_000_000) + 1_000_000)
    text = (
        f"The secret number is {number}. Remember it.\n\nHere are many words that do not matter:\n{prompt.text}\n\n"
        "What is the secret number from the very beginning? Reply with the number alone."
    )
    request: dict[str, object] = {"messages": [{"role": "user", "content": text}], "max_tokens": RECALL_ANSWER}
    request |= {"stream": False, "temperature": 0} | ({"model": session.model} if session.model else {})
    try:
        body, limits = json.dumps(request).encode(), session.limits
        answer = await patiently(lambda: session.http.post(session.api.chat, body, bound_s, limits.body_bytes))
    except Fault as fault:
        raise unseen("recall-unseen", f"the question was not answered: {fault.message}") from fault
    found = read_generation(session.http.json(answer, session.api.chat)) if answer.status == 200 else None
    if found is None:
        said = session.http.excerpt(answer.body)
        raise unseen("recall-unseen", f"HTTP {answer.status} to the question: {said}", evidence=said)
    if found.prompt_tokens and found.prompt_tokens < prompt.tokens:
        raise truncated(prompt.tokens, found.prompt_tokens)
    if number in (found.text + found.reasoning).replace(",", "").replace(" ", ""):
        return True
    if found.finish_reason == "length" and _still_thinks(found):
        raise unseen(
            "recall-unseen", f"the model still thought about it when its {RECALL_ANSWER:,} tokens were used up"
        )
    return False


def _still_thinks(found: Generation) -> bool:
    """True if an answer was cut before it began."""
    return not found.text or ("<think>" in found.text and "</think>" not in found.text)
