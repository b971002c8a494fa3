"""The flags of an engine, and what is wrong with a command line, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from archonctl.cli.output import Output
from archonctl.engines.knobs.bounds import expects
from archonctl.engines.knobs.history import Difference, Life, default_at
from archonctl.engines.knobs.row import Knob
from archonctl.engines.knobs.snapshot import Snapshot
from archonctl.engines.knobs.table import Edition, KnobTable, load_table
from archonctl.engines.knobs.verdict import ArgvFinding

_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}
_STALE = {
    "refusal": "the engine refuses to start",
    "ignored": "it is ignored without a word",
    "changes-meaning": "it is taken and means something else",
    "swallows-next": "it takes the next argument for its value",
}


def check_text(
    engine: str, version: str, argv: Sequence[str], program: int, findings: Sequence[ArgvFinding], out: Output
) -> str:
    """The verdict, then one finding after another in the order of the words; ``program`` words were not judged."""
    errors = sum(finding.severity == "error" for finding in findings)
    what = f"{engine} {version or '(any version)'}"
    behind = f" behind {' '.join(argv[:program])}" if program else ""
    words = f"{len(argv) - program} words{behind}"
    head = f"refused: {what} does not take this command line" if errors else f"good: {what} takes all {words}"
    lines = [out.paint(head, "bold", "red" if errors else "green")]
    for finding in findings:
        word = f"  word {finding.index}: {finding.argument}" if finding.index >= 0 else ""
        lines.append(f"{out.paint(finding.severity, _COLOURS[finding.severity])} {finding.code}{word}")
        lines += textwrap.wrap(finding.message, out.width - 2, initial_indent="  ", subsequent_indent="  ")
        if finding.fix:
            lines.append(f"  {out.paint('do:', 'bold')} {finding.fix}")
    return "\n".join(lines)


def engines_text(tables: Iterable[KnobTable], out: Output) -> str:
    """Which tables there are."""
    return "\n".join(
        f"{out.paint(one.engine.ljust(10), 'bold')} {one.versions[0]} to {one.newest}, "
        f"{len(one.versions)} lists read, {len(one.knobs)} rows"
        for one in tables
    )


def show_text(one: Edition, knobs: Sequence[Knob], out: Output, *, full: bool) -> str:
    """The flags of a version, one a line, or one in full."""
    if full:
        return "\n".join(_form(one.table, knobs[0], out, one.version))
    width = min(max((len(_name(knob)) for knob in knobs), default=0), 40)
    lines = [f"{one.table.engine} {one.version}: {len(knobs)} flags and variables"]
    if one.standing != "read":
        lines.append(
            out.paint(f"{one.version} itself was not read ({one.standing}): the nearest lists speak", "yellow")
        )
    for knob in knobs:
        default = default_at(one.table, knob, one.version)
        says = f"{expects(knob) if knob.takes != 0 else 'switch'}{f' (default {default})' if default else ''}"
        lines.append(_cut(f"{out.paint(_name(knob).ljust(width), 'bold')}  {says}", out.width + 8))
    return "\n".join(lines)


def life_text(table: KnobTable, life: Life, out: Output) -> str:
    """Everything about one flag in one engine."""
    lines = [out.paint(f"{life.engine}: {life.flag}", "bold")]
    for knob in life.forms:
        lines += [*_form(table, knob, out, ""), ""]
    if (rule := life.retired) is not None:
        gone = f" since {rule.removed}" if rule.removed else ""
        last = f" (seen last in {rule.last_seen})" if rule.last_seen else ""
        lines += [f"  gone{gone}{last}: {rule.effect}"]
        lines += [f"  replaced by  {rule.replaced_by}"] if rule.replaced_by else []
        lines += [f"  a stale one  {_STALE[rule.stale]}"] if rule.stale else []
        lines += [f"  source       {rule.source}"]
    return "\n".join(lines).rstrip()


def _form(table: KnobTable, knob: Knob, out: Output, version: str) -> Iterator[str]:
    since = knob.since or f"before {table.versions[0]} (the oldest list read)"
    until = f"gone in {knob.removed}" if knob.removed else f"still there in {table.newest}"
    yield f"  {out.paint(_name(knob), 'bold')}  since {since}, {until}"
    if len(knob.names) + len(knob.negatives) > 1:
        yield f"    spellings    {', '.join((*knob.names, *knob.negatives))}"
    takes = "no value" if knob.takes == 0 else expects(knob)
    yield f"    takes        {takes}{f' ({knob.takes})' if knob.takes in ('?', '+', '*') else ''}"
    if knob.env_key and knob.env_key != knob.flag:
        yield f"    variable     {knob.env_key}"
    if version and (default := default_at(table, knob, version)):
        yield f"    default      {default}"
    elif knob.defaults:
        by_version = (f"{since or table.versions[0]}: {text or 'none'}" for since, text in knob.defaults.items())
        yield f"    defaults     {'; '.join(by_version)}"
    elif knob.default:
        yield f"    default      {knob.default}"
    if knob.refused:
        yield f"    refused      {knob.refused}"
    if knob.renamed_to:
        yield f"    renamed to   --{knob.renamed_to}"
    if knob.stale:
        yield f"    a stale one  {_STALE[knob.stale]}"
    if knob.deprecated:
        yield f"    deprecated   {f'since {knob.deprecated_since}: ' if knob.deprecated_since else ''}{knob.deprecated}"
    yield f"    effect       {knob.effect}"
    yield f"    source       {knob.source}"


def diff_text(title: str, found: Difference, out: Output) -> str:
    """What changed, by kind."""
    if found.empty:
        return f"{title}: no difference"
    lines = [out.paint(title, "bold")]
    if found.removed:
        lines.append(out.paint(f"removed ({len(found.removed)})", "red"))
        lines += [f"  {_name(moved.knob)}{f'  {moved.note}' if moved.note else ''}" for moved in found.removed]
    if found.renamed:
        lines.append(out.paint(f"renamed ({len(found.renamed)})", "yellow"))
        lines += [f"  {_name(moved.knob)} -> {moved.to}" for moved in found.renamed]
    if found.altered:
        lines.append(out.paint(f"changed ({len(found.altered)})", "yellow"))
        for altered in found.altered:
            lines.append(f"  {altered.flag}")
            lines += [
                f"    {change.what}: {_cut(change.before, 80) or 'none'} -> {_cut(change.after, 80) or 'none'}"
                if change.what not in ("names", "negatives", "choices", "words")
                else f"    {change.what}:{f' without {change.before}' if change.before else ''}"
                f"{f' with {change.after}' if change.after else ''}"
                for change in altered.changes
            ]
    if found.added:
        lines.append(out.paint(f"added ({len(found.added)})", "green"))
        lines += [f"  {_name(knob)}  {knob.effect}" for knob in found.added]
    return "\n".join(lines)


def harvest_text(snapshot: Snapshot, version: str, found: Difference, out: Output) -> str:
    """What the help text says that the table does not."""
    head = f"{snapshot.engine}: {len(snapshot.knobs)} flags in the help text; compared with the table of {version}"
    if found.empty:
        return f"{head}\n{out.paint('they agree', 'green')}"
    return f"{head}\n{diff_text('table to help text', found, out)}"


def nearest(engines: Iterable[str], flag: str) -> str:
    """A hint with the closest flag of any version of the engines; empty if there is none."""
    _, near, engine = max((*load_table(engine).nearest(flag), engine) for engine in engines)
    return f"did you mean {near} ({engine})?" if near else ""


def _name(knob: Knob) -> str:
    return knob.option or knob.negative_option or knob.env_key


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
