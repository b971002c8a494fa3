"""Declared knobs that an engine's command line passes on, each by the flag table of the declared version."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.knob_values import spelled
from archonctl.engines.knobs import Edition, Knob, edition, load_table, render
from archonctl.engines.knobs.verdict import Judge
from archonctl.errors import DeclarationError, UsageError


@dataclass(frozen=True, slots=True)
class Words:
    """Words of a command line, and the place in the declaration that they come from."""

    words: tuple[str, ...]
    where: str = ""


def table(engine: str, version: str) -> Edition:
    """The flags of that version; of the newest one that was read where none is declared, or it names no release."""
    known = load_table(engine)
    try:
        return edition(known, version or known.newest)
    except UsageError:
        return edition(known, known.newest)


def passed_on(
    endpoint: Endpoint,
    known: Edition,
    rendered: Container[str],
    aliases: Mapping[str, str],
    notes: list[str],
    look: Callable[[str, Knob, bool], None] | None = None,
) -> Iterator[Words]:
    """The arguments of every knob that is not ``rendered`` already, in the order of the table.

    ``look`` sees every knob. Raises DeclarationError ``knob-unknown``, ``knob-retired``, ``knob-reserved``,
    ``knob-secret``, ``knob-twice`` or ``knob-bad-value``.
    """
    kind = endpoint.engine.kind
    if endpoint.engine.version != known.version:
        said = f"{endpoint.engine.version!a} names no release" if endpoint.engine.version else "is not declared"
        notes.append(f"engine.version {said}; flags are those of {kind} {known.version}")
    chosen: dict[str, Words] = {}
    for key, value in endpoint.engine.knobs.items():
        knob, positive = _find(known, key, aliases)
        if look is not None:
            look(key, knob, positive)
        if knob.flag in chosen:
            message = f"knob {key!r} sets --{knob.flag} a second time"
            raise DeclarationError("knob-twice", message, where=f"engine.knobs.{key}", hint="keep one of them")
        if deprecated := known.find_deprecated(knob):
            notes.append(f"knob {key}: {deprecated.effect}")
        chosen[knob.flag] = Words(_rendered(key, knob, positive, value), f"engine.knobs.{key}")
    for flag in sorted(chosen, key=lambda flag: (known.order.get(flag.partition(".")[0], 0), flag)):
        if flag not in rendered:
            yield chosen[flag]


def _rendered(key: str, knob: Knob, positive: bool, value: KnobValue) -> tuple[str, ...]:
    """As ``render``; true and false are words where those are the choices, several values are parted by blanks."""
    if isinstance(value, bool) and {"true", "false"} <= set(knob.choices):
        return (knob.option, str(value).lower())
    if knob.takes in ("+", "*") and isinstance(value, str) and not value.lstrip().startswith(("{", "[")):
        try:
            return (knob.option, *shlex.split(value))
        except ValueError as err:
            message = f"knob {key} is {value[:80]!r}: {err}"
            raise DeclarationError("knob-bad-value", message, where=f"engine.knobs.{key}") from None
    return render(key, knob, positive, value)


def _find(known: Edition, key: str, aliases: Mapping[str, str]) -> tuple[Knob, bool]:
    where = f"engine.knobs.{key}"
    found = known.find(key) or known.find(aliases.get(spelled(key), key)) or _inner(known, key)
    if found is None:
        judge = Judge(known, (f"--{spelled(key)[:80]}",), {})
        judge.unknown_option(0, judge.argv[0])
        absent = judge.findings[0]
        raise DeclarationError(absent.code, absent.message, where=where, hint=absent.fix.replace("use --", "use "))
    if managed := known.find_managed(found[0]):
        raise DeclarationError(
            managed.code, f"{found[0].option} is no knob: {managed.reason}", where=where, hint=managed.instead
        )
    return found


def _inner(known: Edition, key: str) -> tuple[Knob, bool] | None:
    """One key within a JSON knob, ``compilation-config.level``, as vLLM takes it (FlexibleArgumentParser)."""
    outer, dot, _ = key.partition(".")
    found = known.find(outer) if dot else None
    if found is None or found[0].type != "json":
        return None
    return replace(found[0], flag=spelled(key), names=(f"--{key}",), type="str"), True
