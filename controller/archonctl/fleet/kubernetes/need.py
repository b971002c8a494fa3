"""What a pod needs of its node, by the plan of the very declaration that is rendered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from archonctl.deployment.load import LoadedEndpoint
from archonctl.engines.base import CommandLine, ContainerSpec
from archonctl.engines.nodes import ranks
from archonctl.errors import DeclarationError, ModelError
from archonctl.host.load import load_host
from archonctl.memory.interval import MIB
from archonctl.plan.build import plan_endpoint
from archonctl.plan.values import Plan
from archonctl.probe.budget import estimate
from archonctl.probe.limits import Limits
from archonctl.release.preflight_file import parse_preflight, preflight_text

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"

SLOWEST_TOKENS_PER_S = 200
"""Assumed: a probe that reads its prompts slower than this has run out of time."""
LEAST_PROBE_S = 600


def in_pod(loaded: LoadedEndpoint) -> LoadedEndpoint:
    """The declaration as it holds within a pod: a network of its own, all addresses listened on.

    A ``public_url`` is left out: the verdict of a pod is about this pod, not about whoever answers at the front door.
    """
    endpoint = loaded.endpoint
    port = endpoint.service.listen.rpartition(":")[2]
    network = "pod" if endpoint.container.network == "host" else endpoint.container.network
    service = endpoint.service.model_copy(update={"listen": f"127.0.0.1:{port}", "public_url": "", "ca_file": ""})
    container = endpoint.container.model_copy(update={"network": network})
    return replace(loaded, endpoint=endpoint.model_copy(update={"service": service, "container": container}))


def plan_of(loaded: LoadedEndpoint) -> tuple[Plan | None, str]:
    """The plan, and why there is none: the model need not lie on the machine that renders."""
    try:
        return plan_endpoint(loaded), ""
    except ModelError as err:
        return None, f"no plan was made here ({err.message})"


def preflight_of(loaded: LoadedEndpoint, command: CommandLine, plan: Plan | None) -> str:
    """The text of ``preflight.env``; empty without a plan."""
    if plan is None:
        return ""
    return preflight_text(loaded.name, loaded.endpoint.engine.kind, command, plan.forecast, load_host(loaded))


def checks_of(text: str) -> Mapping[str, str | int]:
    """Its keys."""
    return parse_preflight(text.encode("utf-8")) if text else {}


def memory_mib(loaded: LoadedEndpoint, plan: Plan | None, checks: Mapping[str, str | int], why: str) -> int:
    """MiB of the node's memory that are asked for. Raises DeclarationError ``kubernetes-memory-unknown``."""
    if (declared := loaded.endpoint.kubernetes.memory_mib) is not None:
        return declared
    if plan is not None and plan.forecast.host_need.pinned is not None:
        return int(checks["RAM_NEED_MIB"])
    # the weights too: pages of a mapped file may be dropped, and then every token reads them again
    held = sum(each.bytes for each in plan.forecast.demands if each.scope == "host") if plan is not None else 0
    if held <= 0:
        raise DeclarationError(
            "kubernetes-memory-unknown",
            f"nothing says how much of a node's memory the engine holds: {why or 'the plan does not know'}",
            where="kubernetes.memory_mib",
            hint="set kubernetes.memory_mib, or render where the model and its host profile can be read",
        )
    return -(-int(held) // MIB)


def cards_of(
    loaded: LoadedEndpoint, spec: ContainerSpec, plan: Plan | None, checks: Mapping[str, str | int]
) -> tuple[int, str]:
    """How many cards a pod gets of which device plugin; (0, "") for none. Raises DeclarationError."""
    declared = loaded.endpoint.kubernetes
    resource = declared.card_resource or _maker(spec)
    if not resource or declared.cards == 0:
        return 0, ""
    if resource == "unknown":
        raise DeclarationError(
            "kubernetes-cards-unknown",
            f"the devices {', '.join(spec.devices)} tell no maker of cards, so no device plugin",
            where="kubernetes.card_resource",
            hint='set kubernetes.card_resource, such as "amd.com/gpu", and kubernetes.cards',
        )
    found = declared.cards or _count(loaded, spec, plan, checks)
    if found <= 0:
        raise DeclarationError(
            "kubernetes-cards-unknown",
            f"nothing says how many {resource} the engine uses",
            where="kubernetes.cards",
            hint="set kubernetes.cards, or name the cards in the host profile",
        )
    return found, resource


def _maker(spec: ContainerSpec) -> str:
    names = " ".join((*spec.devices, "nvidia.com/gpu" if spec.gpus else ""))
    if "nvidia" in names:
        return NVIDIA
    if "/dev/kfd" in names or "amd.com/gpu" in names:
        return AMD
    return "unknown" if spec.devices else ""


def _count(loaded: LoadedEndpoint, spec: ContainerSpec, plan: Plan | None, checks: Mapping[str, str | int]) -> int:
    nodes = loaded.endpoint.kubernetes.nodes
    if spec.gpus and spec.gpus != "all":
        return len(spec.gpus.split(","))
    if isinstance(there := checks.get("RENDER_NODES"), int) and there:
        return there
    if loaded.endpoint.engine.kind != "llamacpp":
        return ranks(loaded.endpoint) // nodes
    host = load_host(loaded)
    return len(plan.forecast.cards) if plan is not None and host.cards else 0


def probe_seconds(loaded: LoadedEndpoint) -> int:
    """How long the verdict may take after the engine answers: by the tokens that it asks for."""
    tokens = estimate(loaded.endpoint).tokens
    return min(int(Limits().cap_s), max(LEAST_PROBE_S, math.ceil(tokens / SLOWEST_TOKENS_PER_S)))
