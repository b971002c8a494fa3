"""What a running engine states of its capacity now: two bounded requests at most."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines import adapter
from archonctl.engines.base import Api
from archonctl.errors import ArchonError, DeclarationError
from archonctl.probe.address import addresses, read_key
from archonctl.probe.client import Http
from archonctl.probe.faults import Fault
from archonctl.probe.jsonread import as_int, parse_json, pick
from archonctl.probe.limits import Limits
from archonctl.probe.report import (
    EngineReport,
    read_cache_config,
    read_props,
    read_server_info,
    read_sglang_info,
    served_tokens,
    with_slots,
)

_BOUNDS = Limits(connect_s=2.0, read_s=5.0)


@dataclass(frozen=True)
class Live:
    """``report`` is None where the engine does not answer; ``answer_tokens`` is the longest answer where a request
    names none, if the engine was told one."""

    report: EngineReport | None = None
    answer_tokens: int | None = None


def live_of(endpoint: Endpoint, limits: Limits = _BOUNDS) -> Live:
    """Ask the engine. Never raises: what it does not say is None. Not for an event loop: it has one of its own."""
    try:
        return asyncio.run(_ask(endpoint, adapter(endpoint.engine.kind).api, limits))
    except (Fault, ArchonError, OSError):  # of its own event loop, where no more files may be open
        return Live()


async def _ask(endpoint: Endpoint, api: Api, limits: Limits) -> Live:
    async with Http(addresses(endpoint.service), _key(endpoint.service.api_key_file), limits) as http:

        async def get(path: str) -> bytes | None:
            answer = await http.get(path, limits.read_s, limits.body_bytes)
            return answer.body if answer.status == 200 else None

        body = await get(api.report) if api.report else None
        if body is None:
            return Live()
        if api.report_format == "vllm-metrics":
            window = _window(await get(api.models))
            return Live(served_tokens(read_cache_config(body.decode("utf-8", "replace"), api.report), window))
        return _read(api, parse_json(body), await get(api.busy) if api.busy == "/slots" else None)


def _read(api: Api, value: object, slots: bytes | None) -> Live:
    if api.report_format == "sglang-server-info":
        return Live(read_sglang_info(value, api.report))
    if api.report_format == "radiance-server-info":
        return Live(read_server_info(value, api.report), as_int(pick(value, "request_defaults", "max_tokens")) or None)
    report = read_props(value, api.report)
    if slots is not None:
        report = with_slots(report, parse_json(slots))
    # llama.cpp b11434 server-task.cpp: the default of n_predict is -1, no limit
    return Live(report, as_int(pick(value, "default_generation_settings", "params", "n_predict")) or None)


def _window(models: bytes | None) -> int | None:
    """vLLM's window, from its model list."""
    return as_int(pick(parse_json(models), "data", 0, "max_model_len")) or None if models is not None else None


def _key(path: str) -> str:
    try:
        return read_key(path)
    except DeclarationError:
        return ""
