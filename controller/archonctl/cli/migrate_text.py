"""A proposed migration for people: steps, then the contract three times."""

from __future__ import annotations

from collections.abc import Iterator

from archonctl.cli.output import Output
from archonctl.migration.values import Outcome, Proposal, Step

_MARKS = {"drop": "-", "rename": "~", "add": "+", "set": "*", "default": "!", "you": "?", "notice": "i", "boot": "+"}
_STYLES = {"holds": "green", "short": "red", "unknown": "yellow"}


def proposal_text(found: Proposal, out: Output, written: str) -> str:
    """One screen."""
    head = f"{found.endpoint}  {found.engine} {found.before_version or '(no version)'} -> {found.after_version}"
    lines = [out.paint(head, "bold"), ""]
    for step in found.steps:
        lines += _step(step, out)
    contract = found.contract
    lines += [
        "",
        f"  contract {contract['seqs']} x {contract['len']:,}: {contract['tokens_with_margin']:,} tokens with margin",
    ]
    lines += _outcome("before", found.before, out)
    lines += _outcome("moved", found.moved, out)
    if found.proposed is not found.moved:
        lines += _outcome("proposed", found.proposed, out)
    lines += ["", f"written to {written}" if written else "nothing was written: --out FILE or --write does"]
    return "\n".join(lines)


def _step(step: Step, out: Output) -> Iterator[str]:
    if step.action == "version":
        return
    key = step.key.removeprefix("engine.knobs.")
    what = {
        "rename": f"{key} -> {step.renamed_to.rpartition('.')[2]}",
        "add": f"{key} = {step.after}",
        "set": f"{key} = {step.after}",
        "notice": "note",
        "boot": f"[[boot]] {step.after:,} tokens" if isinstance(step.after, int) else "[[boot]]",
    }.get(step.action, key if step.before is None else f"{key} ({step.before})"[:90])
    yield f"  {out.paint(_MARKS[step.action], 'bold')} {what}"
    yield out.paint(f"      {step.why}", "dim")


def _outcome(name: str, one: Outcome, out: Output) -> Iterator[str]:
    word = one.verdict or "cannot be planned"
    tokens = f"{one.kv_tokens[1]:,} tokens" if one.kv_tokens else "tokens unknown"
    if one.kv_tokens and one.kv_tokens[0] != one.kv_tokens[2]:
        tokens += f" ({one.kv_tokens[0]:,} to {one.kv_tokens[2]:,})"
    sessions = f", {one.sessions:.1f} sessions" if one.sessions is not None else ""
    floor = f", TTM floor {one.ttm_floor_mib:,} MiB" if one.ttm_floor_mib is not None else ""
    yield f"  {name:<9} {out.paint(word, _STYLES.get(word, 'yellow'))}  {tokens}{sessions}{floor}"
    for reason in one.reasons:
        yield out.paint(f"            {reason}", "dim")
