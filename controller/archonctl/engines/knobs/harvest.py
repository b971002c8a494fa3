"""Read an engine's ``--help`` as a snapshot, and compare it with the table.

llama-server's own layout is read in ``llamacpp/harvest.py``; here is argparse's, which vLLM and SGLang print, with
vLLM's groups (``vllm serve --help=all``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from archonctl.engines.knobs.history import Altered, Changed, Difference, Moved
from archonctl.engines.knobs.merge import merge
from archonctl.engines.knobs.row import Knob, KnobType
from archonctl.engines.knobs.snapshot import Seen, Snapshot
from archonctl.engines.knobs.table import KnobTable, edition
from archonctl.errors import UsageError

_OPTION = re.compile(r" {2}(-{1,2}[A-Za-z].*)")
_NAME = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
_DEFAULT = re.compile(r"\(default: (.*?)\)?\s*$", re.DOTALL)
_CHOICES = re.compile(r"\{([^{}\s]+)\}")
_TITLES = {
    "vllm": re.compile(r"usage: (?:vllm serve|api_server)"),
    "sglang": re.compile(r"usage: (?:sglang|launch_server)"),
}


def detect(text: str) -> str:
    """Which engine printed a help text; empty where it is none that is known."""
    if re.search(r"^-{5} (common|example-specific) params -{5}", text, re.MULTILINE):
        return "llamacpp"
    return next((engine for engine, title in _TITLES.items() if title.search(text)), "")


def read_help(text: str, engine: str = "", version: str = "", source: str = "--help") -> Snapshot:
    """A help text as a snapshot. An empty ``version`` stays empty.

    Raises UsageError ``help-unreadable`` where no option is found, or nothing tells the engine.
    """
    kind = engine or detect(text)
    if not kind:
        raise UsageError(
            "help-unreadable",
            "nothing in the text tells which engine printed it",
            hint="name it: --engine llamacpp, vllm or sglang",
        )
    if kind == "llamacpp":
        from archonctl.engines.llamacpp.harvest import parse_help

        try:
            seen = parse_help(text)
        except ValueError as err:
            raise UsageError("help-unreadable", str(err), hint="llama-server --help > help.txt") from None
    else:
        seen = tuple(_seen(head, body) for head, body in _entries(text))
        if not seen:
            raise UsageError(
                "help-unreadable", f"no option of {kind} is in it", hint="vllm serve --help=all > help.txt"
            )
    return Snapshot(kind, version, source, seen)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Heads and bodies of an argparse help: a head begins in column 2, its body in column 24 or deeper."""
    head, body = "", list[str]()
    for line in text.expandtabs().splitlines():
        found = _OPTION.fullmatch(line.rstrip())
        if found:
            if head:
                yield head, " ".join(body)
            head, rest = _split(found[1])
            body = [rest]
        elif head and line.startswith(" " * 8):
            body.append(line.strip())
        elif head and line.strip():
            yield head, " ".join(body)
            head, body = "", []
    if head:
        yield head, " ".join(body)


def _split(line: str) -> tuple[str, str]:
    """A head and what stands beside it: two blanks part them, past the names and their placeholder."""
    head, _, rest = line.partition("  ")
    return head.strip(), rest.strip()


def _seen(head: str, body: str) -> Seen:
    bare = _CHOICES.sub("CHOICES", head)
    matches = (_NAME.match(part.strip()) for part in re.split(r",\s+", bare))
    names = tuple(match[0] for match in matches if match)
    hint = re.sub(r"^-{1,2}[A-Za-z][\w.-]*\s*", "", bare.split(", ")[0])
    negatives = tuple(name for name in names if name.startswith("--no-") and "--" + name[5:] in names)
    choices = _CHOICES.search(head)
    default = _DEFAULT.search(body)
    found = default[1].strip() if default and default[1] not in ("None", "==SUPPRESS==") else None
    return Seen(
        names=tuple(name for name in names if name not in negatives),
        negatives=negatives,
        type=_type(hint, negatives, found),
        nargs=_nargs(hint),
        choices=tuple(choices[1].split(",")) if choices and "or name registered" not in head else None,
        default=found,
        hint=hint,
        help=_DEFAULT.sub("", body),
    )


def _type(hint: str, negatives: tuple[str, ...], default: str | None) -> KnobType:
    if not hint:
        return "switch" if negatives else "bool"
    if default is not None and re.fullmatch(r"-?\d+", default):
        return "int"
    return "float" if default is not None and re.fullmatch(r"-?\d*\.\d+", default) else "str"


def _nargs(hint: str) -> str | None:
    if not hint:
        return None
    if re.fullmatch(r"\[\S+ \.\.\.\]|\[\S+ \[\S+ \.\.\.\]\]", hint):
        return "*"
    if "..." in hint:
        return "+"
    return "?" if hint.startswith("[") else None


def compare(table: KnobTable, snapshot: Snapshot) -> Difference:
    """What a help text shows that the table does not say of its version (of the newest, where it names none).

    Compared is only what every help text shows: names, whether a value follows, choices. Hidden flags of the table
    are no loss.
    """
    version = snapshot.version or table.newest
    one = edition(table, version)
    shown = merge([replace(snapshot, version=version)])
    then = {knob.flag: knob for knob in one.knobs if knob.names}
    names = {name for knob in shown for name in (*knob.names, *knob.negatives)}
    return Difference(
        added=tuple(
            knob for knob in shown if not knob.refused and not one.options.keys() & {*knob.names, *knob.negatives}
        ),
        removed=tuple(
            Moved(knob) for knob in then.values() if not knob.hidden and not {*knob.names, *knob.negatives} & names
        ),
        renamed=(),
        altered=tuple(
            Altered(found.knob.flag, changes)
            for knob in shown
            if (found := one.options.get(knob.option)) is not None and (changes := tuple(_visible(found.knob, knob)))
        ),
    )


def _visible(table: Knob, shown: Knob) -> Iterator[Changed]:
    for what in ("names", "negatives"):
        was, becomes = getattr(table, what), getattr(shown, what)
        if {*was} != {*becomes}:
            yield Changed(what, ", ".join(sorted({*was} - {*becomes})), ", ".join(sorted({*becomes} - {*was})))
    if (table.takes == 0) != (shown.takes == 0):
        yield Changed("takes", str(table.takes), str(shown.takes))
    if table.choices and shown.choices:
        lost, new = {*table.choices} - {*shown.choices}, {*shown.choices} - {*table.choices, *table.words}
        if lost or new:
            yield Changed("choices", ", ".join(sorted(lost)), ", ".join(sorted(new)))
