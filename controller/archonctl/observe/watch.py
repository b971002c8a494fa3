"""Everything that ``archonctl watch`` shows, as one frozen value made of the board's samples. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from archonctl.observe.values import Sample

Level = Literal["bad", "warn", "info"]

_RUNNING_STATES = ("active", "activating", "reloading", "deactivating", "")
"""Units whose plan counts against the memory now; "" is a unit that was not seen yet."""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that happened, or is the case since ``at`` (Unix time). ``endpoint`` is empty for the host."""

    at: float
    endpoint: str
    level: Level
    text: str
    code: str = ""


@dataclass(frozen=True, slots=True)
class Planned:
    """Bytes that the plan of an endpoint that runs puts somewhere."""

    endpoint: str
    cls: str
    bytes: float


@dataclass(frozen=True, slots=True)
class Memory:
    """One card by its number, or the host ("host"). None is unknown: the driver does not say."""

    place: str
    total_bytes: float | None
    used_bytes: float | None
    planned: tuple[Planned, ...]


@dataclass(frozen=True, slots=True)
class Blind:
    """A look that fails or is late. ``age_s`` is how old what it last saw is; None if it never saw anything."""

    look: str
    age_s: float | None


@dataclass(frozen=True, slots=True)
class Watched:
    """One endpoint. None is unknown, never 0. Tokens are KV tokens; ``at`` of anything is Unix time in seconds."""

    name: str
    verdict: str
    evidence_age_s: float | None
    engine: str
    version: str
    release: str
    seqs: int | None
    len_tokens: int | None
    margin: float | None
    planned_tokens: tuple[int, int, int] | None
    """Low, best and high of the plan."""
    live_tokens: int | None
    unit: str
    active_at: float | None
    restarts: int | None
    runs_release: bool | None
    refused: tuple[str, float] | None
    """Code and time of the latest refusal before a start."""
    kv_usage: float | None
    running: int | None
    waiting: int | None
    preemptions: int | None
    turned_away: int | None
    """Requests that the engine refused for lack of room."""
    engine_age_s: float | None
    blind: tuple[Blind, ...]

    @property
    def contract_tokens(self) -> int | None:
        """What is promised at once."""
        return None if self.seqs is None or self.len_tokens is None else self.seqs * self.len_tokens


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known at ``at``. ``looked`` is False until the first round of looks is through."""

    at: float
    looked: bool
    memory: tuple[Memory, ...]
    endpoints: tuple[Watched, ...]
    notes: tuple[Note, ...] = ()


class _Samples:
    """Samples by metric."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by: dict[str, list[Sample]] = {}
        for each in samples:
            self._by.setdefault(each.metric, []).append(each)

    def of(self, metric: str, *first: str) -> list[tuple[tuple[str, ...], float]]:
        """The other labels and the value of those whose labels begin so."""
        count = len(first)
        return [(s.labels[count:], s.value) for s in self._by.get(metric, ()) if s.labels[:count] == first]

    def one(self, metric: str, *labels: str) -> float | None:
        return next((value for rest, value in self.of(metric, *labels) if not rest), None)

    def count(self, metric: str, *labels: str) -> int | None:
        value = self.one(metric, *labels)
        return None if value is None else int(value)

    def hot(self, metric: str, endpoint: str) -> str:
        """Which of a one-hot metric's words is the case; empty where it is not known."""
        return next((labels[0] for labels, value in self.of(metric, endpoint) if value), "")


def snapshot(
    samples: Iterable[Sample], notes: Sequence[Note] = (), *, names: Iterable[str], at: float, looked: bool
) -> Snapshot:
    """The board as one value; ``names`` are the endpoints that there are."""
    found = _Samples(samples)
    endpoints = tuple(_endpoint(found, name, at) for name in sorted(names))
    held = [each.name for each in endpoints if each.unit in _RUNNING_STATES]
    return Snapshot(at, looked, _memory(found, held), endpoints, tuple(sorted(notes, key=lambda note: note.at)))


