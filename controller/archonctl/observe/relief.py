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
    release: str = ""
    """The digest of the release that it happened to, by whose declaration this is; empty where none is stored."""
    is_current: bool = True


def question(failures: Sequence[Failure]) -> Question:
    """What the failures of one endpoint and class ask for: the most that any of them said was missing."""
    most = max(failures, key=lambda each: (each.short_bytes or 0, each.at))
    scopes: dict[str, Scope] = {"kernel": "host", "systemd": "host", "driver": "device"}
    return Question(most.cls, most.short_bytes, most.card, most.pool, scopes.get(most.by), most.at_most)


def reliefs(found: Iterable[Failure], installed: Iterable[Installed]) -> tuple[Advice, ...]:
    """One an endpoint, class and goal, by the declaration of the release that it happened to last: that may be one that
    was rolled back for it. What nobody owns has none."""
    kinds: dict[tuple[str, MemoryClass, bool], list[Failure]] = {}
    for each in found:
        kinds.setdefault((each.endpoint, each.cls, each.pool), []).append(each)
    known = {each.name: each for each in installed}
    return tuple(_way(known.get(name), name, failures) for (name, _, _), failures in sorted(kinds.items()) if name)


def _way(installed: Installed | None, name: str, failures: Sequence[Failure]) -> Advice:
    cls = failures[0].cls
    page = runbook_of(cls)
    if installed is None:
        return Advice(name, cls, page, None, "it is not installed here any more")
    release, current = "", installed.current()
    try:
        of = _releases(installed)
        release = of.get(max(failures, key=lambda each: each.at).invocation, current)
        asked = question([each for each in failures if of.get(each.invocation, current) == release])
        loaded = installed.stored(release).loaded
        with loaded.placing():
            trial = Trial(loaded.name, loaded.endpoint, load_host(loaded), load_model(loaded.endpoint))
            return Advice(name, cls, page, relieve(trial, asked), "", release, release == current)
    except ArchonError as err:
        return Advice(name, cls, page, None, err.message, release, release == current)


def _releases(installed: Installed) -> dict[str, str]:
    """The release of each start of the unit that was judged. Raises HostRefusal ``state-unreadable``."""
    return {each.invocation: each.release for each in installed.history().records if each.invocation and each.release}
