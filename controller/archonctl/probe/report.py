"""What an engine says of its own capacity over HTTP, and whether its boot log agrees. Pure.

Sources: llama.cpp b11434 tools/server/server-context.cpp (``/props``, ``/slots``); vLLM
``vllm/v1/metrics/loggers.py`` (``vllm:cache_config_info``); radiance core/server/admin.cpp;
SGLang srt/entrypoints/http_server.py (``/get_server_info``).
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath

from archonctl.deployment.schema import Contract
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import Interval
from archonctl.probe.jsonread import as_int, as_str, items, pick
from archonctl.probe.ledger_leg import pool_reading
from archonctl.probe.values import Leg

LEG = "engine-report"

_CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(.*)\}\s+1(?:\.0*)?\s*$", re.M)
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Figures that an engine states over HTTP; None where it does not say."""

    source: str
    window: int | None = None
    slots: int | None = None
    kv_tokens: int | None = None
    concurrency: float | None = None
    """Requests of the engine's whole window that fit at once."""
    replicas: int = 1
    """Copies of the engine behind this address; the figures are of each."""
    model_path: str = ""
    version: str = ""
    excerpt: str = ""
    blocks: int | None = None
    block_tokens: int | None = None
    """vLLM's blocks and the tokens of each; their product is what it holds where all its layers are alike."""

    @property
    def pool_blocks(self) -> tuple[int, int] | None:
        """Blocks and the tokens of each, where both are stated."""
        return (self.blocks, self.block_tokens) if self.blocks and self.block_tokens else None

    @property
    def says_nothing(self) -> bool:
        """True if no figure was found."""
        return self.window is None and self.slots is None and self.kv_tokens is None and self.concurrency is None


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


def read_slots(value: object) -> tuple[int | None, int | None]:
    """llama.cpp ``/slots``: how many there are, and the smallest window among them."""
    slots = items(value)
    windows = [as_int(pick(slot, "n_ctx")) for slot in slots]
    known = [window for window in windows if window]
    return len(slots) or None, min(known) if known and len(known) == len(slots) else None


def with_slots(report: EngineReport, slots: object) -> EngineReport:
    """A report of ``/props`` with what ``/slots`` says; where the two differ, the smaller binds and is shown."""
    count, window = read_slots(slots)
    if count is None:
        return report
    return replace(
        report,
        source=f"{report.source} and /slots",
        slots=min(report.slots or count, count),
        window=min(report.window or window, window) if window else report.window,
    )


def read_sglang_info(value: object, source: str) -> EngineReport:
    """SGLang ``/get_server_info``: the server's arguments, the scheduler's figures, and a state for each replica.

    ``max_running_requests`` is what was asked for and may be null; what the scheduler made of it is in the states.
    Each replica of data parallelism has a pool and slots of its own; of several the smallest binds.
    """
    states = items(pick(value, "internal_states"))
    slots = [as_int(pick(state, "effective_max_running_requests_per_dp")) for state in states]
    pools = [as_int(pick(state, "memory_usage", "token_capacity")) for state in states]
    pools.append(as_int(pick(value, "max_total_num_tokens")))
    slots = [each for each in slots if each] or [as_int(pick(value, "max_running_requests"))]
    known = [each for each in pools if each]
    return EngineReport(
        source,
        window=as_int(pick(value, "context_length")) or as_int(pick(value, "context_len")) or None,
        slots=min((each for each in slots if each), default=None),
        kv_tokens=min(known, default=None),
        replicas=max(1, as_int(pick(value, "dp_size")) or 1),
        model_path=as_str(pick(value, "model_path")),
        version=as_str(pick(value, "version")),
    )


def read_cache_config(text: str, source: str) -> EngineReport:
    """vLLM ``/metrics``. The tokens are only believed where the engine states them itself: blocks x block size is
    something else on hybrid models and with context parallelism. Several cores with the same figures are replicas."""
    found = [dict(_LABEL.findall(labels)) for labels in _CACHE_INFO.findall(text)]
    pools = {(each.get("kv_cache_size_tokens", ""), each.get("kv_cache_max_concurrency", "")) for each in found}
    if len(pools) != 1 or len({each.get("engine", "") for each in found}) != len(found):
        return EngineReport(source)
    tokens, many = pools.pop()
    concurrency = float(many) if _DECIMAL.fullmatch(many) else None
    blocks = {(_whole(each.get("num_gpu_blocks", "")), _whole(each.get("block_size", ""))) for each in found}
    count, size = blocks.pop() if len(blocks) == 1 else (None, None)
    return EngineReport(
        source,
        kv_tokens=_whole(tokens),
        concurrency=concurrency or None,
        replicas=len(found),
        blocks=count,
        block_tokens=size,
    )


