"""The workload: a Deployment, a StatefulSet where a replica keeps something, a LeaderWorkerSet over nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from archonctl.fleet.kubernetes import containers
from archonctl.fleet.kubernetes.values import Json, Pod
from archonctl.fleet.kubernetes.volumes import Volumes, volumes_of

ROLLOUT_SPARE_S = 900
"""More than a verdict needs: pulling the image and waiting for a node."""


@dataclass(frozen=True, slots=True)
class LeaderWords:
    """The variables that the LeaderWorkerSet controller gives every pod of a group (its docs, "labels and variables").

    They are expanded by the kubelet in ``args``.
    """

    leader: str = "$(LWS_LEADER_ADDRESS)"
    size: str = "$(LWS_GROUP_SIZE)"
    rank: str = "$(LWS_WORKER_INDEX)"


def workload(pod: Pod) -> Json:
    """Raises DeclarationError as ``volumes_of``."""
    volumes = volumes_of(pod)
    if pod.across is not None:
        return _group(pod, volumes)
    if volumes.templates:
        return _stateful(pod, volumes)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": pod.meta(pod.name),
        "spec": {
            "replicas": pod.cluster.replicas,
            "revisionHistoryLimit": 5,
            # a rollout without a verdict in time is reported as failed: kubectl rollout status, and undo
            "progressDeadlineSeconds": containers.startup_seconds(pod) + ROLLOUT_SPARE_S,
            "selector": {"matchLabels": pod.selector},
            "strategy": _strategy(pod),
            "template": _template(pod, volumes),
        },
    }


def kind_of(manifest: Mapping[str, object]) -> str:
    """The kind of the workload."""
    return str(manifest["kind"])


def _strategy(pod: Pod) -> Json:
    """Without a card to spare the new copy cannot start beside the old one: it would wait for ever, or push it out."""
    if pod.cluster.spare_card:
        return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    if pod.cluster.replicas > 1:
        # one at a time, and no further than the first whose contract does not hold
        return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return {"type": "Recreate"}


def _stateful(pod: Pod, volumes: Volumes) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": pod.meta(pod.name),
        "spec": {
            "replicas": pod.cluster.replicas,
            "revisionHistoryLimit": 5,
            "serviceName": f"{pod.name}-verdict",
            # all at once at the start, one after the other in an update; OrderedReady cannot go back from a broken one
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": pod.selector},
            "template": _template(pod, volumes),
            "volumeClaimTemplates": list(volumes.templates),
        },
    }


def _group(pod: Pod, volumes: Volumes) -> Json:
    assert pod.across is not None
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": pod.meta(pod.name),
        "spec": {
            "replicas": pod.cluster.replicas,
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxSurge": int(pod.cluster.spare_card), "maxUnavailable": 1},
            },
            "leaderWorkerTemplate": {
                "size": pod.cluster.nodes,
                # ranks that lost one of them cannot go on, and none of them joins a group that runs
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": _template(pod, volumes, pod.across.first),
                "workerTemplate": _template(pod, volumes, pod.across.other, leads=False),
            },
        },
    }


def _template(pod: Pod, volumes: Volumes, more: Sequence[str] = (), *, leads: bool = True) -> Json:
    labels = {**pod.labels, "archonctl/role": "leader"} if leads else {**pod.labels, "archonctl/role": "worker"}
    if "RANKS" in pod.need.preflight:
        labels["archonctl/pins-memory"] = "yes"
    return {
        "metadata": {"labels": labels, "annotations": {"archonctl/release": pod.release.digest}},
        "spec": _spec(pod, volumes, more, leads=leads),
    }


def _spec(pod: Pod, volumes: Volumes, more: Sequence[str], *, leads: bool) -> Json:
    cluster, spec = pod.cluster, pod.spec
    found: Json = {
        "serviceAccountName": pod.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": containers.stop_seconds(pod),
        "securityContext": {
            "fsGroup": cluster.run_as_user,
            "fsGroupChangePolicy": "OnRootMismatch",
            **({"supplementalGroups": list(spec.groups)} if spec.groups else {}),
        },
    }
    if cluster.runtime_class:
        found["runtimeClassName"] = cluster.runtime_class
    if cluster.priority_class:
        found["priorityClassName"] = cluster.priority_class
    if cluster.pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in cluster.pull_secrets]
    if cluster.node_selector:
        found["nodeSelector"] = dict(cluster.node_selector)
    if cluster.tolerations:
        found["tolerations"] = [
            {key: value for key, value in each.model_dump().items() if value} for each in cluster.tolerations
        ]
    found |= _apart(pod)
    found["initContainers"] = [*containers.before(pod), *([containers.sidecar(pod, volumes)] if leads else [])]
    if not found["initContainers"]:
        del found["initContainers"]
    found["containers"] = [containers.engine(pod, volumes, more, leads=leads)]
    found["volumes"] = list(volumes.volumes)
    return found


def _apart(pod: Pod) -> Json:
    """Replicas on nodes of their own where that can be; endpoints that pin memory always, for they share one limit."""
    found: Json = {}
    if pod.cluster.replicas > 1:
        found["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": pod.selector},
            }
        ]
    if "RANKS" in pod.need.preflight:
        rule = {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"archonctl/pins-memory": "yes"}},
            "namespaceSelector": {},
        }
        found["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
    return found
