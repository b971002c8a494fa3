"""The command line of radiance: a container by digest, or a binary; argv as a list from end to end."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.base import CommandLine, Problem
from archonctl.engines.radiance.knobtable import arguments, known, table
from archonctl.engines.radiance.settings import Settings, read_settings
from archonctl.errors import DeclarationError

DEVICE_ENV = {"GPU_MAX_ALLOC_PERCENT": "100", "GPU_MAX_HEAP_SIZE": "100"}
"""Without these the runtime refuses large allocations; the image sets them itself. Source: radiance's Dockerfile."""

STOP_SECONDS = 60
"""SIGTERM finishes the step in flight and frees the cards. Source: radiance's compose files (stop_grace_period)."""

CONTAINER = (
    "podman",
    "run",
    "--rm",
    "--init",
    "--network",
    "host",
    # the compute driver and the render nodes, with the groups of the user that may open them
    "--device",
    "/dev/kfd",
    "--device",
    "/dev/dri",
    "--group-add",
    "keep-groups",
    # the host pool is pinned: no memlock limit, and no container memory limit either (it would count page cache)
    "--ulimit",
    "memlock=-1:-1",
    # io_uring and mbind, which the default profile forbids
    "--security-opt",
    "seccomp=unconfined",
    "--stop-timeout",
    str(STOP_SECONDS),
    # what the engine says goes to our standard error and from there to the journal, once
    "--log-driver",
    "none",
)


def command_line(endpoint: Endpoint) -> CommandLine:
    """argv and environment for the declared image or binary.

    Raises DeclarationError: those of ``read_settings``, the code of the first knob problem (``knob-unknown``,
    ``knob-retired``, ``knob-secret``), ``engine-command-missing``, ``image-not-pinned``, ``path-not-absolute`` and
    ``mount-invalid``.
    """
    settings, problems = read_settings(endpoint)
    _raise_first(problems)
    if endpoint.service.api_key_file:
        message = "radiance takes its API key on the command line only, where every user of the host can read it"
        raise DeclarationError(
            "knob-secret", message, where="service.api_key_file", hint="put a proxy that checks the key in front"
        )
    flags, notes = engine_flags(endpoint, settings)
    if endpoint.engine.image and endpoint.engine.binary:
        raise DeclarationError("engine-command-missing", "both an image and a binary are declared: keep one of them")
    if endpoint.engine.image:
        return CommandLine((*_container(endpoint, settings), *flags), dict(endpoint.engine.env), notes)
    if endpoint.engine.binary:
        _absolute(endpoint.engine.binary, "engine.binary")
        return CommandLine((endpoint.engine.binary, *flags), {**DEVICE_ENV, **endpoint.engine.env}, notes)
    raise DeclarationError(
        "engine-command-missing", "neither an image nor a binary is declared", hint="set [engine] image (by digest)"
    )


def _raise_first(problems: tuple[Problem, ...]) -> None:
    if problems:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise DeclarationError(first.code, first.message + more, where="engine.knobs", hint=first.hint)


def engine_flags(endpoint: Endpoint, settings: Settings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The engine's own arguments in the order of the knob table, and what was said beyond the declaration.

    Flag and value are separate words: the engine knows no ``--flag=value``. ``busy-prefill-chunk`` is always
    stated where the version has it; ``prefill-interleave`` is absent at 0.
    """
    host, _, port = endpoint.service.listen.rpartition(":")
    values: dict[str, KnobValue] = {
        "model": endpoint.model.path,
        "host": host.strip("[]"),
        "port": int(port),
        **({"served-model-name": endpoint.model.served_name} if endpoint.model.served_name else {}),
        **settings.knobs,
    }
    notes = []
    busy = table()["busy-prefill-chunk"]
    if known(busy, settings.version) and busy.flag not in values:
        values[busy.flag] = busy.default
        notes.append(f"busy-prefill-chunk {busy.default} is stated although it is not declared: {busy.effect}")
    words: list[str] = []
    for knob in table().values():
        if knob.flag in values:
            words += arguments(knob, values[knob.flag])
    return tuple(words), tuple(notes)


def _container(endpoint: Endpoint, settings: Settings) -> tuple[str, ...]:
    image = endpoint.engine.image
    if not re.fullmatch(r"[^\s@]+@sha256:[0-9a-f]{64}", image):
        message = f"image {image[:80]!r} is not pinned: a tag can be pushed again with other contents"
        raise DeclarationError(
            "image-not-pinned", message, where="engine.image", hint="use name@sha256:<64 hex digits>"
        )
    words = [*CONTAINER, "--name", f"archon-radiance-{endpoint.service.listen.rpartition(':')[2]}"]
    for mount in _mounts(endpoint, settings):
        words += ["--volume", mount]
    for name in sorted(endpoint.engine.env):
        words += ["--env", name]  # the value comes from our own environment: not a word of it on a command line
    return (*words, image)


def _mounts(endpoint: Endpoint, settings: Settings) -> list[str]:
    """The model's folder read-only, the declared mounts, and the disk tier's folder where the version has one."""
    model = _absolute(endpoint.model.path, "model.path")
    if model.parent == PurePosixPath("/"):
        message = f"{str(model)[:80]!r} lies in the root folder: mounting its folder would mount the whole host"
        raise DeclarationError("mount-invalid", message, where="model.path", hint="move it to a folder of its own")
    mounts = {f"{model.parent}:{model.parent}:ro": None}
    for mount in endpoint.engine.mounts:
        if not re.fullmatch(r"/[^:\s]*:/[^:\s]*(:(ro|rw|z|Z)(,(ro|rw|z|Z))*)?", mount):
            raise DeclarationError(
                "mount-invalid",
                f"mount {mount[:80]!r} is not /host/folder:/container/folder[:ro]",
                where="engine.mounts",
            )
        mounts[mount] = None
    tier = settings.knobs.get("prefix-cache-dir")
    if isinstance(tier, str):
        folder = _absolute(tier, "engine.knobs.prefix-cache-dir")
        mounts[f"{folder}:{folder}"] = None
    return list(mounts)


def _absolute(path: str, where: str) -> PurePosixPath:
    if not path.startswith("/") or re.search(r"[\x00-\x1f:]", path):
        raise DeclarationError(
            "path-not-absolute", f"{path[:80]!r} is no absolute path that a container can mount", where=where
        )
    return PurePosixPath(path)