def _endpoint(found: _Samples, name: str, at: float) -> Watched:
    info = next((labels for labels, _ in found.of("archon_endpoint_info", name)), ("", "", ""))
    planned = {labels[0]: int(value) for labels, value in found.of("archon_planned_capacity_tokens", name)}
    runs = found.one("archon_release_runs", name)
    refusals = [(labels[0], value) for labels, value in found.of("archon_unit_refusal", name)]
    return Watched(
        name=name,
        verdict=found.hot("archon_verdict", name).replace("_", " "),
        evidence_age_s=_age(found.one("archon_verdict_timestamp_seconds", name), at),
        engine=info[0],
        version=info[1],
        release=info[2],
        seqs=found.count("archon_contract_seqs", name),
        len_tokens=found.count("archon_contract_seq_len_tokens", name),
        margin=found.one("archon_contract_margin_ratio", name),
        planned_tokens=(planned["low"], planned["best"], planned["high"]) if len(planned) == 3 else None,
        live_tokens=found.count("archon_live_capacity_tokens", name),
        unit=found.hot("archon_unit_state", name),
        active_at=found.one("archon_unit_active_timestamp_seconds", name),
        restarts=found.count("archon_unit_restarts_total", name),
        runs_release=None if runs is None else bool(runs),
        refused=max(refusals, key=lambda each: each[1]) if refusals else None,
        kv_usage=found.one("archon_engine_kv_usage_ratio", name),
        running=found.count("archon_engine_requests_running", name),
        waiting=found.count("archon_engine_requests_waiting", name),
        preemptions=found.count("archon_engine_preemptions_total", name),
        turned_away=_turned_away(found, name),
        engine_age_s=found.one("archon_look_age_seconds", name, "engine"),
        blind=tuple(
            Blind(labels[0], found.one("archon_look_age_seconds", name, labels[0]))
            for labels, up in found.of("archon_look_up", name)
            if not up
        ),
    )


def _turned_away(found: _Samples, name: str) -> int | None:
    """Requests of every reason; a conversation that the host's cache does not keep is none."""
    said = [value for (cls, *_), value in found.of("archon_admission_refusals_total", name) if cls != "ddr_cache"]
    return int(sum(said)) if said else None


def _age(since: float | None, at: float) -> float | None:
    return None if since is None else max(0.0, at - since)


def _memory(found: _Samples, held: Sequence[str]) -> tuple[Memory, ...]:
    """Every card that a driver or a plan names, and the host."""
    by_card = {labels[0] for labels, _ in found.of("archon_gpu_memory_bytes")}
    by_plan = {labels[0] for name in held for labels, _ in found.of("archon_capacity_bytes", name, "device")}
    cards = sorted((by_card | by_plan) - {""}, key=lambda card: (len(card), card))
    total, free = (found.one("archon_host_memory_bytes", kind) for kind in ("total", "available"))
    host = Memory("host", total, None if total is None or free is None else total - free, _planned(found, held, None))
    return (*(_card(found, held, card) for card in cards), host)


def _card(found: _Samples, held: Sequence[str], card: str) -> Memory:
    total = found.one("archon_gpu_memory_bytes", card, "total")
    if total is None:  # a plan for cards that are declared, not seen
        said = [value for name in held if (value := found.one("archon_capacity_bytes", name, "device", card))]
        total = max(said, default=None)
    return Memory(card, total, found.one("archon_gpu_memory_bytes", card, "used"), _planned(found, held, card))


def _planned(found: _Samples, held: Sequence[str], card: str | None) -> tuple[Planned, ...]:
    """By endpoint and class; ``card`` None is the host. What each card is asked alike has no number of its own."""
    rows: dict[tuple[str, str], float] = {}
    for name in held:
        own = {labels[1] for labels, _ in found.of("archon_plan_want_bytes", name) if labels[0] == "device"}
        for (cls, scope, number, _dtype), value in found.of("archon_plan_bytes", name):
            here = scope == "host" if card is None else scope == "device" and _is_on(number, card, own)
            if here:
                rows[name, cls] = rows.get((name, cls), 0.0) + value
    return tuple(Planned(name, cls, value) for (name, cls), value in rows.items())


def _is_on(number: str, card: str, own: set[str]) -> bool:
    return number == card or (number == "" and (card in own or own <= {""}))


def changes(before: Mapping[str, Watched], now: Iterable[Watched], at: float) -> list[Note]:
    """What became different since the look before."""
    notes: list[Note] = []
    for each in now:
        was = before.get(each.name)
        if was is None:
            continue
        if was.verdict and each.verdict and was.verdict != each.verdict:
            level: Level = (
                "info" if each.verdict == "holds" else "bad" if each.verdict in ("broken", "down") else "warn"
            )
            notes.append(Note(at, each.name, level, f"{was.verdict} -> {each.verdict}"))
        if was.unit and each.unit and was.unit != each.unit:
            notes.append(Note(at, each.name, "bad" if each.unit == "failed" else "info", f"unit {each.unit}"))
        if was.release and each.release and was.release != each.release:
            notes.append(Note(at, each.name, "info", f"release {was.release[:8]} -> {each.release[:8]}"))
        for count, old, what in (
            (each.restarts, was.restarts, "restarted by systemd"),
            (each.turned_away, was.turned_away, "requests turned away for lack of room"),
            (each.preemptions, was.preemptions, "preempted: thrown out of the KV cache and computed again"),
        ):
            if count is not None and old is not None and count > old:
                notes.append(Note(at, each.name, "warn", f"{what}: {count - old:,} more, {count:,} in all"))
    return notes
