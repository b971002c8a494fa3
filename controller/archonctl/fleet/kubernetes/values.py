"""What the parts of a pod's manifest are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.deployment.cluster import Cluster
from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import ContainerSpec
from archonctl.engines.nodes import Across
from archonctl.release.values import Release

Json = dict[str, object]

VERDICT_PORT = 9488
"""Where the sidecar answers: ``/startup``, ``/ready``, ``/metrics``."""

RELEASE_DIR = "/etc/archon/release"
CACHE_DIR = "/var/cache/archon"
MANAGER = "archonctl"


@dataclass(frozen=True, slots=True)
class PodNeed:
    """What a pod asks of its node. ``cards`` of the device plugin's ``resource``; MiB of its memory.

    ``preflight`` are the keys of ``preflight.env``; empty where no plan could be made.
    """

    cards: int
    resource: str
    memory_mib: int
    preflight: Mapping[str, str | int]
    start_s: int
    probe_s: int


@dataclass(frozen=True, slots=True)
class Pod:
    """One endpoint on its way to manifests."""

    loaded: LoadedEndpoint
    release: Release
    spec: ContainerSpec
    need: PodNeed
    across: Across | None = None

    @property
    def name(self) -> str:
        """The name of the endpoint and of what is made of it."""
        return self.loaded.name

    @property
    def endpoint(self) -> Endpoint:
        """The declaration."""
        return self.loaded.endpoint

    @property
    def cluster(self) -> Cluster:
        """Its ``[kubernetes]``."""
        return self.loaded.endpoint.kubernetes

    @property
    def port(self) -> int:
        """Where the engine listens in the pod."""
        return int(self.endpoint.service.listen.rpartition(":")[2])

    @property
    def digest(self) -> str:
        """The release, in as many characters as its folder has on a host."""
        return self.release.digest[:16]

    @property
    def config_name(self) -> str:
        """The ConfigMap with the release: named by its content, so that a change is another one and rolls the pods."""
        return f"{self.name}-release-{self.digest}"

    @property
    def env_name(self) -> str:
        """The ConfigMap with the environment."""
        return f"{self.name}-env-{self.digest}"

    def meta(self, name: str, **more: object) -> Json:
        """The metadata of an object."""
        return {"name": name, "namespace": self.cluster.namespace, "labels": self.labels, **more}

    @property
    def selector(self) -> dict[str, str]:
        """The labels that choose its pods; they never change."""
        return {"app.kubernetes.io/name": "llm-endpoint", "app.kubernetes.io/instance": self.name}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of everything."""
        return {
            **self.selector,
            "app.kubernetes.io/component": self.endpoint.engine.kind,
            "app.kubernetes.io/managed-by": MANAGER,
        }
