"""What runs against what is rendered. Values only: whoever calls this has looked at the process or the container."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from archonctl.findings import Finding, Place
from archonctl.gate.inherited import PREFIXES


@dataclass(frozen=True, slots=True)
class Observed:
    """A running engine: ``/proc/PID/cmdline`` and ``/proc/PID/environ`` as lists, and its image's digest.

    None and an empty digest mean that it was not seen, and nothing is claimed about it. ``where`` names the process.
    """

    where: str
    argv: Sequence[str] | None = None
    environ: Mapping[str, str] | None = None
    image_digest: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was rendered for the same endpoint. ``image`` is the whole reference, digest included."""

    engine: str
    argv: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    image: str = ""


def running_findings(wanted: Wanted, observed: Observed) -> list[Finding]:
    """Every difference, with both values. A secret's value is not repeated: only engine variables are named."""
    place = Place(observed.where)
    fix = "restart it from its release: archonctl apply"
    found = []
    if observed.argv is not None:
        for message in _argv(wanted.argv, observed.argv):
            found.append(Finding("drift-argv", "error", message, place, fix))
    if observed.environ is not None:
        for message in _environ(wanted, observed.environ):
            found.append(Finding("drift-environ", "error", message, place, fix))
    digest = wanted.image.partition("@")[2]
    if digest and observed.image_digest and not observed.image_digest.endswith(digest):
        message = f"the running image is {observed.image_digest[:80]}, {digest} is declared"
        found.append(Finding("drift-image", "error", message, place, fix))
    return found


def _argv(wanted: Sequence[str], seen: Sequence[str]) -> Iterator[str]:
    """One sentence an option that differs; word by word where options do not explain it."""
    if list(wanted) == list(seen):
        return
    want, have = options(wanted), options(seen)
    changed = False
    for name in dict.fromkeys([*want, *have]):
        if want.get(name) == have.get(name):
            continue
        changed = True
        if name not in have:
            yield f"{_shown(name, want[name])} is declared, the running command line does not have it"
        elif name not in want:
            yield f"{_shown(name, have[name])} runs, the declaration does not render it"
        else:
            yield f"{name} runs as {' '.join(have[name])[:120]!a}, {' '.join(want[name])[:120]!a} is declared"
    if not changed:
        yield "the running command line has the declared words in another order"


def options(argv: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """A command line as options with the words that follow each; the words in front under the program's name.

    A value may begin with a dash (``-1``); an option does not consist of a dash and a number.
    """
    found: dict[str, tuple[str, ...]] = {}
    name = "the program"
    for word in argv:
        if word.startswith("-") and not word.lstrip("-").replace(".", "", 1).isdigit() and len(word) > 1:
            name, equals, value = word.partition("=")
            found[name] = (*found.get(name, ()), *([value] if equals else []))
        else:
            found[name] = (*found.get(name, ()), word)
    return found


def _shown(name: str, values: tuple[str, ...]) -> str:
    return f"{name} {' '.join(values)[:120]!a}" if values else name


def _environ(wanted: Wanted, seen: Mapping[str, str]) -> Iterator[str]:
    for name, value in sorted(wanted.environ.items()):
        if name not in seen:
            yield f"{name}={value[:80]} is rendered, the process does not have it"
        elif seen[name] != value:
            yield f"{name} is {seen[name][:80]!a} in the process, {value[:80]!a} is rendered"
    for name in sorted(set(seen) - set(wanted.environ)):
        if name.startswith(PREFIXES.get(wanted.engine, ()) or ("\0",)):
            yield f"{name} is set in the process, and nothing renders it"
