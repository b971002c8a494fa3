"""A boot ledger, or a check of many, for people."""

from __future__ import annotations

from archonctl.cli.output import Output
from archonctl.ledger.check import CheckReport
from archonctl.ledger.essentials import essentials
from archonctl.ledger.names import plain, unit_of
from archonctl.ledger.values import BootLedger, Change, Reading, Remark

_SEVERITY = {"refusal": "red", "warning": "yellow"}


def ledger_text(ledger: BootLedger, cause: Remark | None, out: Output) -> str:
    """Figures with their lines, remarks, and what was looked for and not found."""
    version = f" {ledger.engine_version}" if ledger.engine_version else ""
    lines = [f"{out.paint(ledger.engine + version, 'bold')}  {ledger.lines_read:,} lines read"]
    if ledger.boots > 1:
        lines.append(f"  {ledger.boots} boots in this log; the figures are those of the last")
    lines += _essentials(ledger)
    width = max((len(name) for name in ledger.figures), default=0)
    for name, reading in ledger.figures.items():
        unit = unit_of(ledger.engine, name)
        lines.append(f"  {name:<{width}}  {_shown(reading):>14} {unit:<6}  line {reading.line_no}")
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


def _shown(reading: Reading) -> str:
    value = plain(reading)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _essentials(ledger: BootLedger) -> list[str]:
    """What matters of any engine, with the rounding of the log as a range, and "not printed" where it is not there."""
    lines = []
    for each in essentials(ledger):
        name, unit = each.name.removesuffix("_bytes"), "MiB" if each.name.endswith("_bytes") else ""
        if each.reading is None:
            lines.append(f"  {name.replace('_', ' '):<16}  {'not printed':>22}")
            continue
        value, scale = each.reading.value, 2.0**20 if unit else 1.0
        low, high = (f"{end / scale:,.{1 if unit or end != int(end) else 0}f}" for end in (value.low, value.high))
        shown = low if low == high else f"{low} to {high}"
        lines.append(f"  {name.replace('_', ' '):<16}  {shown:>22} {unit:<4} line {each.reading.line_no}")
    return [*lines, ""] if lines and ledger.figures else []


def change_text(engine: str, change: Change) -> str:
    """What one line of a followed log told, in a line; "" for nothing."""
    told = [f"{name} {_shown(r)} {unit_of(engine, name)}".rstrip() for name, r in change.figures.items()]
    told += [f"{remark.severity} {remark.code}" for remark in change.remarks]
    return ", ".join([*(["a boot begins"] if change.boot else []), *told, *(["ready"] if change.ready else [])])


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
