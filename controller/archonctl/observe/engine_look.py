"""What a running engine publishes of itself: at most two bounded requests, renamed and nothing else."""

from __future__ import annotations

import asyncio

from archonctl.deployment.schema import Endpoint
from archonctl.engines import adapter
from archonctl.errors import DeclarationError
from archonctl.observe.refusals import METRIC, counted
from archonctl.observe.samples import normalised
from archonctl.observe.values import Sample, sample
from archonctl.probe.address import addresses, read_key
from archonctl.probe.client import Http
from archonctl.probe.faults import unseen
from archonctl.probe.jsonread import parse_json
from archonctl.probe.limits import Limits
from archonctl.probe.metrics import load_of_json

_BOUNDS = Limits(connect_s=2.0, read_s=5.0)
_RUNNING = "archon_engine_requests_running"


def engine_look(name: str, endpoint: Endpoint, limits: Limits = _BOUNDS) -> list[Sample]:
    """Ask the engine. Raises Fault: it does not answer, not in time, or not with metrics."""
    return asyncio.run(_ask(name, endpoint, limits))


async def _ask(name: str, endpoint: Endpoint, limits: Limits) -> list[Sample]:
    engine, api = endpoint.engine.kind, adapter(endpoint.engine.kind).api
    async with Http(addresses(endpoint.service), _key(endpoint.service.api_key_file), limits) as http:
        values: dict[str, float] = {}
        refusals: list[Sample] = []
        statuses: list[str] = []
        if api.metrics:
            answer = await http.get(api.metrics, limits.read_s, limits.body_bytes)
            statuses.append(f"{api.metrics}: HTTP {answer.status}")
            if answer.status == 200:
                text = answer.body.decode("utf-8", "replace")
                values = normalised(engine, text)
                refusals = [
                    sample(METRIC, name, kind.cls, kind.reason, "engine", value=value)
                    for kind, value in counted(engine, text).items()
                ]
        if _RUNNING not in values and api.busy and api.busy != api.metrics:
            answer = await http.get(api.busy, limits.read_s, limits.body_bytes)
            statuses.append(f"{api.busy}: HTTP {answer.status}")
            load = load_of_json(parse_json(answer.body)) if answer.status == 200 else None
            if load is not None:  # llama-server without --metrics still tells which slots are busy
                values[_RUNNING] = load.running
    if not values:
        raise unseen("metrics-unusable", f"{engine} publishes nothing that is known ({', '.join(statuses)})")
    return [*(sample(key, name, value=value) for key, value in values.items()), *refusals]


def _key(path: str) -> str:
    """The key, where this account may read it; most engines show their metrics without."""
    try:
        return read_key(path)
    except DeclarationError:
        return ""
