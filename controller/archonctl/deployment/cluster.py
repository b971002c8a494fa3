"""``[kubernetes]`` of a declaration: how an endpoint is placed in a cluster. Only ``render --target kubernetes`` asks.

What is particular to a cluster is here; everything that decides capacity stays where it is, so that a pod and a unit
run the same command.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
_SIZE = r"[1-9][0-9]{0,8}(Mi|Gi|Ti)"
_PINNED = r"[^\s@]+@sha256:[0-9a-f]{64}"

VOLUME = rf"^(hostPath|pvc:{_NAME}(/[^\s:]+)?|image:{_PINNED}|emptyDir:{_SIZE}|template:{_SIZE}(:{_NAME})?)$"
"""Where a folder of the container comes from.

``hostPath`` (the node's folder of the same name, or the one that the mount names), ``pvc:CLAIM[/SUBFOLDER]``,
``image:NAME@sha256:...`` (an image volume), ``emptyDir:SIZE``, or ``template:SIZE[:STORAGECLASS]``: a claim of each
replica's own, which makes the workload a StatefulSet.
"""


class Toleration(BaseModel):
    """A taint of a node that is borne (core/v1 Toleration)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Cluster(BaseModel):
    """Everything has a default but what nobody can guess: the volumes, and the image that holds archonctl."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    namespace: Annotated[str, Field(pattern=rf"^{_LABEL}$")] = "default"
    controller_image: Annotated[str, Field(pattern=rf"^({_PINNED})?$")] = ""
    """The image with archonctl in it, by digest: it checks the node, and takes the verdict."""
    replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Nodes that one engine spans; more than one only where the engine can, and its ranks divide by it."""
    volumes: dict[str, Annotated[str, Field(pattern=VOLUME)]] = {}
    """By the folder within the container: of the model, and of every other mount."""
    secrets: dict[str, Annotated[str, Field(pattern=rf"^{_NAME}/[-._a-zA-Z0-9]{{1,253}}$")]] = {}
    """``SECRET/KEY`` by where it goes: a path is a file, anything else a variable. Never the value."""
    cards: Annotated[int, Field(ge=0, le=64)] | None = None
    """Cards of a pod; default: what the declaration says of them."""
    card_resource: Annotated[str, Field(pattern=rf"^({_NAME}/[-._a-zA-Z0-9]{{1,63}})?$")] = ""
    """The device plugin's name; default: by the maker (``nvidia.com/gpu``, ``amd.com/gpu``)."""
    spare_card: bool = False
    """There are cards for a second copy: the new one is verified before the old one is stopped."""
    memory_mib: Annotated[int, Field(gt=0)] | None = None
    """Where no plan says what the engine holds of the node's memory: what is asked of the scheduler."""
    memory_limit_mib: Annotated[int, Field(gt=0)] | None = None
    """None by default, as in a unit: a limit counts the page cache too. Refused for an engine that pins memory."""
    hugepages_2mi_mib: Annotated[int, Field(gt=0, multiple_of=2)] | None = None
    scratch_mib: Annotated[int, Field(gt=0)] = 8192
    """The disk that its caches (compiled kernels, temporary files) may take."""
    run_as_user: Annotated[int, Field(ge=1, le=2**31 - 1)] = 10_001
    ttm_module: Literal["ttm", "amdttm"] = "ttm"
    """Whose limit the node binds: the kernel's own module, or that of AMD's packaged driver."""
    node_selector: dict[str, str] = {}
    tolerations: Annotated[tuple[Toleration, ...], Field(strict=False)] = ()
    runtime_class: Annotated[str, Field(pattern=rf"^({_NAME})?$")] = ""
    priority_class: Annotated[str, Field(pattern=rf"^({_NAME})?$")] = ""
    pull_secrets: Annotated[tuple[str, ...], Field(strict=False)] = ()
    monitoring: bool = True
    """A ServiceMonitor and a PrometheusRule, for clusters that run the Prometheus operator."""
