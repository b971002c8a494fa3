"""Judge a whole command line, or an environment, as one version of an engine would read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from archonctl.engines.knobs import plain_argv, vllm_argv
from archonctl.engines.knobs.argparse_argv import ArgparseWalk, Positional, Word
from archonctl.engines.knobs.reading import llama, sglang, strict
from archonctl.engines.knobs.row import Knob
from archonctl.engines.knobs.table import Edition, KnobTable, edition, load_table
from archonctl.engines.knobs.verdict import ArgvFinding, Judge, Open, as_flags
from archonctl.engines.knobs.versions import version_key
from archonctl.findings import Severity

_PREFIXES = {"llamacpp": ("LLAMA_ARG_",), "vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_"), "radiance": ("RADIANCE_",)}
"""Variables that are the engine's: one of these that it does not know is read by nobody."""
_WHOLE = frozenset({"llamacpp"})
"""Engines whose list names every variable of theirs; the others read some in other places."""
_OPTION = re.compile(r"(--[a-z][a-z0-9-]*)")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_MOST_WORDS = 10_000
_SPREAD = 12
"""Versions that are tried besides those where a word's own form changes, where no version is declared."""
_ON, _OFF = ("1", "true", "on", "enabled"), ("0", "false", "off", "disabled")
_LLAMA_WORDS_SINCE = version_key("llamacpp", "b7376")
"""From here on, enabled, off and disabled are read too; before, a bare flag's variable is 1 or true."""
_SGLANG_MODEL_SINCE = version_key("sglang", "0.5.16")
"""From here ``sglang serve MODEL`` is ``--model-path MODEL``; before, a model without its option is refused."""


def check_argv(
    engine: str,
    version: str,
    argv: Sequence[str],
    *,
    open_words: Mapping[int, Open] | None = None,
    module: bool = False,
) -> tuple[ArgvFinding, ...]:
    """What a version's own parser would say to a command line, in the order of its words.

    argv begins with ``serve MODEL`` for vLLM (``module``: as for ``python -m vllm.entrypoints.openai.api_server``),
    with the first flag for the others. ``open_words`` are those known only when it runs. An empty version means any:
    only what is wrong in every version that was read is an error then.

    Raises UsageError ``engine-unknown`` and ``engine-version-invalid``.
    """
    table = load_table(engine)
    if len(argv) > _MOST_WORDS:
        message = f"{len(argv):,} arguments, of which {_MOST_WORDS:,} are looked at"
        return (ArgvFinding("knob-not-checked", "error", message, "no command line is that long"),)
    if not version:
        return _any_version(table, argv, lambda one: _judged(one, argv, open_words or {}, module))
    return _judged(edition(table, version), argv, open_words or {}, module)


def _judged(one: Edition, argv: Sequence[str], open_words: Mapping[int, Open], module: bool) -> tuple[ArgvFinding, ...]:
    judge = Judge(one, argv, open_words)
    if one.table.engine == "vllm":
        vllm_argv.walk(judge, module=module)
    elif one.table.engine == "sglang":
        _sglang(judge)
    elif one.table.engine == "llamacpp":
        plain_argv.walk(judge, llama, underscores=True)
    else:
        plain_argv.walk(judge, strict, underscores=False)
        _needs(judge, "model")
    return _in_order(judge)


def _sglang(judge: Judge) -> None:
    """``python -m sglang.launch_server ...``, or ``sglang serve [MODEL] ...``: sglang/cli/serve.py, plain argparse."""
    serve = tuple(judge.argv[:1]) == ("serve",)
    words = [Word(text, at) for at, text in enumerate(judge.argv) if at or not serve]
    if (
        serve
        and (backend := next((at for at, word in enumerate(words) if word.text == "--model-type"), None)) is not None
    ):
        del words[backend : backend + 2]
    first = serve and bool(words) and not words[0].text.startswith("-")
    positional = first and judge.edition.table.key(judge.edition.version) >= _SGLANG_MODEL_SINCE
    walk = ArgparseWalk(judge, words, sglang, Positional(positional))
    walk.run()
    if "config" in judge.seen:
        message = "the options in the file of --config are not looked into"
        judge.add(
            ArgvFinding("knob-not-checked", "note", message, "write them on the command line", judge.seen["config"])
        )
    elif walk.model is None:
        _needs(judge, "model-path")


def _needs(judge: Judge, flag: str) -> None:
    opened = any(kind == "words" for kind in judge.open_words.values())
    if flag not in judge.seen and not opened and not judge.seen.keys() & {"help", "version"}:
        message = f"{judge.engine} does not start without --{flag}"
        judge.add(ArgvFinding("model-argument-missing", "error", message, f"write --{flag} MODEL"))


def _in_order(judge: Judge) -> tuple[ArgvFinding, ...]:
    found = sorted(judge.findings, key=lambda finding: (finding.index < 0, finding.index))
    if found and not judge.read:
        table = judge.edition.table
        span = f"{table.versions[0]} to {table.newest}"
        message = f"{judge.edition.version} lies outside of the lists that were read ({span}): the nearest one judges"
        found.append(ArgvFinding("knob-not-checked", "note", message))
    return tuple(found)


def _any_version(
    table: KnobTable, words: Iterable[str], check: Callable[[Edition], tuple[ArgvFinding, ...]]
) -> tuple[ArgvFinding, ...]:
    """What is wrong in every version; what only the newest refuses is a warning."""
    newest = check(edition(table, table.newest))
    everywhere = {_what(finding) for finding in newest if finding.severity == "error"}
    for version in _telling(table, words) if everywhere else ():
        everywhere &= {_what(finding) for finding in check(edition(table, version)) if finding.severity == "error"}
    return tuple(
        finding
        if finding.severity != "error" or _what(finding) in everywhere
        else replace(finding, severity="warning", message=f"{finding.message} (the version is not declared)")
        for finding in newest
    )


