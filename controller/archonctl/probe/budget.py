"""How many answer tokens prove that sequences were held at once, how long that may take, what it costs. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.deployment.schema import Contract, Endpoint
from archonctl.probe.calibration import calibration_tokens
from archonctl.probe.limits import Limits
from archonctl.probe.pace import Pace
from archonctl.probe.predictions import foretold, prefill_sizes
from archonctl.probe.values import Cost, Depth, Extras

LEAST_ANSWER = 32
OVERLAP_S = 1.0
"""Wall time for which all sequences should be seen to advance together, where the contract's length allows it."""
UNMEASURED_STEPS = 1 / 128
"""Answer tokens a prompt token where it could not be measured: a prefill chunk of 128, smaller than any default."""
SURE_STEPS = 1 / 64
SECOND_TRY = 8
_LADDER_TOKENS, _LADDER_REQUESTS = 64, 4
_PAIR_TOKENS, _PAIR_REQUESTS = 512, 3
_SIZING_ROUNDS = 4
REFUSAL_OVER = 64
ALONE_TOKENS = 128
"""Answer tokens that the interference leg looks at alone; after that the other prompt is sent."""
_LARGEST_DISTURBING = 16_384
RECALL_NEAR, RECALL_ANSWER, RECALL_TRIES = 512, 512, 2
"""Tokens over which the recall leg asks first; answer tokens (a reasoning model thinks first); tries at full height."""
NOTHING_MORE = Extras()


def answer_tokens(contract: Contract, pace: Pace, attempt: int) -> int:
    """Answer tokens a sequence, so that the first one still answers when the last one is past its prefill.

    While one sequence prefills, the others generate ``steps_per_token`` tokens for each of its prompt tokens; twice
    what that takes, and eight times that in the second attempt. At most half of the sequence.
    """
    most = max(1, contract.len // 2)
    overlap = min(math.ceil(OVERLAP_S / max(pace.step_s, 1e-6)), contract.len // 16)
    wanted = math.ceil(2 * needed_tokens(contract, pace)) + LEAST_ANSWER + overlap
    if attempt > 1:
        wanted = max(SECOND_TRY * wanted, math.ceil((contract.seqs - 1) * contract.len * SURE_STEPS))
    return min(most, wanted)


def shorter(answer: int) -> int:
    """Answer tokens after sequences were seen together, but too far apart: the longer they answer, the further."""
    return max(min(LEAST_ANSWER, answer), answer // 2)


def needed_tokens(contract: Contract, pace: Pace) -> float:
    """Answer tokens that the first sequence generates while all others prefill, by the measured pace."""
    steps = UNMEASURED_STEPS if pace.steps_per_token is None else pace.steps_per_token
    return steps * (contract.seqs - 1) * contract.len


def is_generous(contract: Contract, pace: Pace, answer: int, attempt: int) -> bool:
    """True if an answer that long must have overlapped on an engine that holds all sequences at once."""
    needed = needed_tokens(contract, pace)
    sure = (contract.seqs - 1) * (contract.len - answer) * SURE_STEPS
    return answer >= max(sure, 2 * needed) or (attempt > 1 and answer >= 4 * needed)


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. ``first_s`` until every sequence has its first token, then ``answer_s`` more until all have ended.

    Both are extended while something comes, unless the caller set the deadline (``extends``).
    ``needed_s`` is what a sound engine of the measured pace may take to the first tokens: a silence shorter than that
    is never called a hang. Where answers come in one piece, that includes the answers.
    """

    first_s: float
    answer_s: float
    needed_s: float
    extends: bool = True

    @classmethod
    def derive(cls, contract: Contract, pace: Pace, answer: int, limits: Limits, asked_s: float | None) -> Deadlines:
        """From the measured pace, between a floor and a cap; ``asked_s`` replaces both, and is for the whole leg."""
        needed = contract.seqs * pace.prefill_bound_s(contract.len - answer)
        answering = answer * max(0.2, 20 * pace.step_s)
        if pace.in_one_piece:
            needed += answering
        if asked_s is not None:
            return cls(asked_s, 0.0, max(limits.hang_s, needed), extends=False)
        first = min(limits.cap_s, max(limits.floor_s, needed))
        return cls(first, min(limits.cap_s, limits.floor_s + answering), max(limits.hang_s, needed))


def prefill_cost(sizes: Mapping[str, int]) -> Cost:
    """What the prompts of named sizes cost."""
    return Cost(sum(sizes.values()) + 2 * len(sizes), (_SIZING_ROUNDS + 1) * len(sizes), "prefill")


def interference_cost(length: int) -> Cost:
    """One answer, and a prompt beside it, then another one twice."""
    return Cost(ALONE_TOKENS * 32 + 3 * disturbing_tokens(length), _SIZING_ROUNDS + 4, "interference")


def disturbing_tokens(length: int) -> int:
    """Tokens of the prompt that disturbs, for a contract of ``length`` tokens a sequence."""
    return max(1, min(_LARGEST_DISTURBING, length // 2))


def recall_cost(length: int) -> Cost:
    """A near question, and one or two at full height."""
    asked = RECALL_NEAR + RECALL_ANSWER + RECALL_TRIES * length
    return Cost(asked, (_SIZING_ROUNDS + 1) * (1 + RECALL_TRIES), "recall")


def estimate(endpoint: Endpoint, depth: Depth = "full", window: int | None = None) -> Cost:
    """What a probe of that depth asks of the engine at most, without a second attempt: told before it runs."""
    found = costs(endpoint, depth, window=window)
    return Cost(sum(each.tokens for each in found), sum(each.requests for each in found))


def costs(
    endpoint: Endpoint, depth: Depth = "full", extras: Extras = NOTHING_MORE, window: int | None = None
) -> tuple[Cost, ...]:
    """The same leg by leg, with the legs that run only if asked for.

    ``window`` is the engine's own window where it is known (the refusal leg sends one request above it).
    """
    contract = endpoint.contract
    ladder = Cost(_LADDER_TOKENS, _LADDER_REQUESTS, "ladder")
    if depth == "ledger":
        return (ladder,)
    pair = calibration_tokens(contract.len) + _PAIR_TOKENS
    sizing = _SIZING_ROUNDS * (contract.seqs + 1)
    capacity = Cost(pair + contract.tokens, 4 + _PAIR_REQUESTS + sizing + contract.seqs, "capacity")
    refusal = Cost(max(contract.len, window or 0) + REFUSAL_OVER, _SIZING_ROUNDS + 1, "refusal")
    found = [ladder, capacity, refusal]
    if sizes := prefill_sizes(endpoint.predict):
        found.append(prefill_cost(sizes))
    if extras.interference or foretold(endpoint.predict, "interference"):
        found.append(interference_cost(contract.len))
    if extras.recall:
        found.append(recall_cost(contract.len))
    return tuple(found)
