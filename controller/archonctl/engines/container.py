"""From a declared image to the container that runs it: one value, and the command lines of podman and docker."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import CommandLine, ContainerSpec
from archonctl.engines.listening import host_and_port, is_published
from archonctl.errors import DeclarationError

STOP_S = 60
"""An engine that gets SIGTERM finishes its step and frees the cards; memory is given back only when it is gone."""

_PINNED = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_MOUNT = re.compile(r"/[^:\s]*:/[^:\s]*(:(ro|rw|z|Z)(,(ro|rw|z|Z))*)?")
_MEMORY_LIMITS = ("--memory", "-m", "--memory-swap", "--memory-reservation")


@dataclass(frozen=True, slots=True)
class Needs:
    """What one engine needs of any container beside its arguments, from its own documentation."""

    entrypoint: tuple[str, ...] = ()
    """Program and first arguments where the image's own entrypoint is not relied on."""
    devices: tuple[str, ...] = ()
    pinned: bool = False
    seccomp: str = ""
    shm: str = ""
    mounts: tuple[str, ...] = ()
    stop_s: int = STOP_S
    health_path: str = "/health"


def contained(endpoint: Endpoint, needs: Needs, arguments: Sequence[str], notes: Sequence[str] = ()) -> CommandLine:
    """The engine with ``arguments`` in the declared image: argv of the declared runtime, and the value behind it.

    Raises DeclarationError ``image-not-pinned``, ``path-not-absolute``, ``mount-invalid``, ``listen-invalid`` or
    ``container-memory-limit``.
    """
    spec = _spec(endpoint, needs, tuple(arguments))
    said = (*notes, *_notes(spec))
    return CommandLine(run_argv(spec, spec.runtime), dict(endpoint.engine.env), said, spec, spec.pinned)


def _spec(endpoint: Endpoint, needs: Needs, arguments: tuple[str, ...]) -> ContainerSpec:
    declared = endpoint.container
    host, port = host_and_port(endpoint)
    entrypoint = (declared.entrypoint,) if declared.entrypoint else needs.entrypoint
    gpus = "" if declared.gpus == "none" else declared.gpus
    _refuse_memory_limit(declared.options, needs.pinned)
    return ContainerSpec(
        runtime=declared.runtime,
        name=f"archon-{endpoint.engine.kind}-{port}",
        image=_image(endpoint),
        entrypoint=entrypoint[0] if entrypoint else "",
        arguments=(*entrypoint[1:], *arguments),
        network=declared.network,
        publish=f"{f'[{host}]' if ':' in host else host}:{port}:{port}" if is_published(endpoint) else "",
        gpus=gpus,
        devices=declared.devices or (() if declared.gpus else needs.devices),
        groups=declared.groups,
        rootless=endpoint.service.user not in ("", "root", "0"),
        pinned=needs.pinned,
        seccomp=needs.seccomp,
        shm=declared.shm or needs.shm,
        mounts=tuple(_mounts(endpoint, needs)),
        env=tuple(sorted(endpoint.engine.env)),
        stop_s=declared.stop_s or needs.stop_s,
        health=_health(endpoint, needs, port),
        options=declared.options,
    )


def _image(endpoint: Endpoint) -> str:
    image = endpoint.engine.image
    if not _PINNED.fullmatch(image):
        message = f"image {image[:80]!r} is not pinned: a tag can be pushed again with other contents"
        raise DeclarationError(
            "image-not-pinned", message, where="engine.image", hint="use name@sha256:<64 hex digits>"
        )
    return image


def _refuse_memory_limit(options: Sequence[str], pinned: bool) -> None:
    for word in options:
        if pinned and (word.partition("=")[0] in _MEMORY_LIMITS or re.fullmatch(r"-m[0-9].*", word)):
            raise DeclarationError(
                "container-memory-limit",
                f"{word!r} limits the memory of an engine that pins its own: the limit also counts the page cache that "
                "reading the model fills, so the kernel ends the engine while it loads",
                where="container.options",
                hint="take it out: what the engine pins is bounded by its own knobs",
            )


def _health(endpoint: Endpoint, needs: Needs, port: int) -> str:
    declared = endpoint.container.health
    if declared:
        return "" if declared == "off" else declared
    return f"curl -fsS http://127.0.0.1:{port}{needs.health_path}"