def _telling(table: KnobTable, words: Iterable[str]) -> list[str]:
    """The versions that may judge these words differently: where a form of one of them begins, and a few between."""
    names = {name for word in words for name in (word, word.partition("=")[0], word.replace("_", "-"))}
    rows = [row for name in names for row in (*table.by_option.get(name, ()), *table.by_variable.get(name, ()))]
    begins = {version for row in rows for version in (row.since, row.removed) if version}
    step = max(1, len(table.versions) // _SPREAD)
    chosen = {*begins, *table.versions[::step], *(row.last_seen for row in rows if row.last_seen)}
    return sorted(chosen & {*table.versions}, key=table.key)


def _what(finding: ArgvFinding) -> tuple[str, int, str]:
    """A fault without its words: gone, not yet there and never known are the same, that the option is not taken."""
    code = "knob-unknown" if finding.code == "knob-retired" else finding.code
    return code, finding.index, finding.argument


def check_env(
    engine: str, version: str, env: Mapping[str, str], *, open_values: Container[str] = ()
) -> tuple[ArgvFinding, ...]:
    """What a version would read from an environment: variables that are gone, unknown, or of a value it misreads.

    Only variables of the engine are looked at. A variable that nobody reads is ignored without a word, so one that is
    surely gone is an error. ``open_values`` are variables whose value is known only when it runs. Raises as
    ``check_argv``.
    """
    table = load_table(engine)
    if not version:
        return _any_version(table, env, lambda one: tuple(_variables(one, env, open_values)))
    return tuple(_variables(edition(table, version), env, open_values))


def _variables(one: Edition, env: Mapping[str, str], open_values: Container[str]) -> Iterator[ArgvFinding]:
    judge = Judge(one, (), {})
    for name, value in env.items():
        found = one.variables.get(name)
        if found is not None and found.knob.refused:
            message = f"{judge.engine} refuses {name}: {found.knob.refused}"
            judge.add(ArgvFinding("knob-retired", "error", message, found.knob.refused, argument=name))
        elif found is not None:
            if name not in open_values and (reason := _misread_variable(one, found.knob, value)):
                message = f"{name} is {value[:80]!r}: {reason}"
                judge.add(ArgvFinding("knob-bad-value", "error", message, argument=name), certain=judge.read)
        elif name in one.table.by_variable or one.table.retirement(name) is not None:
            _absent_variable(judge, name, value)
        elif name.startswith(_PREFIXES.get(one.table.engine, ())):
            near = one.nearest_variable(name)
            fix = f"did you mean {near}?" if near else "take it out"
            severity: Severity = "error" if one.table.engine in _WHOLE else "warning"
            message = f"{judge.engine} reads no variable {name}: it is ignored without a word"
            judge.add(ArgvFinding("knob-unknown", severity, message, fix, argument=name), certain=judge.read)
    yield from judge.findings


def _misread_variable(one: Edition, knob: Knob, value: str) -> str:
    """Why the value of a variable is refused or ignored; the others of Python are read where they are used."""
    if one.table.engine == "radiance":
        return strict(knob, value) if value else ""
    if one.table.engine != "llamacpp":
        return ""
    if knob.type not in ("bool", "switch"):
        return llama(knob, value)
    wordy = one.table.key(one.version) >= _LLAMA_WORDS_SINCE
    known = (*_ON, *_OFF) if wordy else ("1", "true", "0", "false", "")
    ignored = "anything else is refused" if wordy and knob.type == "switch" else "anything else is ignored"
    return "" if value in known else f"it takes one of {', '.join(filter(None, known))}; {ignored}"


def _as_variable(table: KnobTable, by: str) -> str:
    """What replaces a variable: a variable, where the flag that is named has one."""
    _, named, variable = by.partition(", as a variable ")
    flags = as_flags(table, by)
    found = _OPTION.match(flags)
    rows = table.by_option.get(found[1], ()) if found is not None else ()
    if named or found is None or not rows or not rows[-1].env_key:
        return variable or flags
    given = "=" if by.startswith(f"{found[1][2:]} = ") else ""
    return f"{rows[-1].env_key}{given}{flags[found.end() :].lstrip() if given else flags[found.end() :]}"


def _absent_variable(judge: Judge, name: str, value: str) -> None:
    table, key = judge.edition.table, judge.edition.table.key(judge.edition.version)
    rows, rule = table.by_variable.get(name, ()), table.retirement(name)
    gone = [row for row in rows if row.removed and table.key(row.removed) <= key]
    if gone or (rule is not None and table.gone_by_rule(rule, rows, key)):
        row = gone[-1] if gone else None
        by = _as_variable(table, (rule.replaced_by if rule else "") or (row.renamed_to if row else ""))
        by = by.partition("=")[0] if value in _OFF else by  # what replaces its being on
        since = row.removed if row else rule.removed if rule else ""
        message = f"{name} is gone since {since or 'an older version'}; {judge.engine} ignores it without a word"
        message += f": {rule.effect}" if rule else ""
        fix = f"use {by}" if by else "take it out"
        other = None if by and not _VARIABLE.fullmatch(by) else (by,) if by else ()
        finding = ArgvFinding("knob-retired", "error", message, fix, argument=name, replacement=other)
        judge.add(finding, certain=True)
    elif rows:
        message = f"{name} came with {rows[0].since}; {judge.engine} ignores it without a word"
        fix = f"take it out, or move to {rows[0].since}"
        judge.add(ArgvFinding("knob-unknown", "error", message, fix, argument=name), certain=judge.read)
