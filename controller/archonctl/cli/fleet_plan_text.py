"""A fleet's plan for people: a row a kind of host, the endpoints, what moves, what is missing and the way out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from archonctl.cli.output import Output
from archonctl.fleet.answer import EndpointRow, FleetPlan, HostRow
from archonctl.fleet.together import CardUse, Together
from archonctl.memory.interval import MIB

_COLOUR = {"holds": "green", "short": "red", "unknown": "yellow", "invalid": "red"}
MOST_ROWS = 60
"""Kinds of hosts that are shown; the rest is counted, and in --json."""
MOST_LINES = 20
MOST_NAMES = 12
"""Names or ranges of names in one place; --json has all."""


def fleet_plan_text(plan: FleetPlan, out: Output) -> str:
    """The whole answer as one string."""
    blocks = [_hosts(plan, out), _endpoints(plan, out), _moves(plan, out), _spare(plan, out), _notes(plan, out)]
    return "\n\n".join("\n".join(block) for block in [*blocks, [_verdict(plan, out)]] if block)


def _hosts(plan: FleetPlan, out: Output) -> list[str]:
    groups: dict[object, list[HostRow]] = {}
    for row in plan.hosts:
        groups.setdefault(_look(row), []).append(row)
    lines: list[str] = []
    for rows in list(groups.values())[:MOST_ROWS]:
        lines += _host(rows, out)
    if len(groups) > MOST_ROWS:
        rest = sum(len(rows) for rows in list(groups.values())[MOST_ROWS:])
        lines.append(f"... and {rest:,} hosts of {len(groups) - MOST_ROWS:,} more kinds; --json has all")
    return lines


def _look(row: HostRow) -> object:
    """What two hosts have to share to be one row."""
    if row.together is None:
        return (row.verdict, row.problem.code if row.problem else "", row.problem.message if row.problem else "")
    lies = tuple((one.name, one.cards) for one in row.assigned)
    return (id(row.together), lies, row.verdict, row.came, row.went, row.survived)


def _host(rows: Sequence[HostRow], out: Output) -> Iterator[str]:
    first = rows[0]
    name = named([row.known.name for row in rows])
    count = f" ({len(rows):,} hosts)" if len(rows) > 1 else ""
    word = (
        out.paint(first.verdict.upper(), _COLOUR[first.verdict], "bold") if first.assigned or first.problem else "free"
    )
    spare = {True: ", its loss is survived", False: ", its loss is NOT survived", None: ""}[first.survived]
    yield f"{out.paint(name, 'bold')}{count}  {word}{spare}"
    if first.problem is not None:
        problem = first.problem
        said = str(problem) if len(rows) == 1 else f"{problem.code}: {problem.message} ({problem.hint})"
        yield _wrapped("    ", said, out)
        return
    if first.together is not None:
        yield from _cards(first.together)
        yield from _ram(first.together)
        for one in first.together.endpoints:
            if one.verdict != "holds":
                reasons = one.reasons or ((str(one.problem),) if one.problem else ())
                yield from (out.paint(f"    ! {one.name}: {reason}", "yellow") for reason in reasons)
        for finding in first.together.findings:
            yield out.paint(f"    ! {finding.code} {finding.message}", "yellow")
            if finding.fix:
                yield f"      {finding.fix}"
    changed = [*(f"+ {name}" for name in first.came), *(f"- {name}" for name in first.went)]
    if changed:
        yield out.paint(f"    {'  '.join(changed)}", "cyan")


def _cards(together: Together) -> Iterator[str]:
    """Cards that look alike on one line."""
    alike: dict[tuple[object, ...], list[CardUse]] = {}
    for card in together.cards:
        alike.setdefault((card.total_mib, card.taken_mib, card.free_mib), []).append(card)
    for cards in alike.values():
        card = cards[0]
        numbers = named([str(one.index) for one in cards]).replace("[", "").replace("]", "")
        label = f"card{'s' if len(cards) > 1 else ''} {numbers}"
        taken = ", ".join(f"{name} {mib:,}" for name, mib in card.taken_mib) or "-"
        yield f"    {label:<12} {card.total_mib:>9,} MiB  free {card.free_mib:>9,}  {taken}"
    without = [one.name for one in together.endpoints if not one.cards]
    if without:
        yield f"    {'RAM only':<12} {', '.join(without)}"


def _ram(together: Together) -> Iterator[str]:
    ram = together.ram
    if ram is None:
        return
    if not ram.is_known:
        yield f"    {'RAM':<12} {'unknown':>9}      wanted {-(-ram.want_bytes // MIB):,}"
    else:
        want, budget = -(-ram.want_bytes // MIB), ram.budget_bytes // MIB
        yield f"    {'RAM':<12} {budget:>9,} MiB  free {budget - want:>9,}  wanted {want:,}"
    if together.ttm_floor_mib is not None:
        limit = f"of {together.ttm_limit_mib:,}" if together.ttm_limit_mib is not None else "of an unknown limit"
        yield f"    {'pinned':<12} {together.ttm_floor_mib:>9,} MiB  {limit}"


def _endpoints(plan: FleetPlan, out: Output) -> list[str]:
    lines: list[str] = []
    for row in plan.endpoints:
        lines += _endpoint(row, out)
    return lines


def _endpoint(row: EndpointRow, out: Output) -> Iterator[str]:
    if row.problem is not None:
        yield f"{out.paint(row.name, 'bold')}  {out.paint('INVALID', 'red', 'bold')}"
        yield from (out.paint(f"    {line}", "yellow") for line in str(row.problem).splitlines())
        return
    contract = f"{row.seqs:,} x {row.len:,} tokens" if row.seqs is not None else ""
    wanted = "" if row.wanted is None else f" of {row.wanted:,}"
    before = "" if row.before is None or row.before == row.placed else f", {row.before:,} before"
    missing = row.wanted is not None and row.placed < row.wanted
    count = f"{row.placed:,}{wanted} replica{'' if (row.wanted or row.placed) == 1 else 's'}{before}"
    shown = out.paint(count, "red", "bold") if missing else count
    nodes = f", each over {row.nodes} hosts" if row.nodes > 1 else ""
    yield f"{out.paint(row.name, 'bold')}  {contract}  {shown}{nodes}"
    if row.hosts:
        yield textwrap.fill(named(row.hosts), out.width, initial_indent="    on ", subsequent_indent="       ")
    if row.reason:
        yield out.paint(_wrapped("    ! ", row.reason, out), "yellow")
    for number, way in enumerate(row.ways):
        costs = f" ({way.costs})" if way.costs else ""
        yield _wrapped("    way out: " if number == 0 else "         or: ", f"{way.text}{costs}", out)


def _moves(plan: FleetPlan, out: Output) -> list[str]:
    lines = []
    for move in plan.moves:
        if move.source and move.target:
            lines.append(f"move   {move.endpoint}: {move.source} -> {move.target}")
        elif move.target:
            lines.append(f"start  {move.endpoint} on {move.target}")
        elif move.source not in plan.without:
            lines.append(f"stop   {move.endpoint} on {move.source}")
        else:
            lines.append(f"lost   {move.endpoint} on {move.source}")
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES:,} more; --json has all"]
    return [out.paint(line, "cyan") for line in lines]


def _spare(plan: FleetPlan, out: Output) -> list[str]:
    if not plan.spare or any(row.wanted is not None and row.placed < row.wanted for row in plan.endpoints):
        return []
    if not plan.losses:
        return [out.paint("spare: the loss of any one host is survived, everything else left where it is", "green")]
    lines = []
    for loss in plan.losses[:MOST_LINES]:
        left = ", ".join(f"{count} {name}" for name, count in loss.unplaced)
        each = f"any one of {named(loss.hosts)}" if len(loss.hosts) > 1 else loss.hosts[0]
        lines.append(out.paint(f"! without {each}: {left} cannot be placed", "yellow"))
    if not plan.spare_proven:
        lines.append("  another placement may survive it: the solver was not done (--time-limit)")
    else:
        lines.append("  no placement of all replicas on these hosts survives every loss")
    lines += [_wrapped("    way out: ", way.text, out) for way in plan.spare_ways]
    return lines


def _notes(plan: FleetPlan, out: Output) -> list[str]:
    return [out.paint(_wrapped("note: ", note, out), "dim") for note in plan.notes]


def _verdict(plan: FleetPlan, out: Output) -> str:
    word = out.paint(plan.verdict.upper(), _COLOUR[plan.verdict], "bold")
    hosts = [row for row in plan.hosts if row.assigned]
    bad = sum(row.verdict not in ("holds", "unknown") for row in hosts)
    parts = [f"{len(plan.hosts):,} host{'' if len(plan.hosts) == 1 else 's'}, endpoints on {len(hosts):,}"]
    if bad:
        parts.append(f"{bad:,} of them do not hold")
    if plan.without:
        parts.append(f"without {named(plan.without)}")
    if plan.proven is not None:
        moves = sum(bool(move.source and move.target) for move in plan.moves)
        how = "proven" if plan.proven else f"not proven to be the best ({plan.why})"
        parts.append(f"{moves:,} move{'' if moves == 1 else 's'}, {how}")
    return f"{word}: {'; '.join(parts)}"


def _wrapped(label: str, text: str, out: Output) -> str:
    return textwrap.fill(text, out.width, initial_indent=label, subsequent_indent=" " * len(label))


def named(names: Iterable[str]) -> str:
    """Names in short: numbers in a row as a range (``gpu[1-40], gpu44``), and of many such the first and a count."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    rest = sum(len(run) for run in runs[MOST_NAMES:])
    shown = ", ".join(_range(run) for run in runs[:MOST_NAMES])
    return f"{shown} and {rest:,} more" if rest else shown


def _split(name: str) -> tuple[str, str]:
    match = re.fullmatch(r"(.*?)([0-9]{1,9})", name, re.DOTALL | re.ASCII)
    return (match[1], match[2]) if match else (name, "")


def _follows(before: str, name: str) -> bool:
    (stem, number), (other, its) = _split(before), _split(name)
    alike = stem == other and bool(number) and bool(its) and (len(number) == len(its) or not its.startswith("0"))
    return alike and int(its) == int(number) + 1


def _range(run: Sequence[str]) -> str:
    stem, first = _split(run[0])
    return run[0] if len(run) == 1 else f"{stem}[{first}-{_split(run[-1])[1]}]"
