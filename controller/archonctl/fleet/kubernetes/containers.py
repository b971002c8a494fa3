"""The containers of a pod: the engine, the checks before it, and the sidecar that takes the verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence

from archonctl.fleet.kubernetes.values import CACHE_DIR, RELEASE_DIR, VERDICT_PORT, Json, Pod
from archonctl.fleet.kubernetes.volumes import Volumes, secret_env
from archonctl.release.preflight_file import PREFLIGHT_FILE
from archonctl.release.unit import STOP_S

ENGINE, SIDECAR = "engine", "verdict"
PERIOD_S = 10
DRAIN_S = 10
"""Longer than it takes until every proxy of the cluster knows that a pod is going."""
PREFLIGHT = "/usr/lib/archon/ttm-preflight.sh"
_PREFLIGHT_AT = f"/etc/archon/{PREFLIGHT_FILE}"
API_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"


def stop_seconds(pod: Pod) -> int:
    """Seconds from the order to stop until SIGKILL."""
    return DRAIN_S + max(STOP_S, pod.spec.stop_s + 30)


def startup_seconds(pod: Pod) -> int:
    """Seconds until a verdict must be there: the load, and the probe."""
    return pod.need.start_s + pod.need.probe_s


def engine(pod: Pod, volumes: Volumes, more: Sequence[str] = (), *, leads: bool = True) -> Json:
    """The engine as the release has it. ``leads``: it answers requests, so a verdict is taken of it."""
    spec = pod.spec
    words = (*spec.arguments, *more)
    found: Json = {"name": ENGINE, "image": spec.image, "imagePullPolicy": "IfNotPresent"}
    if spec.entrypoint:
        found["command"] = [_word(spec.entrypoint)]
    # words of the pod itself, which name variables of the group's controller, stay as they are
    found["args"] = [*map(_word, words[: len(spec.arguments)]), *more]
    if pod.release.env:
        found["envFrom"] = [{"configMapRef": {"name": pod.env_name}}]
    found["env"] = [{"name": "HOME", "value": CACHE_DIR}, *secret_env(pod.cluster.secrets)]
    if leads:
        found["ports"] = [{"name": "http", "containerPort": pod.port}]
        # no livenessProbe: an engine that loads, or is busy with a long prompt, must never be killed for it; one that
        # ends is started anew, one that does not answer leaves the Service
        found["startupProbe"] = {
            "httpGet": {"path": "/startup", "port": VERDICT_PORT},
            "periodSeconds": PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": math.ceil(startup_seconds(pod) / PERIOD_S),
        }
        found["readinessProbe"] = {
            "httpGet": {"path": "/ready", "port": VERDICT_PORT},
            "periodSeconds": PERIOD_S,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        }
        found["lifecycle"] = {"preStop": {"sleep": {"seconds": DRAIN_S}}}
    found["resources"] = _resources(pod)
    found["securityContext"] = _confined(pod, spec.seccomp)
    mounts = list(volumes.mounts)
    if pod.cluster.hugepages_2mi_mib:
        mounts.append({"name": "hugepages", "mountPath": "/dev/hugepages"})
    found["volumeMounts"] = mounts
    return found


def before(pod: Pod) -> list[Json]:
    """What is checked on the node first; nothing where the endpoint needs nothing of it."""
    checks, found = pod.need.preflight, list[Json]()
    if "RANKS" in checks:
        found.append(_raise(pod))
    if "MEMLOCK_NEED_MIB" in checks or "DEVICES" in checks:
        found.append(_inside(pod))
    return found


def _raise(pod: Pod) -> Json:
    """Root without a capability: the file belongs to root, and one narrow mount makes it writable.

    ``/sys`` itself stays read-only, so ``privileged`` is not needed. The runtime's AppArmor profile forbids to write
    below ``/sys`` and SELinux's container type too, and nothing else of theirs is in the way.
    """
    parameters = f"/sys/module/{pod.cluster.ttm_module}/parameters"
    return {
        "name": "preflight",
        "image": pod.cluster.controller_image,
        "command": [PREFLIGHT, "--raise", _PREFLIGHT_AT],
        "resources": _resources(pod),
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
            "appArmorProfile": {"type": "Unconfined"},
            "seLinuxOptions": {"type": "spc_t"},
        },
        "volumeMounts": [_preflight_file(), {"name": "ttm", "mountPath": parameters}],
    }


def _inside(pod: Pod) -> Json:
    """The limits and devices that the engine's own account has in such a container."""
    return {
        "name": "preflight-inside",
        "image": pod.cluster.controller_image,
        "command": [PREFLIGHT, "--inside", _PREFLIGHT_AT],
        "resources": _resources(pod),
        "securityContext": _confined(pod, pod.spec.seccomp),
        "volumeMounts": [_preflight_file()],
    }


def _preflight_file() -> Json:
    # by subPath: a plain file of root's, which is what the script takes; the volume's own folder is open to all
    return {"name": "release", "mountPath": _PREFLIGHT_AT, "subPath": PREFLIGHT_FILE, "readOnly": True}


def sidecar(pod: Pod, volumes: Volumes) -> Json:
    """Takes the verdict and answers for it; it starts before the engine and outlives it (restartPolicy Always)."""
    here = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        {"name": "HOME", "value": "/tmp"},
    ]
    mounts: list[Json] = [
        {"name": "release", "mountPath": RELEASE_DIR, "readOnly": True},
        {"name": "api", "mountPath": API_DIR, "readOnly": True},
        {"name": "verdict", "mountPath": "/tmp"},
        *volumes.keys,
    ]
    return {
        "name": SIDECAR,
        "image": pod.cluster.controller_image,
        "restartPolicy": "Always",
        "command": ["archonctl"],
        "args": ["sidecar", RELEASE_DIR, "--listen", f"0.0.0.0:{VERDICT_PORT}", "--pod-log", ENGINE],
        "env": here,
        "ports": [{"name": "verdict", "containerPort": VERDICT_PORT}],
        "resources": {"requests": {"cpu": "100m", "memory": "192Mi"}},
        "securityContext": _confined(pod, ""),
        "volumeMounts": mounts,
    }


def _resources(pod: Pod) -> Json:
    """What is asked of the node; a card is a limit too, memory only where that is declared."""
    need, cluster = pod.need, pod.cluster
    both: Json = {"ephemeral-storage": f"{cluster.scratch_mib}Mi"}
    if need.cards:
        both[need.resource] = str(need.cards)
    if cluster.hugepages_2mi_mib:
        both["hugepages-2Mi"] = f"{cluster.hugepages_2mi_mib}Mi"
    limit: Json = {"memory": f"{cluster.memory_limit_mib}Mi"} if cluster.memory_limit_mib else {}
    return {"requests": {"memory": f"{need.memory_mib}Mi", **both}, "limits": {**limit, **both}}


def _confined(pod: Pod, seccomp: str) -> Json:
    return {
        "runAsNonRoot": True,
        "runAsUser": pod.cluster.run_as_user,
        "runAsGroup": pod.cluster.run_as_user,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "Unconfined" if seccomp == "unconfined" else "RuntimeDefault"},
    }


def _word(text: str) -> str:
    """A word as it is: ``$(NAME)`` would be a variable of the pod (core/v1 Container, args)."""
    return text.replace("$", "$$")
