"""What a flight of full-height requests proves. Pure: what was seen in, a leg out; the same again for a stored one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from archonctl.deployment.schema import Contract
from archonctl.probe.faults import Fault, unseen
from archonctl.probe.hold import Hold
from archonctl.probe.readback import read_back
from archonctl.probe.values import Leg

LEG = "capacity"
COUNTING_SLACK = 2
"""Engines differ by a token or two in what they count into a window (BOS, the last sampled token)."""
COUNTING_MORE = 16
"""How much more than was sent it may count: as much as a prompt may be off its wanted size."""
LEAST_SHARE = 0.95
"""Share of the contract's tokens that must be seen at one moment. The first sequence to end is at full height then and
the others are behind it by what they prefilled later; the exact pool is the ledger's word."""
_LEAST_LATE_S = 0.05
_STREAMS_KEPT = 1024
ABORTED = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Answered:
    """One sequence: what was sent, what the engine counted, how it ended. Tokens; None where it was not told."""

    sent: int
    asked: int
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str
    seen_tokens: int


@dataclass(frozen=True, slots=True)
class Flown:
    """Everything that the judgement of a flight rests on.

    ``hold`` is None at depth "admission". ``visible``: raw completions, or all streams count as they go.
    ``generous``: the answers were long enough that an engine with room must have let all in. ``queued``: the engine
    itself said that not all of ours ran. ``lag_s``: by how much this client was late. ``preempted``: by its counter.
    """

    streams: tuple[Answered, ...]
    hold: Hold | None = None
    visible: bool = False
    generous: bool = False
    queued: bool = False
    slots: int | None = None
    lag_s: float = 0.0
    preempted: float | None = None
    others: int = 0


def flown_json(flown: Flown) -> dict[str, object]:
    """As plain JSON values; empty for so many streams that it would be no record but a dump."""
    if len(flown.streams) > _STREAMS_KEPT:
        return {}
    hold = {**asdict(flown.hold), "stalled": list(flown.hold.stalled)} if flown.hold else None
    return {**asdict(flown), "streams": [asdict(each) for each in flown.streams], "hold": hold}


def flown_from(value: Mapping[str, object]) -> Flown:
    """The reverse. Raises TypeError or ValueError for anything else."""
    return read_back(Flown, value)


def judge_flown(flown: Flown, contract: Contract) -> Leg:
    """The leg. Raises Fault for anything but a pass."""
    _whole(flown, contract)
    if flown.hold is None:
        said = f"{_promise(contract)} were admitted and began to answer; not held at once"
        return Leg(LEG, "pass", said, observed=flown_json(flown))
    if flown.preempted:
        raise _unless_others(
            flown,
            Fault(
                "preempted",
                f"the engine preempted {flown.preempted:,.0f} sequences while the contract was held: "
                "the pool is too small",
                expected="0 preemptions",
                actual=f"{flown.preempted:,.0f} preemptions",
            ),
        )
    fault = _not_held(flown, flown.hold, contract)
    if fault is not None:
        raise _unless_others(flown, fault)
    return _proven(flown, flown.hold, contract)


def _unless_others(flown: Flown, fault: Fault) -> Fault:
    """Where others took room and time meanwhile, nothing is said of the engine alone."""
    if not flown.others or fault.status != "fail":
        return fault
    said = f"{flown.others:,} requests of others ran meanwhile, and this proves nothing then: {fault.message}"
    return unseen("engine-busy", said, expected="0 requests of others", actual=f"{flown.others:,} requests")


def _proven(flown: Flown, hold: Hold, contract: Contract) -> Leg:
    tokens = contract.tokens
    lowest = min(each.sent + max(each.seen_tokens, each.completion_tokens or 0) for each in flown.streams)
    ended = f" (the shortest ended at {lowest:,})" if lowest < contract.len else ""
    return Leg(
        LEG,
        "pass",
        f"{_promise(contract)} were held at once and answered{ended}: "
        f"at least {min(hold.peak_tokens, tokens):,} of {tokens:,} tokens at one moment",
        expected=f"{contract.seqs} at once",
        actual=f"{hold.at_once} at once",
        observed=flown_json(flown),
    )


def _promise(contract: Contract) -> str:
    return f"{contract.seqs:,} x {contract.len:,} tokens"


