"""From a declaration to a Kustomize base. There is one release, and this is how a cluster runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from archonctl.deployment.load import LoadedEndpoint
from archonctl.engines.nodes import Across, across
from archonctl.errors import DeclarationError
from archonctl.fleet.kubernetes import beside
from archonctl.fleet.kubernetes.need import (
    cards_of,
    checks_of,
    in_pod,
    memory_mib,
    plan_of,
    preflight_of,
    probe_seconds,
)
from archonctl.fleet.kubernetes.text import documents
from archonctl.fleet.kubernetes.values import Json, Pod, PodNeed
from archonctl.fleet.kubernetes.workload import LeaderWords, workload
from archonctl.release.render import command_of, render_release, start_seconds
from archonctl.release.values import MANIFEST, SCHEMA, Release, ReleaseFile, to_json

KUSTOMIZATION = "kustomization.yaml"
_HEAD = "# Rendered by archonctl from the declaration. Change the declaration, not this file.\n"
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
"""A label of DNS, short enough that "-release-" and a digest still fit behind it."""


def render_kubernetes(loaded: LoadedEndpoint) -> tuple[Release, Release]:
    """The manifests as files of a folder, and the release that they run.

    Raises DeclarationError ``kubernetes-image-missing``, ``kubernetes-name``, ``kubernetes-volume-missing``,
    ``kubernetes-memory-unknown``, ``kubernetes-cards-unknown``, ``kubernetes-release-too-large``,
    ``container-memory-limit``, ``nodes-unsupported``, ``nodes-uneven``, and as ``render_release``.
    """
    with loaded.placing():
        _check_declared(loaded)
        spread = _across(loaded)
    here = in_pod(loaded)
    command = command_of(here)
    assert command.container is not None  # an image is declared
    plan, why = plan_of(here)
    with loaded.placing():
        text = preflight_of(here, command, plan)
        release = render_release(here, command, preflight=text)
        checks = checks_of(text)
        cards, resource = cards_of(here, command.container, plan, checks)
        need = PodNeed(
            cards, resource, memory_mib(here, plan, checks, why), checks, start_seconds(here), probe_seconds(here)
        )
        pod = Pod(here, release, command.container, need, spread)
        _check_limit(pod)
        files = _files(pod)
    notes = [*release.notes, *_notes(pod, why, plan.verdict if plan else "")]
    return _bundle(pod, files, notes), release


def _across(loaded: LoadedEndpoint) -> Across | None:
    nodes = loaded.endpoint.kubernetes.nodes
    words = LeaderWords()
    return across(loaded.endpoint, nodes, words.leader, words.size, words.rank) if nodes > 1 else None


def _check_declared(loaded: LoadedEndpoint) -> None:
    endpoint = loaded.endpoint
    if not _NAME.fullmatch(loaded.name):
        message = f"the endpoint's name {loaded.name[:60]!a} cannot name objects of a cluster"
        hint = "rename the declaration: lower-case letters, digits and dashes, at most 40, beginning with a letter"
        raise DeclarationError("kubernetes-name", message, hint=hint)
    for key, value, what in (
        ("engine.image", endpoint.engine.image, "the engine's image"),
        ("kubernetes.controller_image", endpoint.kubernetes.controller_image, "the image with archonctl in it"),
    ):
        if not value:
            hint = f'set {key} = "name@sha256:..."; docs/kubernetes.md shows how to build that of archonctl'
            raise DeclarationError("kubernetes-image-missing", f"{what} is not declared", where=key, hint=hint)


def _check_limit(pod: Pod) -> None:
    if pod.cluster.memory_limit_mib and pod.spec.pinned:
        raise DeclarationError(
            "container-memory-limit",
            f"kubernetes.memory_limit_mib = {pod.cluster.memory_limit_mib:,} limits the memory of an engine that pins "
            "its own: the limit also counts the page cache that reading the model fills",
            where="kubernetes.memory_limit_mib",
            hint="take it out: what the engine pins is bounded by its own knobs, and asked of the node as a request",
        )


def _files(pod: Pod) -> dict[str, str]:
    groups: list[tuple[str, Sequence[Json]]] = [
        ("workload.yaml", [workload(pod)]),
        ("config.yaml", beside.config_maps(pod)),
        ("service.yaml", beside.services(pod)),
        ("rights.yaml", beside.rights(pod)),
        ("disruption.yaml", [beside.budget(pod)]),
    ]
    if pod.cluster.monitoring:
        groups.append(("monitoring.yaml", beside.monitoring(pod)))
    base: Json = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": pod.cluster.namespace,
        "resources": [name for name, _ in groups],
    }
    return {KUSTOMIZATION: _HEAD + documents([base]), **{name: _HEAD + documents(each) for name, each in groups}}


def _notes(pod: Pod, why: str, verdict: str) -> list[str]:
    found = []
    if why:
        found.append(f"{why}: the node is not checked before the start, and memory is as declared")
    elif verdict != "holds":
        found.append(f"the plan says {verdict}: archonctl plan {pod.name}")
    if pod.loaded.endpoint.host.detect:
        found.append("host.detect = true looked at this machine: declare the node's profile (host.profile)")
    if pod.spec.options:
        found.append(f"container.options are podman's and docker's, left out here: {' '.join(pod.spec.options)}")
    if pod.spec.seccomp == "unconfined":
        found.append("the engine needs calls that the default seccomp profile forbids: the namespace must allow that")
    if "RANKS" in pod.need.preflight:
        found.append(
            f"the container preflight may write {pod.cluster.ttm_module}'s limit on its node: the namespace needs "
            "pod-security.kubernetes.io/enforce=privileged"
        )
    if "MEMLOCK_NEED_MIB" in pod.need.preflight:
        found.append("a pod inherits the memlock limit of its container runtime: set LimitMEMLOCK=infinity there")
    return found


def _bundle(pod: Pod, texts: dict[str, str], notes: Sequence[str]) -> Release:
    files = {name: ReleaseFile(text.encode("utf-8")) for name, text in texts.items()}
    listed = {name: {"sha256": each.sha256, "bytes": len(each.content), "mode": "0644"} for name, each in files.items()}
    manifest = {
        "schema": SCHEMA,
        "target": "kubernetes",
        "endpoint": pod.name,
        "release_sha256": pod.release.digest,
        "files": listed,
    }
    files[MANIFEST] = ReleaseFile(to_json(manifest))
    return replace(pod.release, files=files, notes=tuple(notes), home="")
