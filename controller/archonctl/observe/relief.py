"""From memory that ran out to what would give it back: the class of a failure, asked of the plan of its endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from archonctl.errors import ArchonError
from archonctl.host.load import load_host
from archonctl.memory.demand import MemoryClass, Scope
from archonctl.observe.failures import Failure
from archonctl.plan.load import load_model
from archonctl.plan.relief import Question, Relief, relieve, runbook_of
from archonctl.plan.trial import Trial
from archonctl.service.installed import Installed


@dataclass(frozen=True, slots=True)
class Advice:
    """What is known of one kind of failure. ``relief`` is None where the plan cannot answer; ``why`` says why."""

    endpoint: str
    cls: MemoryClass
    runbook: str
    relief: Relief | None
    why: str = ""


def question(failures: Sequence[Failure]) -> Question:
    """What the failures of one endpoint and class ask for: the most that any of them said was missing."""
    most = max(failures, key=lambda each: (each.short_bytes or 0, each.at))
    scopes: dict[str, Scope] = {"kernel": "host", "systemd": "host", "driver": "device"}
    return Question(most.cls, most.short_bytes, most.card, most.pool, scopes.get(most.by), most.at_most)


def reliefs(found: Iterable[Failure], installed: Iterable[Installed]) -> tuple[Advice, ...]:
    """One an endpoint, class and goal, by the declaration of the release that is current. What nobody owns has none."""
    kinds: dict[tuple[str, MemoryClass, bool], list[Failure]] = {}
    for each in found:
        kinds.setdefault((each.endpoint, each.cls, each.pool), []).append(each)
    known = {each.name: each for each in installed}
    return tuple(
        _way(known.get(name), name, question(failures)) for (name, _, _), failures in sorted(kinds.items()) if name
    )


def _way(installed: Installed | None, name: str, asked: Question) -> Advice:
    if installed is None:
        return Advice(name, asked.cls, runbook_of(asked.cls), None, "it is not installed here any more")
    try:
        loaded = installed.stored(installed.current()).loaded
        with loaded.placing():
            trial = Trial(loaded.name, loaded.endpoint, load_host(loaded), load_model(loaded.endpoint))
            return Advice(name, asked.cls, runbook_of(asked.cls), relieve(trial, asked))
    except ArchonError as err:
        return Advice(name, asked.cls, runbook_of(asked.cls), None, err.message)
