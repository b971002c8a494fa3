"""The proposal: steps, the new text, and the contract before, moved, and as proposed. Writes nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Boot, Endpoint, KnobValue
from archonctl.deployment.toml_file import read_toml
from archonctl.deployment.toml_lines import Loc
from archonctl.errors import ArchonError, DeclarationError
from archonctl.host.load import load_host
from archonctl.migration.boots import boots_for
from archonctl.migration.edit import Edits
from archonctl.migration.steps import steps_of
from archonctl.migration.values import Outcome, Proposal, Step
from archonctl.plan.build import build_plan
from archonctl.plan.load import load_model
from archonctl.plan.values import Plan


def propose(loaded: LoadedEndpoint, to: str, boots_from: Path | None = None) -> Proposal:
    """The migration of one endpoint to engine version ``to``.

    Raises UsageError for a version or an engine that no table knows, DeclarationError ``migrate-layout`` for a text
    that cannot be changed line by line, and those of ``load_host`` and of the reader.
    """
    old = loaded.endpoint
    steps = list(steps_of(old.engine, to))
    boots, boots_file = boots_for(loaded, to, boots_from)
    moved = _apply(old, steps, boots)
    _, before = _outcome(loaded, old)
    plan, as_moved = _outcome(loaded, moved)
    levers = _lever(plan) if as_moved.verdict == "short" else ()
    steps += levers
    proposed = _apply(moved, levers, boots)
    as_proposed = _outcome(loaded, proposed)[1] if levers else as_moved
    taken = boots if boots_file else ()
    steps += [
        Step("boot", "boot", f"seen boot of {to}, from {boots_file}", None, b.kv_tokens, "", b.source) for b in taken
    ]
    text = _text(loaded, steps, taken, proposed)
    contract = old.contract
    promise: dict[str, int] = {
        "seqs": contract.seqs,
        "len": contract.len,
        "tokens_with_margin": contract.tokens_with_margin,
    }
    return Proposal(
        loaded.name, str(loaded.path), old.engine.kind, old.engine.version, to, tuple(steps), text,
        before, as_moved, as_proposed, promise,
    )  # fmt: skip


def _apply(endpoint: Endpoint, steps: Iterable[Step], boots: tuple[Boot, ...]) -> Endpoint:
    """The endpoint after the steps; boots of other versions stay, as the record that they are."""
    version: str = endpoint.engine.version
    knobs: dict[str, Any] = dict(endpoint.engine.knobs)
    env: dict[str, Any] = dict(endpoint.engine.env)
    for step in steps:
        table, _, name = step.key.rpartition(".")
        values = env if table == "engine.env" else knobs
        if step.action == "version":
            version = str(step.after)
        elif step.action == "drop":
            del values[name]
        elif step.action == "rename":
            knobs = _renamed(knobs, name, step.renamed_to.rpartition(".")[2])
        elif step.action in ("add", "set"):
            values[name] = step.after
    engine = endpoint.engine.model_copy(update={"version": version, "knobs": knobs, "env": env})
    kept = (*(boot for boot in endpoint.boot if boot not in boots), *boots)
    return endpoint.model_copy(update={"engine": engine, "boot": kept})


def _renamed(knobs: Mapping[str, KnobValue], old: str, new: str) -> dict[str, KnobValue]:
    return {new if key == old else key: value for key, value in knobs.items()}


def _outcome(loaded: LoadedEndpoint, endpoint: Endpoint) -> tuple[Plan | None, Outcome]:
    version = endpoint.engine.version
    try:
        plan = build_plan(loaded.name, endpoint, load_host(loaded), load_model(endpoint))
    except ArchonError as err:
        return None, Outcome(version, None, None, None, None, (f"{err.code}: {err.message}",))
    tokens = plan.forecast.kv_tokens
    return plan, Outcome(
        version,
        plan.verdict,
        (int(tokens.low), int(tokens.best), int(tokens.high)) if tokens else None,
        tokens.best / endpoint.contract.len if tokens else None,
        plan.forecast.host_need.ttm_floor_mib,
        plan.reasons,
    )


def _lever(plan: Plan | None) -> tuple[Step, ...]:
    """The smallest lever that keeps the promise: one that changes knobs, never the contract."""
    for lever in plan.forecast.levers if plan else ():
        if lever.set and all(key.startswith("engine.knobs.") for key in lever.set):
            return tuple(Step("set", key, lever.text, None, value, "", lever.costs) for key, value in lever.set.items())
    return ()


def _text(loaded: LoadedEndpoint, steps: Iterable[Step], boots: Iterable[Boot], wanted: Endpoint) -> str:
    file = read_toml(loaded.path, "endpoint declaration")
    edits = Edits(file.text, file.shown)
    for step in steps:
        _edit(edits, step)
    for boot in boots:
        edits.append(f"# Seen at that version; the plan rests on it.\n{_boot_text(boot)}")
    _check(edits.text, wanted, file.shown)
    return edits.text


def _edit(edits: Edits, step: Step) -> None:
    loc = _spelt(edits.text, step.key)
    if step.action == "version":
        _set(edits, ("engine", "version"), step.after)
    elif step.action == "drop":
        edits.remove(loc)
    elif step.action == "rename":
        edits.rename(loc, step.renamed_to.rpartition(".")[2])
    elif step.action in ("add", "set"):
        _set(edits, loc, step.after)


def _set(edits: Edits, loc: Loc, value: KnobValue | None) -> None:
    if value is None:
        return
    data: Any = tomllib.loads(edits.text)
    for part in loc:
        data = data.get(part) if isinstance(data, dict) else None
    if data is None:
        edits.add(loc[:-1], str(loc[-1]), value)
    else:
        edits.set(loc, value)


def _spelt(text: str, key: str) -> Loc:
    """A dotted key as the file spells it: knobs may be written with underscores."""
    table, _, name = key.rpartition(".")
    loc: Loc = (*table.split("."), name)
    if table == "engine.knobs":
        knobs = tomllib.loads(text).get("engine", {}).get("knobs", {})
        return (*loc[:-1], next((each for each in knobs if each.replace("_", "-") == name), name))
    return loc


def _boot_text(boot: Boot) -> str:
    value = boot.model_dump(exclude_defaults=True)
    return tomli_w.dumps({"boot": [value]})


def _check(text: str, wanted: Endpoint, where: str) -> None:
    """The changed text must mean exactly what was planned: a file is not changed by a guess."""
    try:
        engine = tomllib.loads(text)["engine"]
        knobs = {key.replace("_", "-"): value for key, value in engine.get("knobs", {}).items()}
        same = (engine.get("version"), knobs, engine.get("env", {})) == (
            wanted.engine.version, dict(wanted.engine.knobs), dict(wanted.engine.env),
        )  # fmt: skip
    except (tomllib.TOMLDecodeError, KeyError, AttributeError):
        same = False
    if not same:
        raise DeclarationError(
            "migrate-layout",
            "the file cannot be changed line by line, or a flag or variable sets what would be changed",
            where=where,
            hint="write one key a line under [engine.knobs], and leave --set and ARCHON__* out",
        )
