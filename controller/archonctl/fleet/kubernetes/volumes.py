"""Where the folders and files of a pod come from: what is mounted on a host, by what the cluster has instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from archonctl.errors import DeclarationError
from archonctl.fleet.kubernetes.values import CACHE_DIR, Json, Pod


@dataclass(frozen=True, slots=True)
class Volumes:
    """Of one pod: ``mounts`` of its engine, ``volumes`` of the pod, ``templates`` of claims of each replica's own.

    ``keys`` are the mounts of secrets that whoever asks the engine needs too.
    """

    mounts: tuple[Json, ...]
    volumes: tuple[Json, ...]
    templates: tuple[Json, ...]
    keys: tuple[Json, ...]


def volumes_of(pod: Pod) -> Volumes:
    """Raises DeclarationError ``kubernetes-volume-missing``."""
    needed = dict(_mounts(pod))
    files = {path: name for path, name in pod.cluster.secrets.items() if path.startswith("/")}
    declared = pod.cluster.volumes
    if missing := [path for path in needed if path not in declared and path not in files]:
        raise DeclarationError(
            "kubernetes-volume-missing",
            f"nothing says where {', '.join(missing[:4])} comes from in a pod",
            where="kubernetes.volumes",
            hint=f'[kubernetes.volumes] "{missing[0]}" = "pvc:CLAIM" (or "image:...", "hostPath"); '
            'a key\'s file: [kubernetes.secrets] "PATH" = "SECRET/KEY"',
        )
    mounts, volumes, templates = list[Json](), list[Json](), list[Json]()
    for path, source in declared.items():
        name = _name(path, len(volumes) + len(templates))
        host, read_only = needed.get(path, (path, False))
        mount: Json = {"name": name, "mountPath": path}
        kind, _, rest = source.partition(":")
        if kind == "pvc" and "/" in rest:
            mount["subPath"] = rest.partition("/")[2]
        mounts.append({**mount, "readOnly": True} if read_only or kind == "image" else mount)
        if kind == "template":
            templates.append(_template(name, rest))
        else:
            volumes.append({"name": name, **_source(kind, rest, host, read_only=read_only)})
    keys = [_secret(number, path, name) for number, (path, name) in enumerate(files.items())]
    mounts += [mount for mount, _ in keys] + _own_mounts(pod)
    volumes += [volume for _, volume in keys] + _own(pod)
    return Volumes(tuple(mounts), tuple(volumes), tuple(templates), tuple(mount for mount, _ in keys))


def secret_env(secrets: Mapping[str, str]) -> list[Json]:
    """The variables that come from secrets, by reference."""
    found: list[Json] = []
    for name, where in secrets.items():
        if not name.startswith("/"):
            secret, _, key = where.partition("/")
            found.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    return found


def _mounts(pod: Pod) -> Iterator[tuple[str, tuple[str, bool]]]:
    for mount in pod.spec.mounts:
        host, inside, *options = mount.split(":")
        yield inside, (host, "ro" in ",".join(options).split(","))


def _name(path: str, number: int) -> str:
    plain = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[-40:].strip("-")
    return f"v{number}-{plain}" if plain else f"v{number}"


def _source(kind: str, rest: str, host: str, *, read_only: bool) -> Json:
    if kind == "hostPath":
        return {"hostPath": {"path": host, "type": "Directory"}}
    if kind == "pvc":
        claim = {"claimName": rest.partition("/")[0]}
        return {"persistentVolumeClaim": {**claim, "readOnly": True} if read_only else claim}
    if kind == "image":
        return {"image": {"reference": rest, "pullPolicy": "IfNotPresent"}}
    return {"emptyDir": {"sizeLimit": rest}}


def _template(name: str, rest: str) -> Json:
    size, _, storage_class = rest.partition(":")
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def _secret(number: int, path: str, where: str) -> tuple[Json, Json]:
    secret, _, key = where.partition("/")
    name = f"secret{number}"
    mount: Json = {"name": name, "mountPath": path, "subPath": "value", "readOnly": True}
    items = [{"key": key, "path": "value"}]
    # readable by the group that the pod's account is in, and by nobody else
    return mount, {"name": name, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}}


def _own_mounts(pod: Pod) -> list[Json]:
    mounts: list[Json] = [
        {"name": "cache", "mountPath": CACHE_DIR},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    return [*mounts, {"name": "shm", "mountPath": "/dev/shm"}] if pod.spec.shm else mounts


def _own(pod: Pod) -> list[Json]:
    scratch: Json = {"sizeLimit": f"{pod.cluster.scratch_mib}Mi"}
    found: list[Json] = [
        {"name": "release", "configMap": {"name": pod.config_name, "defaultMode": 0o444}},
        {"name": "cache", "emptyDir": scratch},
        {"name": "tmp", "emptyDir": scratch},
        {"name": "verdict", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "api", "projected": {"defaultMode": 0o440, "sources": _api_sources()}},
    ]
    if pod.spec.shm:
        sized = {} if pod.spec.shm == "host" else {"sizeLimit": _kubernetes_size(pod.spec.shm)}
        found.append({"name": "shm", "emptyDir": {"medium": "Memory", **sized}})
    if pod.cluster.hugepages_2mi_mib:
        found.append({"name": "hugepages", "emptyDir": {"medium": "HugePages-2Mi"}})
    if "RANKS" in pod.need.preflight:
        path = f"/sys/module/{pod.cluster.ttm_module}/parameters"
        found.append({"name": "ttm", "hostPath": {"path": path, "type": "Directory"}})
    return found


def _api_sources() -> list[Json]:
    """The sidecar's own access to the API: the engine is given none."""
    here = {"fieldRef": {"fieldPath": "metadata.namespace"}, "path": "namespace"}
    return [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [here]}},
    ]


def _kubernetes_size(size: str) -> str:
    """``16g`` as ``16Gi``: container runtimes count in 1024s."""
    return f"{size[:-1]}{size[-1].upper()}i"
