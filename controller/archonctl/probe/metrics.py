"""Counters and gauges that an engine publishes: requests now, preemptions so far. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from archonctl.probe.jsonread import MOST, as_int, items, pick

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^\n]*\})?[ \t]+([0-9.eE+-]+)", re.M)
_OTHER_RANK = re.compile(r'[{,]tp_rank="(?!0")')
RUNNING_SAMPLES = frozenset({"llamacpp:requests_processing", "vllm:num_requests_running", "sglang:num_running_reqs"})
WAITING_SAMPLES = frozenset({"llamacpp:requests_deferred", "vllm:num_requests_waiting", "sglang:num_queue_reqs"})
PREEMPTION_SAMPLES = frozenset(
    {
        "vllm:num_preemptions_total",
        "vllm:num_preemptions",
        "sglang:num_retracted_requests_total",
        "sglang:num_retracted_reqs_total",
    }
)
"""Counters. radiance's ``num_requests_preempted`` and SGLang's ``num_retracted_reqs`` are gauges: how many wait now."""
PREEMPTED_NOW = frozenset({"radiance:num_requests_preempted"})


@dataclass(frozen=True, slots=True)
class Load:
    """Requests on the engine now. ``waiting`` is None where it does not say.

    ``exact`` is False where the figure is a gauge that may lag behind by many steps (SGLang writes it now and then).
    """

    running: int
    waiting: int | None
    exact: bool = True
    slots: int | None = None
    """How many can run at all, where that is told along with it."""

    @property
    def total(self) -> int:
        """Running and waiting."""
        return self.running + (self.waiting or 0)


def samples(text: str, names: frozenset[str]) -> float | None:
    """The sum of the named Prometheus samples, or None if none is there.

    SGLang's tensor-parallel ranks all state the same requests: only rank 0 counts.
    """
    values: list[float] = []
    for name, labels, number in _SAMPLE.findall(text):
        if name in names and not _OTHER_RANK.search(labels):
            try:
                value = float(number)
            except ValueError:
                continue
            if 0 <= value <= MOST:
                values.append(value)
    return sum(values) if values else None


def load_of_metrics(text: str) -> Load | None:
    """Requests that run or wait by Prometheus text; None if it does not say."""
    running, waiting = samples(text, RUNNING_SAMPLES), samples(text, WAITING_SAMPLES)
    if running is None and waiting is None:
        return None
    return Load(round(running or 0), None if waiting is None else round(waiting), exact="sglang:" not in text)


def load_of_json(value: object) -> Load | None:
    """The same from llama.cpp ``/slots`` (which knows no queue) or radiance ``/load``."""
    if isinstance(value, list):
        busy = sum(1 for slot in items(value) if pick(slot, "is_processing") is True)
        return Load(busy, None, slots=len(value) or None)
    running, waiting = as_int(pick(value, "running")), as_int(pick(value, "waiting"))
    return None if running is None and waiting is None else Load(running or 0, waiting)
