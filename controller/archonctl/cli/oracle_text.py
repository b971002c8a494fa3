"""An engine's own planner beside the plan, for people."""

from __future__ import annotations

from archonctl.cli.output import Output
from archonctl.engines.oracle import Figure
from archonctl.service.oracle import Consulted


def oracle_text(consulted: Consulted, out: Output) -> str:
    """A row a figure, then every difference."""
    head = f"{consulted.name} says, and the plan:"
    lines = ["", out.paint(head, "bold"), *(_row(figure, out) for figure in consulted.figures)]
    lines += [out.paint(f"  ! {finding}", "red") for finding in consulted.findings]
    if not consulted.findings:
        lines.append(out.paint("  they agree", "green"))
    return "\n".join(lines)


def _row(figure: Figure, out: Output) -> str:
    planned = figure.planned
    if planned is None:
        return f"  {figure.what:<18} {figure.oracle:>12,.10g} {figure.unit}  (not planned)"
    ends = "" if planned.is_exact else f" ({planned.low:,.0f} to {planned.high:,.0f})"
    word = out.paint("agrees", "green") if figure.agrees else out.paint("differs", "red")
    return f"  {figure.what:<18} {figure.oracle:>12,.10g} {figure.unit:<6}  plan {planned.best:,.0f}{ends}  {word}"
