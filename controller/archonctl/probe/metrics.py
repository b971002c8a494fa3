"""Counters and gauges that an engine publishes: requests now, preemptions so far. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from archonctl.probe.jsonread import MOST, as_int, pick

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
WORK_SAMPLES = frozenset(
    {
        "llamacpp:n_decode_total",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "sglang:prompt_tokens_total",
        "sglang:generation_tokens_total",
    }
)
"""Counters that grow while an engine works on anything."""
PREEMPTED_NOW = frozenset({"radiance:num_requests_preempted"})


@dataclass(frozen=True, slots=True)
class Load:
    """Requests on the engine now. ``waiting`` is None where it does not say.

    ``exact`` is False where the figure is a gauge that may lag behind by many steps (SGLang writes it now and then).
    ``gauge``: it is only written when the engine steps. vLLM keeps the last figure for ever where all requests were
    aborted at once (vLLM issues 22545 and 29928).
    """

    running: int
    waiting: int | None
    exact: bool = True
    slots: int | None = None
    """How many can run at all, where that is told along with it."""
    gauge: bool = False

    @property
    def total(self) -> int:
        """Running and waiting."""
        return self.running + (self.waiting or 0)


def samples(text: str, names: frozenset[str]) -> float | None:
    """The sum of the named Prometheus samples, or None if none is there."""
    values = each_sample(text, names)
    return sum(values) if values else None


def each_sample(text: str, names: frozenset[str]) -> list[float]:
    """The named Prometheus samples; what is no figure that could be one is left out.

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
    return values


def load_of_metrics(text: str) -> Load | None:
    """Requests that run or wait by Prometheus text; None if it does not say."""
    running, waiting = samples(text, RUNNING_SAMPLES), samples(text, WAITING_SAMPLES)
    if running is None and waiting is None:
        return None
    lags = "sglang:" in text
    return Load(round(running or 0), None if waiting is None else round(waiting), exact=not lags, gauge=True)


def _slot_works(slot: object) -> bool | None:
    """llama.cpp before b4027 has ``state`` (0: idle) instead of ``is_processing`` (pull request 10162); None where
    neither is there."""
    works, state = pick(slot, "is_processing"), as_int(pick(slot, "state"))
    return works if isinstance(works, bool) else None if state is None else state > 0


def load_of_json(value: object) -> Load | None:
    """The same from llama.cpp ``/slots`` (which knows no queue) or radiance ``/load``."""
    if isinstance(value, list):
        busy = [_slot_works(slot) for slot in value]
        return None if None in busy else Load(sum(each is True for each in busy), None, slots=len(value) or None)
    running, waiting = as_int(pick(value, "running")), as_int(pick(value, "waiting"))
    return None if running is None and waiting is None else Load(running or 0, waiting)
