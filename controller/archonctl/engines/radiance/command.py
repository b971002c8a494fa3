"""The command line of radiance: a container by digest, or a binary; argv as a list from end to end."""

from __future__ import annotations

from dataclasses import replace

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.base import CommandLine, Problem
from archonctl.engines.container import Needs, absolute, contained
from archonctl.engines.listening import bind
from archonctl.engines.radiance.knobtable import arguments, known, table
from archonctl.engines.radiance.settings import Settings, read_settings
from archonctl.errors import DeclarationError

DEVICE_ENV = {"GPU_MAX_ALLOC_PERCENT": "100", "GPU_MAX_HEAP_SIZE": "100"}
"""Without these the runtime refuses large allocations; the image sets them itself. Source: radiance's Dockerfile."""

NEEDS = Needs(
    # the compute driver and the render nodes
    devices=("/dev/kfd", "/dev/dri"),
    # the host pool is pinned: no memlock limit, and no container memory limit either (it would count page cache)
    pinned=True,
    # io_uring and mbind, which the default profile forbids
    seccomp="unconfined",
)
"""Source: radiance's compose files and docs/GUIDE.md, which also give it 60 s between SIGTERM and SIGKILL."""


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
        return contained(endpoint, replace(NEEDS, mounts=_tier_mounts(settings)), flags, notes)
    if endpoint.engine.binary:
        absolute(endpoint.engine.binary, "engine.binary")
        return CommandLine((endpoint.engine.binary, *flags), {**DEVICE_ENV, **endpoint.engine.env}, notes, pinned=True)
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
    host, port = bind(endpoint)
    values: dict[str, KnobValue] = {
        "model": endpoint.model.path,
        "host": host,
        "port": port,
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


def _tier_mounts(settings: Settings) -> tuple[str, ...]:
    """The disk tier's folder, where the version has one."""
    tier = settings.knobs.get("prefix-cache-dir")
    if not isinstance(tier, str):
        return ()
    folder = absolute(tier, "engine.knobs.prefix-cache-dir")
    return (f"{folder}:{folder}",)
