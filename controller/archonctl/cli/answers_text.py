"""Solutions and sweeps for people: the answer first, then what it was checked by."""

from __future__ import annotations

from collections.abc import Sequence

from archonctl.cli.output import Output
from archonctl.cli.plan_text import plan_text
from archonctl.plan.answers_json import least
from archonctl.plan.solve import Answer, Solution
from archonctl.plan.sweep import Axis, Point

_COLOUR = {"holds": "green", "short": "red", "unknown": "yellow", "refused": "red"}
_COLUMNS = ("verdict", "tokens", "sessions", "left over", "pool MiB", "slab MiB")
_BEST = {"most": "the most that holds", "least": "the least that holds", "first": "the first that holds"}


def solution_text(solution: Solution, out: Output) -> str:
    """The answers, how to declare them, and the plan that they were checked by."""
    if not solution.answers:
        said = f"no value of {', '.join(solution.asked)} makes the contract hold; the nearest plan:"
        return f"{out.paint(said, 'bold', 'red')}\n\n{plan_text(solution.plan, out)}"
    lines = [line for answer in solution.answers for line in _answer(answer, out)]
    settings = "  ".join(f"--set {key}={value}" for key, value in solution.change.items())
    return "\n".join([*lines, f"      {out.paint(settings, 'cyan')}", "", plan_text(solution.plan, out)])


def _answer(answer: Answer, out: Output) -> list[str]:
    said = f"declared: {_number(answer.declared)}" if answer.declared is not None else "not declared"
    value = f"{_number(answer.value)} {answer.variable.unit}".strip()
    lines = [f"{out.paint(answer.name, 'bold')}  {out.paint(value, 'bold', 'green')}  ({said})"]
    if answer.beyond is None:
        return [*lines, f"  {_BEST[answer.variable.wanted]}: there is no better one"]
    why = answer.why_not[0] if answer.why_not else "nothing is known there"
    return [*lines, f"  {_BEST[answer.variable.wanted]}; at {_number(answer.beyond)}: {why}"]


def _number(value: float | str | bool) -> str:
    return f"{value:,}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def sweep_text(axes: Sequence[Axis], points: Sequence[Point], out: Output) -> str:
    """A table, one row a point."""
    solved = next((point.solution.asked for point in points if point.solution), ())
    head = (
        *(axis.name for axis in axes),
        *solved,
        "verdict",
        "tokens",
        "sessions",
        "left over",
        "pool MiB",
        "slab MiB",
    )
    rows = [_row(point, len(solved)) for point in points]
    used = [column for column in range(len(head)) if any(row[column] for row in rows)]
    widths = {column: max(len(text) for text in (head[column], *(row[column] for row in rows))) for column in used}
    room = out.width - sum(widths.values()) - 2 * len(used) - 2
    lines = [out.paint("  ".join(head[c].rjust(widths[c]) for c in used), "dim")]
    for point, row in zip(points, rows, strict=True):
        verdict = len(axes) + len(solved)
        cells = [
            out.paint(row[c].rjust(widths[c]), _COLOUR[row[c]]) if c == verdict else row[c].rjust(widths[c])
            for c in used
        ]
        why = _cut(_why(point), room)
        lines.append("  ".join([*cells, out.paint(why, "dim")]).rstrip())
    return "\n".join(lines)


def _row(point: Point, solved: int) -> tuple[str, ...]:
    plan = point.plan
    if plan is None:
        return (*point.values, *[""] * solved, "refused", "", "", "", "", "")
    answers = [_number(answer.value) for answer in point.solution.answers] if point.solution else []
    answers += ["none"] * (solved - len(answers))
    tokens = plan.forecast.kv_tokens
    pool = least(card.pool_mib for card in plan.cards)
    slab = least(card.slab_mib for card in plan.cards)
    return (
        *point.values,
        *answers,
        plan.verdict,
        f"{int(tokens.best):,}" if tokens else "unknown",
        f"{tokens.best / plan.contract.len:.2f}" if tokens else "",
        f"{int(tokens.best) - plan.contract.tokens:+,}" if tokens else "",
        f"{pool:,.0f}" if pool is not None else "",
        f"{slab:,.0f}" if slab is not None else "",
    )


def _why(point: Point) -> str:
    if point.refused:
        return point.refused.message
    reasons = point.plan.reasons if point.plan else ()
    return reasons[0] if reasons else ""


def _cut(text: str, room: int) -> str:
    """What fits the line; less than a few words say nothing."""
    if room < 24:
        return ""
    return text if len(text) <= room else f"{text[: room - 3]}..."