def _whole(text: str) -> int | None:
    """A number of at most 18 digits; None for 0 and for anything else."""
    return (int(text) or None) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def served_tokens(report: EngineReport, window: int | None) -> EngineReport:
    """vLLM up to 0.20.0 states blocks // groups x block size for a hybrid: less than the concurrency that it states
    beside it serves. What is served decides; ``window`` is the length that the concurrency is about."""
    report = replace(report, window=report.window or window)
    if report.concurrency is None:
        return report
    if not window:
        return replace(report, kv_tokens=None)
    served = int(report.concurrency * window + 0.5)
    if report.kv_tokens is not None and report.kv_tokens >= 0.99 * served:
        return report
    return replace(report, kv_tokens=served or None)


def judge_report(report: EngineReport, contract: Contract, ledger: BootLedger | None, model_path: str) -> Leg:
    """The engine's report against the contract, then against its boot log.

    A report that contradicts the log is "no evidence": one of them is not of the engine that answers.
    """
    if report.says_nothing:
        return Leg(LEG, "skip", f"{report.source} states no capacity", code="report-silent", required=False)
    seqs = math.ceil(contract.seqs / report.replicas)
    short = _short(report, contract, seqs)
    return short or _other_model(report, model_path) or _contradiction(report, ledger) or _agreed(report)


def _short(report: EngineReport, contract: Contract, seqs: int) -> Leg | None:
    """The first figure that is surely too small. One replica of several holds its share of the sequences."""
    each = f" of each of {report.replicas} replicas" if report.replicas > 1 else ""
    for stated, wanted, code, what in (
        (report.window, contract.len, "window-short", "tokens a sequence"),
        (report.slots, seqs, "slots-short", "sequences"),
        (report.kv_tokens, seqs * contract.len, "kv-tokens-short", "KV tokens"),
    ):
        if stated is not None and stated < wanted:
            return Leg(
                LEG,
                "fail",
                f"{report.source} says {stated:,} {what}{each}, the contract needs {wanted:,}: "
                f"{wanted - stated:,} short",
                code=code,
                expected=f"{wanted:,} {what}",
                actual=f"{stated:,} {what}",
                evidence=report.excerpt,
                required=False,
            )
    return None


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


def contradicts(report: EngineReport, ledger: BootLedger) -> bool:
    """True if a report and a boot log cannot both be of the engine that answers."""
    return _contradiction(report, ledger) is not None


def _contradiction(report: EngineReport, ledger: BootLedger | None) -> Leg | None:
    if ledger is None:
        return None
    pool = pool_reading(ledger)
    for name, stated, logged in (
        ("n_ctx_slot", report.window, ledger.get("n_ctx_slot")),
        ("max_model_len", report.window, ledger.get("max_model_len")),
        ("n_slots", report.slots, ledger.get("n_slots")),
        ("kv_tokens", report.kv_tokens, pool.value if pool else None),
        ("max_concurrency", report.concurrency, ledger.get("max_concurrency")),
    ):
        if stated is not None and logged is not None and not _agrees(logged, stated):
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


def _agrees(logged: Interval, stated: float) -> bool:
    """Within the log's rounding and one more: vLLM cuts the product of a float to whole tokens."""
    return logged.low - 1 <= stated <= logged.high + 1 if logged.low >= 1000 else logged.contains(round(stated, 2))


def _agreed(report: EngineReport) -> Leg:
    said = [
        f"{figure:,} {what}"
        for figure, what in (
            (report.slots, "sequences"),
            (report.window, "tokens a sequence"),
            (report.kv_tokens, "KV tokens"),
            (report.concurrency, "requests of its whole window at once"),
        )
        if figure is not None
    ]
    each = f", each of {report.replicas} replicas" if report.replicas > 1 else ""
    text = f"{report.source} says {', '.join(said)}{each}"
    return Leg(LEG, "pass", text, evidence=report.excerpt, required=False, numbers=_numbers(report))


def _numbers(report: EngineReport) -> dict[str, int | float | str]:
    """What was stated, by name."""
    stated = {
        "window_tokens": report.window,
        "slots": report.slots,
        "kv_tokens": report.kv_tokens,
        "concurrency": report.concurrency,
        "replicas": report.replicas,
    }
    return {name: value for name, value in stated.items() if value is not None}


def report_json(report: EngineReport) -> dict[str, object]:
    """As plain JSON values, for a later judgement."""
    return asdict(report)
