"""The files: nginx, Envoy, LiteLLM, vllm-router, Prometheus. Pure; each with the public source of its form."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Sequence

from archonctl.engines import adapter
from archonctl.errors import DeclarationError, UsageError
from archonctl.fleet.backends import Backend
from archonctl.fleet.kubernetes.text import documents
from archonctl.fleet.routing.rotation import Member, Rotation

_ASSIGNMENT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
HEAD = (
    "# Written by archonctl fleet route from verified capacity. It is written again: change the fleet, not this file.\n"
)


def nginx(rotations: Sequence[Rotation]) -> str:
    """``upstream`` blocks to include in ``http``; weight, max_conns and down as in ngx_http_upstream_module.

    ``zone`` makes max_conns count over all workers. A whole answer may take minutes, so a connection that is open is
    a conversation.
    """
    blocks = []
    for rotation in rotations:
        name = f"archon_{rotation.endpoint}"
        lines = [f"upstream {name} {{", f"    zone {name} 64k;", "    least_conn;"]
        lines += [_server(member) for member in rotation.members if member.backend.address]
        if not rotation.serving:
            lines.append("    server unix:/nonexistent down;  # nobody: nginx takes no upstream without a server")
        blocks.append("\n".join([*lines, "}"]))
    return HEAD + "\n".join(blocks) + "\n"


def _server(member: Member) -> str:
    backend = member.backend
    if not member.is_in:
        return f"    server {backend.address} down;  # {_remark(backend)}"
    most = f" max_conns={backend.capacity_seqs}" if backend.capacity_seqs else ""
    return f"    server {backend.address} weight={member.weight}{most};  # {_remark(backend)}"


def _remark(backend: Backend) -> str:
    """Words for a comment: whatever a host said, it stays on its line."""
    words = f"{backend.host}: {backend.reason or backend.state}"
    return re.sub(r"[^ -~]+", " ", words)[:120]


def envoy(rotations: Sequence[Rotation]) -> str:
    """An EDS file (``path_config_source``): a DiscoveryResponse with one ClusterLoadAssignment an endpoint.

    Source: envoy.service.discovery.v3 and envoy.config.endpoint.v3. Envoy reads it again when it is moved into place.
    """
    resources = []
    for rotation in rotations:
        reached = [_lb_endpoint(each, *where) for each in rotation.members if (where := _ip_and_port(each))]
        assignment = {"cluster_name": rotation.endpoint, "endpoints": [{"lb_endpoints": reached}]}
        resources.append({"@type": _ASSIGNMENT, **assignment})
    return json.dumps({"resources": resources}, indent=2) + "\n"


def _lb_endpoint(member: Member, address: str, port: int) -> dict[str, object]:
    return {
        "endpoint": {
            "hostname": member.backend.host,
            "address": {"socket_address": {"address": address, "port_value": port}},
        },
        "health_status": "HEALTHY" if member.is_in else "UNHEALTHY",
        "load_balancing_weight": max(1, member.weight),
    }


def _ip_and_port(member: Member) -> tuple[str, int] | None:
    """None for one out of rotation that has no IP address: it need not be told of."""
    backend = member.backend
    host, _, port = backend.address.rpartition(":")
    try:
        return str(ipaddress.ip_address(host.strip("[]"))), int(port)
    except ValueError:
        if not member.is_in:
            return None
        why = (
            f"{backend.endpoint} on {backend.host} is reached at {backend.address}, and Envoy's EDS takes an IP address"
        )
        hint = "name its IP address and port there"
        raise DeclarationError("fleet-route-address", why, where=f"archon_route of {backend.host}", hint=hint) from None


def litellm(rotations: Sequence[Rotation]) -> str:
    """``model_list`` of LiteLLM's proxy (docs.litellm.ai, "Load Balancing"), weight and max_parallel_requests of each.

    What is out of rotation is not listed: there is no state for it. The key is that of the variable ARCHON_API_KEY.
    """
    models = [_deployment(rotation.endpoint, member) for rotation in rotations for member in rotation.serving]
    return HEAD + documents([{"model_list": models, "router_settings": {"routing_strategy": "simple-shuffle"}}])


def _deployment(name: str, member: Member) -> dict[str, object]:
    backend = member.backend
    maker = "hosted_vllm" if backend.engine == "vllm" else "openai"
    params: dict[str, object] = {
        "model": f"{maker}/{backend.model}",
        "api_base": f"{_url(backend)}/v1",
        "api_key": "os.environ/ARCHON_API_KEY",
        "weight": member.weight,
    }
    info: dict[str, object] = {"id": f"{name}@{backend.host}"}
    return {
        "model_name": name,
        "litellm_params": {**params, "max_parallel_requests": backend.capacity_seqs}
        if backend.capacity_seqs
        else params,
        "model_info": {**info, "max_input_tokens": backend.capacity_len} if backend.capacity_len else info,
    }


def vllm_router(rotations: Sequence[Rotation]) -> str:
    """Arguments of vllm-router as an environment file of systemd: it takes workers on its command line only.

    It knows no weights, and one router serves one model. Raises UsageError ``fleet-route-one-endpoint``.
    """
    if len(rotations) != 1:
        names = ", ".join(each.endpoint for each in rotations)
        raise UsageError(
            "fleet-route-one-endpoint",
            f"vllm-router serves one model, and here are {len(rotations)} endpoints: {names}",
            hint="name one with --endpoint NAME",
        )
    serving = rotations[0].serving
    seqs = [member.backend.capacity_seqs for member in serving]
    words = ["--worker-urls", *(_url(member.backend) for member in serving)]
    if seqs and all(seqs):
        words += ["--max-concurrent-requests", str(sum(each or 0 for each in seqs))]
    return HEAD + f"VLLM_ROUTER_ARGS={' '.join(words)}\n"


def file_sd(rotations: Sequence[Rotation]) -> str:
    """Targets for Prometheus (file_sd_config): every exporter, and every engine that has metrics.

    Whatever its verdict: what is broken has to be seen. The label ``archon_target`` tells the two apart.
    """
    exporters, groups = dict[str, str](), list[dict[str, object]]()
    for backend in (member.backend for rotation in rotations for member in rotation.members):
        if backend.metrics:
            exporters[backend.metrics] = backend.host
        path = adapter(backend.engine).api.metrics if backend.engine in _ENGINES else ""
        if backend.address and path:
            labels = {"archon_target": "engine", "archon_host": backend.host, "endpoint": backend.endpoint}
            scheme = {"__scheme__": "https"} if backend.https else {}
            groups.append({"targets": [backend.address], "labels": {**labels, "__metrics_path__": path, **scheme}})
    hosts = [
        {"targets": [target], "labels": {"archon_target": "exporter", "archon_host": host}}
        for target, host in exporters.items()
    ]
    return json.dumps([*hosts, *groups], indent=2) + "\n"


def _url(backend: Backend) -> str:
    return f"{'https' if backend.https else 'http'}://{backend.address}"


_ENGINES = ("radiance", "vllm", "sglang", "llamacpp")

RENDERERS: dict[str, Callable[[Sequence[Rotation]], str]] = {
    "nginx": nginx,
    "envoy": envoy,
    "litellm": litellm,
    "vllm-router": vllm_router,
    "file-sd": file_sd,
}
"""Every target by its name."""

RELOAD = {
    "nginx": "nginx -t && systemctl reload nginx",
    "envoy": "",
    "litellm": "systemctl restart litellm",
    "vllm-router": "systemctl restart vllm-router",
    "file-sd": "",
}
"""What makes the program read the file; empty where it watches it. Told, never run."""
