"""The doctor's report for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from archonctl.cli.marks import MARK, UNSEEN
from archonctl.cli.output import Output
from archonctl.doctor.table import groups
from archonctl.doctor.values import Check, Line, Report, Status

_ID_WIDTH = 18
_MARKS = {**MARK, "warn": ("!", "WARN", "yellow"), "unseen": UNSEEN}
_WORDS: dict[Status, str] = {"fail": "failed", "warn": "warned", "pass": "passed", "skip": "skipped"}


def report_text(report: Report, out: Output, *, is_root: bool) -> str:
    """By group, a line a result and below it what to do; then the counts and the next command."""
    blocks = []
    for group, title in groups().items():
        lines = [line for line in report.lines if line.check.group == group]
        if group == "endpoint":
            names = dict.fromkeys(line.endpoint for line in lines)
            blocks += [_block(name, [line for line in lines if line.endpoint == name], out) for name in names]
        elif lines:
            blocks.append(_block(title, lines, out))
    return "\n\n".join([*blocks, _sum(report, out, is_root=is_root)])


def _block(title: str, lines: Sequence[Line], out: Output) -> str:
    return "\n".join([out.paint(title, "bold"), *(text for line in lines for text in _line(line, out))])


def _line(line: Line, out: Output) -> Iterator[str]:
    result = line.result
    mark, plain, colour = _MARKS["unseen" if result.unseen else result.status]
    symbol = mark if out.unicode else plain.ljust(4)
    indent = " " * (4 + len(symbol) + _ID_WIDTH - 1)
    told = f"{line.endpoint}: {result.message}" if line.endpoint and line.check.group != "endpoint" else result.message
    code = f"  [{result.code}]" if result.code else ""
    first, *rest = textwrap.wrap(
        told + code, max(30, out.width - len(indent)), break_on_hyphens=False, break_long_words=False
    ) or [""]
    is_dim = result.status == "skip"
    name = line.check.id.ljust(_ID_WIDTH)
    yield f"  {out.paint(symbol, colour)} {out.paint(name, colour)}{_text(first, out, is_dim)}"
    yield from (f"{indent}{_text(text, out, is_dim)}" for text in rest)
    if result.fix and (result.status != "skip" or result.unseen):
        yield f"{indent}{out.paint('do:', 'green')} {result.fix}"


def _text(text: str, out: Output, is_dim: bool) -> str:
    return out.paint(text, "dim") if is_dim else text


def _sum(report: Report, out: Output, *, is_root: bool) -> str:
    told = ", ".join(f"{count} {word}" for status, word in _WORDS.items() if (count := report.count(status)))
    apart = f" ({report.unseen} of them, marked ?, could not be looked at)" if report.unseen else ""
    colour = "red" if report.count("fail") else "yellow" if report.count("warn") else "green"
    return f"{out.paint(told, 'bold', colour)}{apart}\n{out.paint(f'next: {_next(report, is_root=is_root)}', 'dim')}"


def _next(report: Report, *, is_root: bool) -> str:
    """The one command that helps most now."""
    for status in ("fail", "warn"):
        if line := next((line for line in report.lines if line.result.status == status), None):
            return f"archonctl explain {line.result.code}"
    if not is_root and any("root" in line.result.message for line in report.lines if line.result.unseen):
        return "sudo archonctl doctor sees what this account may not"
    if not report.endpoints:
        return "declare an endpoint (archonctl import, or env/tiny.toml as an example), then archonctl doctor NAME"
    return f"archonctl plan {report.endpoints[0]}"


def table_text(checks: Sequence[Check], out: Output) -> str:
    """Every check with what it looks at."""
    lines = []
    for group, title in groups().items():
        rows = [check for check in checks if check.group == group]
        lines += [out.paint(title, "bold")] if rows else []
        for check in rows:
            lines += [f"  {out.paint(check.id.ljust(_ID_WIDTH), 'cyan')} {check.title}"]
            lines += [out.paint(f"  {'':<{_ID_WIDTH}} {check.looks_at}", "dim")]
    return "\n".join(lines)
