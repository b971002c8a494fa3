"""What stands beside the workload: its release and environment, Services, rights, disruption budget, monitoring."""

from __future__ import annotations

import yaml

from archonctl.errors import DeclarationError
from archonctl.fleet.kubernetes.values import VERDICT_PORT, Json, Pod
from archonctl.service.install import shipped

CONFIG_BYTES = 1_000_000
"""A ConfigMap holds 1 MiB at most (core/v1 ConfigMap), names and metadata with it."""


def config_maps(pod: Pod) -> list[Json]:
    """The whole release, so that the sidecar can check it against its own digests, and the environment.

    Immutable: the name says what is in it. Earlier ones stay for ``kubectl rollout undo``.
    Raises DeclarationError ``kubernetes-release-too-large``.
    """
    texts = {name: file.content.decode("utf-8") for name, file in sorted(pod.release.files.items())}
    size = sum(len(text.encode()) for text in texts.values())
    if size > CONFIG_BYTES:
        message = f"the release has {size:,} bytes, and a ConfigMap holds {CONFIG_BYTES:,}"
        raise DeclarationError("kubernetes-release-too-large", message, hint="shorten [engine.env] and the knobs")
    found = [_config_map(pod, pod.config_name, texts)]
    return [*found, _config_map(pod, pod.env_name, dict(pod.release.env))] if pod.release.env else found


def _config_map(pod: Pod, name: str, data: dict[str, str]) -> Json:
    annotations = {"archonctl/release": pod.release.digest}
    meta = pod.meta(name, annotations=annotations)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "data": data}


def services(pod: Pod) -> list[Json]:
    """Where clients go, which has verified pods only; and one that always shows the verdicts of all."""
    chosen = {**pod.selector, "archonctl/role": "leader"}
    http = {"name": "http", "port": pod.port, "targetPort": "http", "protocol": "TCP"}
    verdict = {"name": "verdict", "port": VERDICT_PORT, "targetPort": VERDICT_PORT, "protocol": "TCP"}
    shown = pod.meta(f"{pod.name}-verdict")
    shown["labels"] = {**pod.labels, "archonctl/shows": "verdict"}
    hidden: Json = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": chosen, "ports": [verdict]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": pod.meta(pod.name),
            "spec": {"type": "ClusterIP", "selector": chosen, "ports": [http]},
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": shown, "spec": hidden},
    ]


def rights(pod: Pod) -> list[Json]:
    """An account that may read logs of pods, which is where a boot ledger is; only the sidecar has its token."""
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": pod.meta(pod.name),
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": pod.meta(f"{pod.name}-boot-log"),
            "rules": [{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": pod.meta(f"{pod.name}-boot-log"),
            "roleRef": {"apiGroup": group, "kind": "Role", "name": f"{pod.name}-boot-log"},
            "subjects": [{"kind": "ServiceAccount", "name": pod.name, "namespace": pod.cluster.namespace}],
        },
    ]


def budget(pod: Pod) -> Json:
    """One at a time is moved away from a node that is drained; one that does not hold may always go."""
    spec: Json = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": {**pod.selector, "archonctl/role": "leader"}},
    }
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": pod.meta(pod.name), "spec": spec}


def monitoring(pod: Pod) -> list[Json]:
    """Verdicts scraped from every pod, ready or not, and the shipped alert rules."""
    rules: Json = yaml.safe_load((shipped("observe") / "prometheus" / "archon.rules.yml").read_text(encoding="utf-8"))
    api = "monitoring.coreos.com/v1"
    monitor: Json = {
        "selector": {"matchLabels": {**pod.selector, "archonctl/shows": "verdict"}},
        "endpoints": [{"port": "verdict", "path": "/metrics", "interval": "30s"}],
    }
    return [
        {"apiVersion": api, "kind": "ServiceMonitor", "metadata": pod.meta(pod.name), "spec": monitor},
        {
            "apiVersion": api,
            "kind": "PrometheusRule",
            "metadata": pod.meta(pod.name),
            "spec": rules,
        },
    ]
