"""A law with its numbers put in, for people: figures that were taken, then what follows from them."""

from __future__ import annotations

from collections.abc import Sequence

from archonctl.cli.output import Output
from archonctl.engines.terms import Term, numbers_in


def working_text(terms: Sequence[Term], out: Output) -> str:
    """The working as one string; says so where there is none."""
    if not terms:
        return "\nno law applies, so there is nothing to work out (see the reason above)"
    numbers = numbers_in(terms)
    width = max(len(term.name) for term in terms)
    lines = ["", out.paint("the law, term by term:", "bold")]
    for term in terms:
        lines += _taken(term, width, out) if not term.formula else _worked(term, numbers[term.name], width, out)
    return "\n".join(lines)


def _taken(term: Term, width: int, out: Output) -> list[str]:
    origin = f"{term.source}: {term.origin}" if term.origin else term.source
    return [f"  {term.name.ljust(width)} = {_value(term)}  {term.what}  {out.paint(f'[{origin}]', 'dim')}"]


def _worked(term: Term, numbers: str, width: int, out: Output) -> list[str]:
    lead = f"  {' ' * width} = "
    origin = f"  [{term.origin}]" if term.origin else ""
    lines = [f"  {term.name.ljust(width)} = {term.formula}{out.paint(origin, 'dim')}"]
    if numbers not in (term.formula, f"{term.value}"):
        lines.append(f"{lead}{numbers}")
    return [*lines, f"{lead}{out.paint(_value(term), 'bold')}  {term.what}"]


def _value(term: Term) -> str:
    ends = f" ({_number(term.low)} to {_number(term.high)})" if term.low is not None and term.high is not None else ""
    value = int(term.value) if term.unit == "tokens" else term.value  # a fraction of one is not served
    return f"{_number(value)} {term.unit}".rstrip() + ends


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
