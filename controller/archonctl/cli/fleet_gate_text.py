"""The gate over a fleet for people: hosts with the same findings together, then what it comes to."""

from __future__ import annotations

from collections import Counter

from archonctl.cli.fleet_plan_text import named
from archonctl.cli.gate_text import finding_lines
from archonctl.cli.output import Output
from archonctl.fleet.gating import FleetGate, HostGate

_COLOUR = {"clean": "green", "refused": "red", "invalid": "red", "unread": "yellow"}


def fleet_gate_text(gate: FleetGate, out: Output) -> str:
    """The whole answer as one string."""
    groups: dict[object, list[HostGate]] = {}
    for host in gate.hosts:
        problem = host.known.problem
        groups.setdefault((host.findings, host.word, problem.message if problem else ""), []).append(host)
    blocks = ["\n".join(_group(hosts, out)) for hosts in groups.values()]
    counts = Counter(host.word for host in gate.hosts)
    said = ", ".join(f"{count:,} {word}" for word, count in counts.items())
    more = "; archonctl explain CODE says more" if any(host.findings for host in gate.hosts) else ""
    word = out.paint(gate.word, _COLOUR[gate.word], "bold")
    blocks.append(f"{word}: {len(gate.hosts):,} host{'' if len(gate.hosts) == 1 else 's'}, {said}{more}")
    return "\n\n".join(blocks)


def _group(hosts: list[HostGate], out: Output) -> list[str]:
    first = hosts[0]
    count = f" ({len(hosts):,} hosts)" if len(hosts) > 1 else ""
    name = out.paint(named([host.known.name for host in hosts]), "bold")
    number = len(first.known.host.endpoints)
    lies = f"  {number or 'no'} endpoint{'' if number < 2 else 's'}"
    lines = [f"{name}{count}  {out.paint(first.word, _COLOUR[first.word])}{lies}"]
    if (problem := first.known.problem) is not None:
        said = str(problem) if len(hosts) == 1 else f"{problem.code}: {problem.message}"
        lines.append(out.paint(f"  {said}", "yellow"))
    return [*lines, *(finding_lines(finding, out) for finding in first.findings)]
