"""The gate's report for people: findings a file, then what it comes to."""

from __future__ import annotations

from itertools import groupby

from archonctl.cli.output import Output
from archonctl.findings import Finding
from archonctl.gate.values import GateReport

_STYLE = {"error": ("red", "bold"), "warning": ("yellow",), "note": ("dim",)}


def gate_text(report: GateReport, out: Output) -> str:
    """Grouped by file; ``path:line:column`` begins each line, so that editors can follow it."""
    blocks = []
    for path, group in groupby(report.findings, key=lambda finding: finding.place.path):
        blocks.append("\n".join([out.paint(path or "(no file)", "bold"), *(finding_lines(one, out) for one in group)]))
    return "\n\n".join([*blocks, _sum(report, out)])


def finding_lines(finding: Finding, out: Output) -> str:
    """One finding with its place and its fix."""
    severity = out.paint(finding.severity, *_STYLE[finding.severity])
    lines = [f"  {finding.place}: {severity} {out.paint(finding.code, 'cyan')}", f"      {finding.message}"]
    if finding.fix:
        lines.append(f"      {out.paint('fix:', 'green')} {finding.fix}")
    return "\n".join(_printable(line) for line in lines)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\x1b" else repr(char)[1:-1] for char in text)


def _sum(report: GateReport, out: Output) -> str:
    counts = {name: sum(one.severity == name for one in report.findings) for name in _STYLE}
    said = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)
    files = f"{len(report.files)} file{'' if len(report.files) == 1 else 's'}"
    word = out.paint("refused", "red", "bold") if report.refused else out.paint("clean", "green", "bold")
    rest = f"{files}{f', {said}' if said else ''}"
    return f"{word}: {rest}" + ("; archonctl explain CODE says more" if report.findings else "")