def _mounts(endpoint: Endpoint, needs: Needs) -> Iterator[str]:
    """The model's folder and the key's file read-only, what is declared, and what the engine asks for."""
    found: dict[str, None] = {}
    if endpoint.model.path.startswith("/") or endpoint.engine.kind not in ("vllm", "sglang"):
        model = absolute(endpoint.model.path, "model.path")
        folder = _model_folder(model, endpoint.engine.kind)
        if folder == PurePosixPath("/"):
            message = f"{str(model)[:80]!r} lies in the root folder: mounting its folder would mount the whole host"
            raise DeclarationError("mount-invalid", message, where="model.path", hint="move it to a folder of its own")
        found[f"{folder}:{folder}:ro"] = None
    if endpoint.service.api_key_file:
        key = absolute(endpoint.service.api_key_file, "service.api_key_file")
        found[f"{key}:{key}:ro"] = None
    for mount in endpoint.engine.mounts:
        if not _MOUNT.fullmatch(mount):
            message = f"mount {mount[:80]!r} is not /host/folder:/container/folder[:ro]"
            raise DeclarationError("mount-invalid", message, where="engine.mounts")
        found[mount] = None
    yield from (*found, *needs.mounts)


def _model_folder(model: PurePosixPath, kind: str) -> PurePosixPath:
    """The folder of a file; a folder of safetensors itself, or of a hub's cache all of it: it holds links to blobs."""
    if kind not in ("vllm", "sglang") or model.suffix == ".gguf":
        return model.parent
    return next((folder for folder in model.parents if folder.name.startswith("models--")), model)


def absolute(path: str, where: str) -> PurePosixPath:
    """A path that a container can mount. Raises DeclarationError ``path-not-absolute``."""
    if not path.startswith("/") or re.search(r"[\x00-\x20:,\x7f]", path):
        message = f"{path[:80]!r} is no absolute path that a container can mount"
        raise DeclarationError("path-not-absolute", message, where=where)
    return PurePosixPath(path)


def _notes(spec: ContainerSpec) -> Iterator[str]:
    if not spec.devices and not spec.gpus:
        yield "the container is given no card: set container.gpus (NVIDIA) or container.devices (AMD) if it needs one"
    if spec.devices and not spec.groups and not spec.rootless:
        yield (
            "the numbers of the groups video and render are not known: set container.groups, or [groups] in the host "
            "profile, if the engine does not run as root within the image"
        )


def run_argv(spec: ContainerSpec, runtime: str, health_start_s: int | None = None) -> tuple[str, ...]:
    """``podman run …`` or ``docker run …`` in the foreground: whoever starts it is its supervisor.

    ``health_start_s`` adds the health check, with that many seconds before a failure counts. No memory limit is ever
    given: it would count the page cache.
    """
    words = [runtime, "run", "--rm", "--init", "--network", spec.network]
    words += ["--publish", spec.publish] if spec.publish else []
    words += _cards(spec, runtime)
    words += ["--ulimit", "memlock=-1:-1"] if spec.pinned else []
    words += ["--security-opt", f"seccomp={spec.seccomp}"] if spec.seccomp else []
    words += _shm(spec)
    words += ["--stop-signal", "SIGTERM", "--stop-timeout", str(spec.stop_s)]
    # what the engine says goes to our standard error and from there to the journal, once
    words += ["--log-driver", "none", "--name", spec.name]
    for mount in spec.mounts:
        words += ["--volume", mount]
    for name in spec.env:
        words += ["--env", name]  # the value comes from our own environment: not a word of it on a command line
    if spec.health and health_start_s is not None:
        words += ["--health-cmd", spec.health, "--health-start-period", f"{health_start_s}s"]
        words += ["--health-interval", "30s", "--health-timeout", "5s", "--health-retries", "3"]
    words += ["--entrypoint", spec.entrypoint] if spec.entrypoint else []
    return (*words, *spec.options, spec.image, *spec.arguments)


def _cards(spec: ContainerSpec, runtime: str) -> list[str]:
    words = []
    for device in (*spec.devices, *(cdi_names(spec.gpus) if runtime == "podman" else ())):
        words += ["--device", device]
    if spec.gpus and runtime == "docker":
        # the value is read as CSV: without the inner quotes the comma would end the field
        words += ["--gpus", spec.gpus if spec.gpus == "all" else f'"device={spec.gpus}"']
    if runtime == "podman" and spec.rootless and spec.devices:
        return [*words, "--group-add", "keep-groups"]  # a number would mean a subordinate group there
    for group in spec.groups:
        words += ["--group-add", str(group)]
    return words


def cdi_names(gpus: str) -> tuple[str, ...]:
    """NVIDIA cards as CDI names: ``all`` or ``0,1`` as ``nvidia.com/gpu=…``, one each."""
    return tuple(f"nvidia.com/gpu={card}" for card in gpus.split(",") if card)


def _shm(spec: ContainerSpec) -> list[str]:
    if spec.shm == "host":
        return ["--ipc", "host"]
    return ["--shm-size", spec.shm] if spec.shm else []
