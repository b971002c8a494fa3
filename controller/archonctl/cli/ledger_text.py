"""A boot ledger, or a check of many, for people."""

from __future__ import annotations

from archonctl.cli.output import Output
from archonctl.ledger.check import CheckReport
from archonctl.ledger.names import plain, unit_of
from archonctl.ledger.values import BootLedger, Remark

_SEVERITY = {"refusal": "red", "warning": "yellow"}


def ledger_text(ledger: BootLedger, cause: Remark | None, out: Output) -> str:
    """Figures with their lines, remarks, and what was looked for and not found."""
    version = f" {ledger.engine_version}" if ledger.engine_version else ""
    lines = [f"{out.paint(ledger.engine + version, 'bold')}  {ledger.lines_read:,} lines read"]
    if ledger.boots > 1:
        lines.append(f"  {ledger.boots} boots in this log; the figures are those of the last")
    width = max((len(name) for name in ledger.figures), default=0)
    for name, reading in ledger.figures.items():
        value = plain(reading)
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
        lines.append(f"  {name:<{width}}  {shown:>14} {unit_of(ledger.engine, name):<6}  line {reading.line_no}")
    lines += [f"  {name}: {fact}" for name, fact in ledger.facts.items()]
    if ledger.missing:
        lines.append(out.paint(f"  not printed, so no evidence: {', '.join(ledger.missing)}", "yellow"))
    lines += [
        out.paint(
            f"  {remark.severity} {remark.code} in line {remark.line_no}: {remark.text}", _SEVERITY[remark.severity]
        )
        for remark in ledger.remarks
        if remark.severity in _SEVERITY
    ]
    if not ledger.figures and not ledger.remarks:
        lines.append("  nothing of an engine's boot was found: no evidence")
    if cause and not ledger.ready_line:
        lines.append(f"{out.paint('REFUSED', 'bold', 'red')}  {cause.code}: archonctl explain {cause.code}")
    return "\n".join(lines)


def check_text(report: CheckReport, out: Output) -> str:
    """One line a case: engine, tokens read, tokens predicted, error."""
    rows = [("case", "engine", "read tokens", "predicted", "error", "by")]
    for case in report.cases:
        predicted = case.prediction.kv_tokens
        rows.append(
            (
                case.id,
                case.engine_detected,
                "unknown" if case.observed_kv_tokens is None else f"{case.observed_kv_tokens:,}",
                "unknown" if predicted is None else f"{predicted:,}",
                "" if case.error is None else f"{case.error:+.2%}",
                case.prediction.method or case.prediction.reason,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]:>{widths[3]}}  "
        f"{row[4]:>{widths[4]}}  {row[5]}".rstrip()
        for row in rows
    ]
    lines[0] = out.paint(lines[0], "dim")
    lines += [out.paint(f"line {p.line_no}: {p.code}: {p.message}", "red") for p in report.problems]
    return "\n".join(lines)
