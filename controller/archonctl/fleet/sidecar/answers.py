"""What the sidecar answers over HTTP, and the metrics of one endpoint."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from archonctl.fleet.sidecar.watch import State, Watch
from archonctl.observe.board import Board
from archonctl.observe.endpoint_look import VERDICTS
from archonctl.observe.engine_look import engine_look
from archonctl.observe.serve import registry
from archonctl.observe.values import Sample, one_hot, sample
from archonctl.probe.faults import Fault
from archonctl.probe.ledger_leg import pool_reading

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

EVERY_S = 15.0


def app(watch: Watch, board: Board) -> WSGIApplication:
    """``/startup``: 200 when a verdict on this start holds. ``/ready``: and the engine is healthy now.

    ``/verdict``: the whole of it as JSON. ``/metrics``: for Prometheus.
    """
    from prometheus_client import make_wsgi_app

    metrics = make_wsgi_app(registry(board))

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start)
            return found
        if path == "/verdict":
            return _said(start, "200 OK", json.dumps(verdict_value(watch)), "application/json")
        if path not in ("/startup", "/ready"):
            return _said(start, "404 Not Found", "startup, ready, verdict, metrics")
        state = watch.state
        why = watch.ready() if path == "/ready" else _unverified(state)
        return _said(start, "503 Service Unavailable" if why else "200 OK", why or "the contract holds")

    return answer


def _unverified(state: State) -> str:
    return "" if state.word == "holds" else ": ".join((state.word, *state.reasons))


def _said(start: StartResponse, status: str, text: str, kind: str = "text/plain") -> list[bytes]:
    body = text.encode("utf-8") + b"\n"
    start(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body)))])
    return [body]


def verdict_value(watch: Watch) -> dict[str, object]:
    """``archonctl.sidecar/1``."""
    state, release = watch.state, watch.release
    return {
        "schema": "archonctl.sidecar/1",
        "endpoint": release.loaded.name,
        "release": release.digest,
        "word": state.word,
        "reasons": list(state.reasons),
        "at": state.at,
        "probe": dict(state.value) if state.value else None,
    }


def keep_looking(watch: Watch, board: Board, stop: threading.Event, every_s: float = EVERY_S) -> None:
    """Put what is known on the board until ``stop``; a scrape waits for nothing."""
    name, endpoint = watch.release.loaded.name, watch.release.loaded.endpoint
    while not stop.is_set():
        board.put(name, "state", state_samples(watch))
        try:
            board.put(name, "engine", engine_look(name, endpoint))
        except Fault:
            board.fail(name, "engine")
        stop.wait(every_s)


def state_samples(watch: Watch) -> list[Sample]:
    """Contract, verdict and live capacity, by the names that the exporter on a host has for them."""
    name, endpoint, state = watch.release.loaded.name, watch.release.loaded.endpoint, watch.state
    contract, engine = endpoint.contract, endpoint.engine
    word = {"loading": "down", "probing": "unverified"}.get(state.word, state.word.replace(" ", "_"))
    found = [
        *one_hot("archon_verdict", name, VERDICTS, word),
        sample("archon_endpoint_info", name, engine.kind, engine.version[:100], watch.release.digest[:16], value=1),
        sample("archon_contract_seqs", name, value=contract.seqs),
        sample("archon_contract_seq_len_tokens", name, value=contract.len),
        sample("archon_contract_tokens", name, value=contract.tokens),
        sample("archon_contract_margin_ratio", name, value=contract.margin),
    ]
    if state.at is not None:
        found.append(sample("archon_verdict_timestamp_seconds", name, value=state.at))
        found.append(sample("archon_evidence_age_seconds", name, value=max(0.0, time.time() - state.at)))
    pool = pool_reading(state.ledger) if state.ledger else None
    if pool is not None:
        found.append(sample("archon_live_capacity_tokens", name, value=int(pool.value.low)))
        found.append(sample("archon_contract_spare_tokens", name, value=int(pool.value.low) - contract.tokens))
    return found
