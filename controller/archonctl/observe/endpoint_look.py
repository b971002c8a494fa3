"""What the files of an installed endpoint and its unit say. Needs no privileges."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import get_args

from archonctl import __version__
from archonctl.errors import ArchonError
from archonctl.observe.entries import logged_tokens
from archonctl.observe.values import Sample, one_hot, sample
from archonctl.release.load import StoredRelease
from archonctl.service.installed import Installed, argv_of, below
from archonctl.service.predictions import scores
from archonctl.service.running import cmdline_of, runs
from archonctl.service.status import Status, StatusWord, status
from archonctl.service.unit import UnitState
from archonctl.service.verdict_store import kept, load

UNIT_STATES = ("active", "activating", "deactivating", "reloading", "inactive", "failed")
VERDICTS = tuple(word.replace(" ", "_") for word in get_args(StatusWord))
OUTCOMES = ("hit", "falsified", "open")
_CODE = re.compile(r"[a-z0-9]+(-[a-z0-9]+){0,9}")
_LABEL_CHARS = 100
_MOST_PREDICTIONS = 50
"""Of one endpoint that are shown one by one; the counts are of all. A declaration may hold any number of any length."""
_VERSION = re.compile(r"[A-Za-z0-9][\w.+:()@/ -]{0,63}", re.ASCII)


@dataclass(slots=True)
class Verdicts:
    """What the kept verdicts said. They are read again only when there are others: hundreds are kept, none changes."""

    _of: tuple[object, ...] = ()
    _samples: list[Sample] = field(default_factory=list)

    def samples(self, installed: Installed, release: StoredRelease, state: UnitState) -> list[Sample]:
        """Live capacity of the start that runs, and how predictions turned out."""
        there = (release.digest, state.active, state.invocation, *kept(installed.folder))
        if self._of != there:
            self._samples = [*_live(installed, release, state), *_predictions(installed, release)]
            self._of = there
        return self._samples


def state_look(installed: Installed, state: UnitState, verdicts: Verdicts | None = None) -> list[Sample]:
    """Contract, verdict, live capacity and predictions of one endpoint. Raises HostRefusal ``state-unreadable``."""
    name, found = installed.name, status(installed, state)
    samples = one_hot("archon_verdict", name, VERDICTS, found.word.replace(" ", "_"))
    if found.verdict_at is not None:
        samples.append(sample("archon_verdict_timestamp_seconds", name, value=found.verdict_at))
        samples.append(sample("archon_evidence_age_seconds", name, value=max(0.0, time.time() - found.verdict_at)))
    try:
        release = installed.stored(found.release)
    except ArchonError:
        return samples  # nothing is declared, or not readably: the verdict above says what is known
    samples += _declared(installed.name, release, found)
    return samples + (verdicts or Verdicts()).samples(installed, release, state)


def _declared(name: str, release: StoredRelease, found: Status) -> list[Sample]:
    endpoint = release.loaded.endpoint
    contract, version = endpoint.contract, endpoint.engine.version[:_LABEL_CHARS]
    return [
        sample("archon_endpoint_info", name, endpoint.engine.kind, version, found.release, value=1),
        sample("archon_contract_seqs", name, value=contract.seqs),
        sample("archon_contract_seq_len_tokens", name, value=contract.len),
        sample("archon_contract_tokens", name, value=contract.tokens),
        sample("archon_contract_margin_ratio", name, value=contract.margin),
    ]


def _live(installed: Installed, release: StoredRelease, state: UnitState) -> list[Sample]:
    name, samples = installed.name, list[Sample]()
    verdicts = tuple(_of_this_start(installed, release.digest, state))
    if version := next(filter(None, map(stated_version, verdicts)), ""):
        samples.append(sample("archon_engine_info", name, version, value=1))
    # a later look at this start may have come after its journal was rotated: the latest that has a figure counts
    if (live := next((n for n in map(logged_tokens, verdicts) if n is not None), None)) is not None:
        spare = live - release.loaded.endpoint.contract.tokens
        samples.append(sample("archon_live_capacity_tokens", name, value=live))
        samples.append(sample("archon_contract_spare_tokens", name, value=spare))
    return samples


def _predictions(installed: Installed, release: StoredRelease) -> list[Sample]:
    name, samples = installed.name, list[Sample]()
    outcomes = dict.fromkeys(OUTCOMES, 0)
    for each in scores(installed.folder, release.loaded.endpoint.predict):
        if each.declared is None:
            continue  # withdrawn: what is shown must be what is declared, and bounded by it
        value = each.last.value if each.last is not None else {}
        outcomes[_outcome(value)] += 1
        off = value.get("off")
        if isinstance(off, float) and len(each.name) <= _LABEL_CHARS and len(samples) < _MOST_PREDICTIONS:
            samples.append(sample("archon_prediction_error_ratio", name, each.name, value=off))
    return samples + [sample("archon_predictions", name, key, value=count) for key, count in outcomes.items()]


def _outcome(value: dict[str, object]) -> str:
    score = value.get("score")
    return score if isinstance(score, str) and score in OUTCOMES else "open"


def _of_this_start(installed: Installed, release: str, state: UnitState) -> Iterator[Mapping[str, object]]:
    """The kept verdicts on the start that runs now, newest first; none where nothing runs."""
    if state.active != "active" or not state.invocation:
        return
    for each in kept(installed.folder, release):
        with contextlib.suppress(ArchonError):
            value = load(each.path).value
            if value.get("invocation") == state.invocation:
                yield value


def stated_version(value: Mapping[str, object]) -> str:
    """What an engine called its version, by a stored verdict; empty where that is nothing a label could hold."""
    probe = value.get("probe")
    facts = probe.get("facts") if isinstance(probe, dict) else None
    said = facts.get("engine_version") if isinstance(facts, dict) else None
    return said if isinstance(said, str) and _VERSION.fullmatch(said) else ""


def unit_look(installed: Installed, state: UnitState) -> list[Sample]:
    """State, restarts and the refusal before the latest start."""
    name = installed.name
    samples = one_hot("archon_unit_state", name, UNIT_STATES, state.active)
    samples.append(sample("archon_unit_restarts_total", name, value=state.restarts))
    if state.active == "active" and state.active_us:
        since = time.time() - (time.monotonic() - state.active_us / 1e6)
        samples.append(sample("archon_unit_active_timestamp_seconds", name, value=since))
    if (refused := _refusal(installed)) is not None:
        samples.append(sample("archon_unit_refusal", name, refused[0], value=refused[1]))
    if state.main_pid and (matches := _runs(installed, state)) is not None:
        samples.append(sample("archon_release_runs", name, value=matches))
    return samples


def _refusal(installed: Installed) -> tuple[str, float] | None:
    """Code and time of the latest refusal of a start, by what the checks or the verdict left in ``/run``."""
    found: list[tuple[float, str]] = []
    where = installed.where
    for path in (where.refusal(installed.name), where.run / f"{installed.name}.preflight"):
        try:
            there = below(installed.root, path)
            words, at = there.read_text(encoding="utf-8", errors="replace")[:4096].split(), there.stat().st_mtime
        except OSError:
            continue
        if len(words) >= 3 and words[0] == "refused" and _CODE.fullmatch(words[2]):
            found.append((at, words[2]))
    at, code = max(found, default=(0.0, ""))
    return (code, at) if code else None


def _runs(installed: Installed, state: UnitState) -> bool | None:
    digest = installed.current()
    try:
        argv = argv_of(installed.stored(digest))
    except ArchonError:
        return None
    if not cmdline_of(state.main_pid, installed.proc):
        return None
    return runs(argv, state.main_pid, installed.proc, installed.known_cmdline(digest))


def exporter_sample() -> Sample:
    """Which archonctl it is."""
    return sample("archon_exporter_info", __version__, value=1)
