"""What is said about one word of a command line, or one variable, of one engine version."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from archonctl.engines.knobs.row import Knob
from archonctl.engines.knobs.table import Edition, Found, KnobTable
from archonctl.findings import Severity

Open = Literal["value", "words"]
"""A word that is known only when it runs: ``$X`` is one ``value``, ``$ARGS`` becomes any number of ``words``."""

UNREAD = ("older", "newer")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_SETTING = re.compile(r'\b([a-z][a-z0-9-]*) = "?([^"\s]+)"?')


@dataclass(frozen=True, slots=True)
class ArgvFinding:
    """One finding. ``index`` is the word's place in argv (-1: none of them), ``argument`` the word or the variable.

    ``replacement`` are the words that a tool may put in place of the ``span`` words from ``index``; None: nothing safe.
    """

    code: str
    severity: Severity
    message: str
    fix: str = ""
    index: int = -1
    argument: str = ""
    span: int = 1
    replacement: tuple[str, ...] | None = None


class Judge:
    """Collects the findings of one command line. What a version's own list does not prove is at most a warning."""

    def __init__(self, edition: Edition, argv: Sequence[str], open_words: Mapping[int, Open]) -> None:
        self.edition = edition
        self.argv = argv
        self.open_words = open_words
        self.findings: list[ArgvFinding] = []
        self.seen: dict[str, int] = {}

    @property
    def engine(self) -> str:
        """The engine with its version, as messages name it."""
        return f"{self.edition.table.engine} {self.edition.version}"

    def add(self, finding: ArgvFinding, *, certain: bool = True) -> None:
        """Take a finding down; an error about a version whose list was not read becomes a warning that says so."""
        if finding.severity == "error" and not certain:
            finding = replace(finding, severity="warning", message=f"{finding.message} ({self._why()})")
        argument = self.argv[finding.index] if finding.index >= 0 else finding.argument
        self.findings.append(replace(finding, argument=argument[:200]))

    @property
    def read(self) -> bool:
        """False for a version outside of what was read."""
        return self.edition.standing not in UNREAD

    def _why(self) -> str:
        table = self.edition.table
        if self.edition.standing == "older":
            return f"{self.edition.version} is older than {table.versions[0]}, the oldest list that was read"
        if self.edition.standing == "newer":
            return f"{self.edition.version} is newer than {table.newest}, the newest list that was read"
        return f"the lists on either side of {self.edition.version} differ"

    def unknown_option(self, index: int, name: str, span: int = 1) -> None:
        """An option that this version does not have: gone, not there yet, or never known."""
        code, message, fix, firm, successor = self._absence(name)
        known = self.edition.options.get(successor)
        replacement = (successor,) if known is not None and self.argv[index] == name else None
        finding = ArgvFinding(code, "error", message, fix, index, span=span, replacement=replacement)
        self.add(finding, certain=firm or self.read)

    def retired(self, name: str) -> str:
        """What there is to say about an option that this version no longer has; empty where it is not one."""
        code, message, *_ = self._absence(name)
        return f"{message}. " if code == "knob-retired" else ""

    def replaced(self, old: str, new: str) -> bool:
        """True if an option that went away lives on as another one."""
        table = self.edition.table
        rule, found = table.retirement(old), self.edition.options.get(new)
        by = {row.renamed_to for row in table.by_option.get(old, ())} | {rule.replaced_by if rule else ""}
        return found is not None and found.knob.flag in {text.replace(",", " ").split(" ")[0] for text in by}

    def _absence(self, name: str) -> tuple[str, str, str, bool, str]:
        """Code, message, fix, whether it is sure for an unread version too, and the option to write instead."""
        table, key = self.edition.table, self.edition.table.key(self.edition.version)
        forms = table.by_option.get(name, ())
        rule = table.retirement(name)
        refused = self.edition.options.get(name)
        gone = [row for row in forms if row.removed and table.key(row.removed) <= key]
        if refused is not None and refused.knob.refused:
            by = as_flags(table, rule.replaced_by) if rule else ""
            fix = f"use {by}" if by else refused.knob.refused
            return "knob-retired", f"{self.engine} only refuses {name}: {refused.knob.refused}", fix, True, ""
        if gone or (rule is not None and table.gone_by_rule(rule, forms, key)):
            row = max(gone, key=lambda row: table.key(row.removed), default=None)
            since = row.removed if row else rule.removed if rule else ""
            effect = f": {rule.effect}" if rule else ""
            by = as_flags(table, (rule.replaced_by if rule else "") or (row.renamed_to if row else ""))
            successor = f"--{row.renamed_to}" if row and row.renamed_to else ""
            went = f"is gone since {since}" if since else "is gone"
            fix = f"use {by}" if by else "take it out"
            firm = bool(since) or self.edition.standing != "older"
            return "knob-retired", f"{name} {went}; this is {self.engine}{effect}", fix, firm, successor
        later = [row.since for row in forms if row.since and table.key(row.since) > key]
        if later:
            first = min(later, key=table.key)
            fix = f"take it out, or move to {first}"
            return "knob-unknown", f"{name} came with {first}; this is {self.engine}", fix, False, ""
        near = self.edition.nearest(name)
        fix = f"did you mean {near}?" if near else "take it out"
        return "knob-unknown", f"{self.engine} has no {name}", fix, False, ""

    def use(self, index: int, name: str, found: Found) -> None:
        """An option that is known: said twice, on its way out, or known to one neighbour only."""
        knob = found.knob
        if not found.certain:
            code, gap = "knob-unknown", "only one of the lists on either side of it"
            message = f"whether {self.engine} has {name} in this form is not known: {gap} has it"
            self.add(ArgvFinding(code, "warning", message, "try it with --help of that version", index))
        if (first := self.seen.get(knob.flag)) is not None and "multiple" not in knob.effect:
            message = f"{name} is given twice (word {first} and word {index}): the last one counts"
            self.add(ArgvFinding("knob-twice", "warning", message, "keep one of them", index))
        self.seen[knob.flag] = index
        if text := self.edition.deprecation(knob):
            table, rule = self.edition.table, self.edition.table.retirement(name)
            by = as_flags(table, knob.renamed_to or (rule.replaced_by if rule else ""))
            why = "" if text == "it is deprecated" else f": {text}"
            message = f"{name} is deprecated in {self.engine}{why}"
            self.add(ArgvFinding("knob-deprecated", "warning", message, f"use {by}" if by else "", index))

    def lacks_value(self, index: int, name: str, knob: Knob) -> None:
        """An option whose value is missing, or that takes the next option for it."""
        after = self.argv[index + 1] if index + 1 < len(self.argv) else ""
        how = f"and {after[:60]!r} follows" if after else "and nothing follows"
        message = f"{name} of {self.engine} takes a value ({expected(knob)}), {how}"
        finding = ArgvFinding("knob-lacks-value", "error", message, f"write {name} VALUE", index)
        self.add(finding, certain=self.read)

    def takes_no_value(self, index: int, name: str, found: Found, value: str) -> None:
        """A bare flag that was given a value: ``index`` is the word that holds the value."""
        glued = self.argv[index].startswith(name + "=")
        off = value.lower() in ("false", "0", "off", "no")
        instead = found.knob.negative_option if off and found.positive else "" if off else name
        fix = f"write {instead} alone" if instead else f"take {name} out"
        message = f"{name} of {self.engine} takes no value; {value[:60]!r} is "
        message += "refused" if glued else "read as an argument of its own"
        at, span = (index, 1) if glued else (index - 1, 2)
        replacement = (instead,) if instead else ()
        own = glued or (at >= 0 and self.argv[at] == name)
        finding = ArgvFinding("knob-takes-no-value", "error", message, fix, index)
        if own:
            finding = replace(finding, index=at, span=span, replacement=replacement)
        self.add(finding, certain=self.read and found.certain)

    def bad_value(self, index: int, name: str, found: Found, value: str, reason: str) -> None:
        """A value that the version would refuse or read as something else."""
        bare = value.strip("'\"")
        quoted = bare != value and len(value) > 2 and value[0] == value[-1]
        by = reason.partition(", use ")[2]
        fix = f"use {by}" if by else f"write {bare} without the quotes" if quoted else f"give {expected(found.knob)}"
        message = f"{name} is {value[:80]!r}: {reason}"
        finding = ArgvFinding("knob-bad-value", "error", message, fix, index)
        if quoted and self.argv[index] == value:
            finding = replace(finding, replacement=(bare,))
        self.add(finding, certain=self.read and found.certain)

    def stray(self, index: int, message: str, fix: str = "take it out") -> None:
        """A word that belongs to no option."""
        self.add(ArgvFinding("argument-stray", "error", message, fix, index), certain=True)

    def not_checked(self) -> None:
        """Options in a file are not looked into."""
        if "config" in self.seen:
            message = "the options in the file of --config are not looked into"
            fix = "write them on the command line"
            self.add(ArgvFinding("knob-not-checked", "note", message, fix, self.seen["config"]))

    def is_open(self, index: int) -> bool:
        """True for a word that is known only when it runs."""
        return index in self.open_words


def as_flags(table: KnobTable, by: str) -> str:
    """What replaces a flag as it is written on a command line: ``load-mode = "dio"`` as ``--load-mode dio``."""
    text = _SETTING.sub(lambda found: f"--{found[1]} {found[2]}", by)
    first = _NAME.match(text)
    return f"--{text}" if first is not None and f"--{first[0]}" in table.by_option else text


def expected(knob: Knob) -> str:
    """What a flag takes, in words."""
    from archonctl.engines.knobs.bounds import expects

    return expects(knob)
