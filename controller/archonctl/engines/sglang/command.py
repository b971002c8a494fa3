"""The command line of SGLang's server: what decides the pool is written out, the other knobs by their table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import CommandLine
from archonctl.engines.container import Needs, contained
from archonctl.engines.knob_values import as_bool
from archonctl.engines.knobs import Knob
from archonctl.engines.listening import bind
from archonctl.engines.passed_on import passed_on, table
from archonctl.engines.sglang.settings import ALIASES, Settings, settings_of
from archonctl.errors import DeclarationError

NEEDS = Needs(
    # the images have no entrypoint of their own
    entrypoint=("python3", "-m", "sglang.launch_server"),
    shm="host",
)
"""Source: SGLang docs, install (docker run --shm-size 32g --ipc=host … python3 -m sglang.launch_server)."""

RENDERED = frozenset({"context-length", "max-running-requests", "kv-cache-dtype", "enable-metrics"})
"""Flags that are always written, from the settings; as knobs they only change the value."""


def command_line(endpoint: Endpoint) -> CommandLine:
    """argv and environment for one declaration.

    Raises DeclarationError: ``engine-binary-missing``, ``listen-invalid``, ``knob-unknown``, ``knob-retired``,
    ``knob-reserved``, ``knob-secret``, ``knob-twice``, ``knob-bad-value`` and those of ``settings_of`` and
    ``contained``; UsageError ``engine-version-invalid``.
    """
    engine, notes = endpoint.engine, list[str]()
    if endpoint.service.api_key_file:
        message = "SGLang takes its API key on the command line only, where every user of the host can read it"
        raise DeclarationError(
            "knob-secret", message, where="service.api_key_file", hint="put a proxy that checks the key in front"
        )
    settings = settings_of(endpoint)
    host, port = bind(endpoint)
    argv = ["--model-path", endpoint.model.path, "--host", host, "--port", str(port)]
    argv += ["--served-model-name", endpoint.model.served_name] if endpoint.model.served_name else []
    argv += _capacity(settings)
    argv += _declared(endpoint, notes)
    if engine.image:
        return contained(endpoint, NEEDS, argv, notes)
    if not engine.binary:
        raise DeclarationError(
            "engine-binary-missing",
            "neither a binary nor an image of SGLang is declared",
            where="engine.binary",
            hint='set engine.binary = "/path/to/venv/bin/python", or engine.image by digest',
        )
    return CommandLine((*_program(engine.binary), *argv), dict(engine.env), tuple(notes))


def _program(binary: str) -> tuple[str, ...]:
    """A Python that has SGLang runs its module; the command of newer releases has a verb for it."""
    if PurePosixPath(binary).name.startswith("python"):
        return (binary, "-m", "sglang.launch_server")
    return (binary, "serve")


def _capacity(settings: Settings) -> list[str]:
    return [
        *("--context-length", str(settings.context_tokens), "--max-running-requests", str(settings.running)),
        *("--kv-cache-dtype", settings.kv_dtype, "--enable-metrics"),
    ]


def _declared(endpoint: Endpoint, notes: list[str]) -> Iterator[str]:
    knobs = endpoint.engine.knobs

    def look(key: str, knob: Knob, positive: bool) -> None:
        if knob.flag == "enable-metrics" and as_bool(knobs[key]) is not positive:
            notes.append(f"knob {key} = {knobs[key]} is not followed: the probe needs --enable-metrics")

    for part in passed_on(endpoint, table("sglang", endpoint.engine.version), RENDERED, ALIASES, notes, look):
        yield from part.words
