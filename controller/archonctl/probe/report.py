"""What an engine says of its own capacity over HTTP, and whether its boot log agrees. Pure.

Sources: llama.cpp b11434 tools/server/server-context.cpp (``/props``, ``/slots``); vLLM
``vllm/v1/metrics/loggers.py`` (``vllm:cache_config_info``); radiance core/server/admin.cpp;
SGLang srt/entrypoints/http_server.py (``/get_server_info``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

from archonctl.deployment.schema import Contract
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import Interval
from archonctl.probe.jsonread import as_int, as_str, items, pick
from archonctl.probe.values import Leg

LEG = "engine-report"

_CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}\s+1(?:\.0*)?\s*$", re.M)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
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


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Figures that an engine states over HTTP; None where it does not say."""

    source: str
    window: int | None = None
    slots: int | None = None
    kv_tokens: int | None = None
    model_path: str = ""
    version: str = ""
    excerpt: str = ""

    @property
    def says_nothing(self) -> bool:
        """True if no figure was found."""
        return self.window is None and self.slots is None and self.kv_tokens is None


def read_props(value: object, source: str) -> EngineReport:
    """llama.cpp ``/props``: ``n_ctx`` is the window of one slot."""
    return EngineReport(
        source,
        window=as_int(pick(value, "default_generation_settings", "n_ctx")) or None,
        slots=as_int(pick(value, "total_slots")) or None,
        model_path=as_str(pick(value, "model_path")),
        version=as_str(pick(value, "build_info")),
    )


def read_server_info(value: object, source: str) -> EngineReport:
    """radiance ``/server_info``: what the server decided is under ``server``."""
    server = pick(value, "server") or value
    return EngineReport(
        source,
        window=as_int(pick(server, "max_model_len")) or None,
        slots=as_int(pick(server, "max_num_seqs")) or None,
        version=as_str(pick(server, "version")),
    )


def read_sglang_info(value: object, source: str) -> EngineReport:
    """SGLang ``/get_server_info``: the server's arguments and the scheduler's figures in one table."""
    return EngineReport(
        source,
        window=as_int(pick(value, "context_length")) or None,
        slots=as_int(pick(value, "max_running_requests")) or None,
        kv_tokens=as_int(pick(value, "max_total_num_tokens")) or None,
        model_path=as_str(pick(value, "model_path")),
        version=as_str(pick(value, "version")),
    )


def read_cache_config(text: str, source: str) -> EngineReport:
    """vLLM ``/metrics``. The tokens are only believed where the engine states them itself and runs one core:
    blocks x block size is something else on hybrid models and with context parallelism."""
    found = _CACHE_INFO.findall(text)
    if len(found) != 1:
        return EngineReport(source)
    labels = dict(_LABEL.findall(found[0]))
    tokens = labels.get("kv_cache_size_tokens", "")
    sound = tokens.isascii() and tokens.isdigit() and len(tokens) <= 18
    return EngineReport(source, kv_tokens=(int(tokens) or None) if sound else None)


def samples(text: str, names: frozenset[str]) -> float | None:
    """The sum of the named Prometheus samples, or None if none is there.

    SGLang's tensor-parallel ranks all state the same requests: only rank 0 counts.
    """
    values: list[float] = []
    for name, labels, number in _SAMPLE.findall(text):
        if name in names and not _OTHER_RANK.search(labels):
            try:
                values.append(float(number))
            except ValueError:
                continue
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
        running = sum(1 for slot in items(value) if pick(slot, "is_processing") is True)
        return Load(running, None, slots=len(value) or None)
    running, waiting = as_int(pick(value, "running")), as_int(pick(value, "waiting"))
    return None if running is None and waiting is None else Load(running or 0, waiting)


def judge_report(report: EngineReport, contract: Contract, ledger: BootLedger | None, model_path: str) -> Leg:
    """The engine's report against the contract, then against its boot log.

    A report that contradicts the log is "no evidence": one of them is not of the engine that answers.
    """
    if report.says_nothing:
        return Leg(LEG, "skip", f"{report.source} states no capacity", code="report-silent", required=False)
    for stated, wanted, code, what in (
        (report.window, contract.len, "window-short", "tokens a sequence"),
        (report.slots, contract.seqs, "slots-short", "sequences"),
        (report.kv_tokens, contract.tokens, "kv-tokens-short", "KV tokens"),
    ):
        if stated is not None and stated < wanted:
            return Leg(
                LEG,
                "fail",
                f"{report.source} says {stated:,} {what}, the contract needs {wanted:,}: {wanted - stated:,} short",
                code=code,
                expected=f"{wanted:,} {what}",
                actual=f"{stated:,} {what}",
                evidence=report.excerpt,
                required=False,
            )
    return _other_model(report, model_path) or _contradiction(report, ledger) or _agreed(report)


def _other_model(report: EngineReport, model_path: str) -> Leg | None:
    wanted, served = PurePath(model_path).name, PurePath(report.model_path).name
    if not served or served == wanted:
        return None
    return Leg(
        LEG,
        "fail",
        f"{report.source} says that {served} is loaded, {wanted} is declared",
        code="model-file-mismatch",
        expected=model_path,
        actual=report.model_path,
        evidence=report.excerpt,
        required=False,
    )


def _contradiction(report: EngineReport, ledger: BootLedger | None) -> Leg | None:
    for name, stated in (("n_ctx_slot", report.window), ("n_slots", report.slots), ("kv_tokens", report.kv_tokens)):
        logged: Interval | None = ledger.get(name) if ledger else None
        if stated is not None and logged is not None and not logged.contains(stated):
            return Leg(
                LEG,
                "no evidence",
                f"{report.source} says {name} {stated:,}, the boot log says {logged.best:,.0f}: "
                "one of them is not of the engine that answers",
                code="report-disagrees",
                expected=f"{name} {logged.best:,.0f}",
                actual=f"{name} {stated:,}",
                evidence=report.excerpt,
            )
    return None


def _agreed(report: EngineReport) -> Leg:
    said = [
        f"{figure:,} {what}"
        for figure, what in (
            (report.slots, "sequences"),
            (report.window, "tokens a sequence"),
            (report.kv_tokens, "KV tokens"),
        )
        if figure is not None
    ]
    return Leg(LEG, "pass", f"{report.source} says {', '.join(said)}", evidence=report.excerpt, required=False)
