"""Legs and verdicts for people."""

from __future__ import annotations

from collections.abc import Sequence

from archonctl.cli.marks import MARK, UNSEEN
from archonctl.cli.output import Output
from archonctl.deployment.schema import Contract
from archonctl.probe.values import Cost, Leg, Scored, Verdict

_DEPTH = {
    "ledger": ", by the boot log alone: no full-height request was sent",
    "admission": ", admitted at full height but not held to the end",
}
WORD = {"holds": ("HOLDS", "green"), "broken": ("BROKEN", "red"), "no evidence": ("NO EVIDENCE", "yellow")}


def leg_text(leg: Leg, out: Output) -> str:
    """One line a leg; a failed one also names its code."""
    mark, plain, colour = MARK.get(leg.status, UNSEEN)
    code = f"  [{leg.code}]" if leg.code and leg.status in ("fail", "no evidence") else ""
    took = f"  {leg.seconds:.1f} s" if leg.seconds >= 0.05 else ""
    head = out.paint(f"{mark if out.unicode else plain} {leg.id:<13}", colour)
    return f"  {head} {leg.message}{out.paint(took + code, 'dim')}"


def cost_text(costs: Sequence[Cost], depth: str) -> str:
    """What the probe will ask for, before it asks: altogether, and by leg."""
    tokens, requests = sum(cost.tokens for cost in costs), sum(cost.requests for cost in costs)
    legs = ", ".join(f"{cost.leg} {cost.tokens:,}" for cost in costs)
    return f"probe, depth {depth}: at most {tokens:,} tokens in {requests:,} requests ({legs})"


def verdict_text(name: str, contract: Contract, verdict: Verdict, out: Output) -> str:
    """The word, the promise that it is about, and why it is not "holds"."""
    word, colour = WORD[verdict.word]
    promise = f"{contract.seqs:,} x {contract.len:,} tokens at once, {contract.kv_dtype} KV"
    depth = _DEPTH.get(str(verdict.facts.get("depth")), "") if verdict.word == "holds" else ""
    lines = [f"\n{out.paint(word, 'bold', colour)}  {name}: {promise}{depth}"]
    lines += [f"  {reason}" for reason in verdict.reasons]
    lines += [_foretold(each, out) for each in verdict.predictions]
    codes = sorted({leg.code for leg in verdict.legs if leg.code and leg.status == "fail"})
    lines += [out.paint(f"  more: archonctl explain {code}", "dim") for code in codes]
    return "\n".join(lines)


def _foretold(scored: Scored, out: Output) -> str:
    unit = f" {scored.unit}" if scored.unit else ""
    expected = f"{scored.expect:,.10g}{unit} +- {scored.band:.1%}"
    if scored.actual is None:
        return out.paint(f"  foretold {scored.name} {expected}: not measured: {scored.why}", "dim")
    text = f"  foretold {scored.name} {expected}, came {scored.actual:,.10g}{unit}: {scored.score}"
    return out.paint(text, "yellow") if scored.score == "falsified" else text