def _whole(flown: Flown, contract: Contract) -> None:
    """Raise Fault if a prompt was cut or an answer was stopped below its height."""
    for each in flown.streams:
        if each.prompt_tokens is None:
            raise unseen(
                "prompt-tokens-unreported",
                "the engine does not say how many prompt tokens it took: a cut prompt would look like a whole one",
                expected=f"{each.sent:,} prompt tokens",
                actual="none",
            )
        if each.prompt_tokens < each.sent:
            raise truncated(each.sent, each.prompt_tokens)
        if each.prompt_tokens > each.sent + COUNTING_MORE:
            raise unseen(
                "prompt-not-sizable",
                f"a prompt of {each.sent:,} tokens was sent, the engine counts {each.prompt_tokens:,}: more than it "
                "adds to a shorter one, so that its tokenizer path and its usage contradict each other",
                expected=f"{each.sent:,} prompt tokens",
                actual=f"{each.prompt_tokens:,} prompt tokens",
            )
        if each.finish_reason in ABORTED:
            raise _unless_others(flown, _aborted(each))
        done = each.completion_tokens
        if each.finish_reason == "length" and done is not None and done < each.asked - COUNTING_SLACK:
            raise _cut(each, done, contract)


def _aborted(each: Answered) -> Fault:
    return Fault(
        "answer-aborted",
        f"the engine gave a sequence up after {each.seen_tokens:,} tokens: finish_reason {each.finish_reason}",
        expected="finish_reason length or stop",
        actual=f"finish_reason {each.finish_reason}",
    )


def _cut(each: Answered, done: int, contract: Contract) -> Fault:
    return Fault(
        "answer-cut",
        f"a sequence was stopped at {each.sent + done:,} tokens, "
        f"{each.asked - done:,} below the contract's {contract.len:,}",
        expected=f"{each.sent + each.asked:,} tokens",
        actual=f"{each.sent + done:,} tokens",
    )


def truncated(sent: int, counted: int) -> Fault:
    """The fault for a prompt that arrived shorter than it was."""
    return Fault(
        "prompt-truncated",
        f"a prompt of {sent:,} tokens was sent, the engine worked on {counted:,}: {sent - counted:,} are missing",
        expected=f"{sent:,} prompt tokens",
        actual=f"{counted:,} prompt tokens",
    )


def _not_held(flown: Flown, hold: Hold, contract: Contract) -> Fault | None:
    """Why the sequences were not held at once, or cannot be said to have been; None if they were."""
    seqs, wanted = contract.seqs, f"{contract.seqs} at once"
    if hold.stalled:
        code, moving = "sequence-stalled", seqs - len(hold.stalled)
        said = f"{len(hold.stalled)} of {seqs} sequences stood still until another one had ended"
        proven = flown.visible and hold.worked_late
    elif hold.at_once < seqs:
        code, moving = "not-held-at-once", hold.at_once
        said = f"at most {hold.at_once} of {seqs} sequences were held at once, the others came when one had ended"
        proven = (flown.slots is not None and flown.slots < seqs) or _waited(flown, hold)
    else:
        return _too_low(flown, hold, contract)
    if proven:
        return Fault(code, said, expected=wanted, actual=f"{moving} at once")
    return _unproven(f"all were admitted; as far as was seen, {said}{short_answers(flown)}", wanted, hold)


def _too_low(flown: Flown, hold: Hold, contract: Contract) -> Fault | None:
    """What is missing although all were past their prefill at one moment."""
    wanted = f"{contract.seqs} at once"
    if not hold.together:
        return _unproven("all were admitted, but were not seen to advance together", wanted, hold)
    if hold.peak_tokens < LEAST_SHARE * contract.tokens:
        height = f"{hold.peak_tokens:,} of {contract.tokens:,} tokens"
        return _unproven(f"all were held at once, but only at {height}{short_answers(flown)}", wanted, hold)
    return None


def _waited(flown: Flown, hold: Hold) -> bool:
    """True if a late sequence surely began only after another had ended.

    The early ones answered for so long that an engine with room would have let it in; and either the engine itself
    said that not all ran, or the late one was seen to generate its answer afterwards, bit by bit, and came later than
    any doubt about the order in which this client looked. A first token that is only seen late proves nothing.
    """
    if hold.late_s is None or not flown.generous or any(each.finish_reason != "length" for each in flown.streams):
        return False
    if flown.queued and hold.late_s > 0:
        return True
    return flown.visible and hold.worked_late and hold.late_s >= max(_LEAST_LATE_S, 3 * flown.lag_s)


def _unproven(message: str, wanted: str, hold: Hold) -> Fault:
    return unseen("hold-unproven", message, expected=wanted, actual=f"{hold.at_once} at once")


def short_answers(flown: Flown) -> str:
    """How many answers ended before their budget, in words; empty if none did."""
    early = sum(1 for each in flown.streams if each.finish_reason != "length" and each.seen_tokens < each.asked)
    return f" ({early} answers ended before their budget)" if early else ""
