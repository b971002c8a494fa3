"""Engines over more than one node: which can, and what each node's command line says more. Pure.

vLLM: ``--nnodes``, ``--node-rank``, ``--master-addr`` (from 0.11.1, in its own flag table) and ``--headless`` on every
node but the first, which alone has the API. SGLang: ``--nnodes``, ``--node-rank``, ``--dist-init-addr``
(docs/examples/sglang/lws.yaml of kubernetes-sigs/lws). llama.cpp and radiance run on one node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines.passed_on import table
from archonctl.errors import DeclarationError

RENDEZVOUS_PORT = 29_501
"""Where the ranks find each other: vLLM's own default of ``--master-port``, given to SGLang too."""

_TENSOR = ("tensor-parallel-size", "tp-size", "tp")
_PIPELINE = ("pipeline-parallel-size", "pp-size", "pp")
_DATA = ("data-parallel-size",)


@dataclass(frozen=True, slots=True)
class Across:
    """Words behind the engine's own arguments: those of the first node, and those of every other one."""

    first: tuple[str, ...]
    other: tuple[str, ...]


def ranks(endpoint: Endpoint) -> int:
    """Processes with a card each, by the declared knobs: tensor x pipeline (x vLLM's data parallelism)."""
    found = _size(endpoint, _TENSOR) * _size(endpoint, _PIPELINE)
    return found * _size(endpoint, _DATA) if endpoint.engine.kind == "vllm" else found


def across(endpoint: Endpoint, nodes: int, leader: str, size: str, rank: str) -> Across:
    """What each of ``nodes`` nodes is told; ``leader``, ``size`` and ``rank`` are the words that stand for them.

    Raises DeclarationError ``nodes-unsupported``, ``nodes-uneven``.
    """
    kind, version = endpoint.engine.kind, endpoint.engine.version
    if kind not in ("vllm", "sglang") or table(kind, version).find("nnodes") is None:
        raise DeclarationError(
            "nodes-unsupported",
            f"{kind} {version or '(no version declared)'} runs on one node, {nodes} are declared",
            hint="declare one node with cards enough, or an engine that spans nodes (vLLM from 0.11.1, SGLang)",
        )
    if (total := ranks(endpoint)) % nodes or total < nodes:
        raise DeclarationError(
            "nodes-uneven",
            f"{total} ranks (tensor x pipeline parallelism) do not divide by {nodes} nodes",
            hint=f"set tensor-parallel-size and pipeline-parallel-size so that their product is a multiple of {nodes}",
        )
    words: tuple[str, ...] = ("--nnodes", size, "--node-rank", rank)
    if kind == "sglang":
        words += ("--dist-init-addr", f"{leader}:{RENDEZVOUS_PORT}")
        return Across(words, words)
    words += ("--master-addr", leader, "--master-port", str(RENDEZVOUS_PORT))
    return Across(words, (*words, "--headless"))


def _size(endpoint: Endpoint, names: Iterable[str]) -> int:
    for name in names:
        value = endpoint.engine.knobs.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 1
