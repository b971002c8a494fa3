"""The command line of SGLang's server: what decides the pool is written out, the other knobs by their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import CommandLine
from archonctl.engines.container import Needs, contained
from archonctl.engines.knob_values import as_bool, spelled
from archonctl.engines.knobs import Edition, Knob, edition, load_table, render
from archonctl.engines.listening import bind
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


def table(version: str) -> Edition:
    """The flags of that version; of the newest one that was read where none is declared."""
    known = load_table("sglang")
    return edition(known, version or known.newest)


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
    """The other knobs in the order of the table, so that the result is stable."""
    known = table(endpoint.engine.version)
    if not endpoint.engine.version:
        notes.append(f"engine.version is not declared; flags are those of {known.version}")
    chosen: dict[str, tuple[str, ...]] = {}
    for key, value in endpoint.engine.knobs.items():
        knob, positive = _find(known, key)
        if knob.flag == "enable-metrics" and as_bool(value) is not positive:
            notes.append(f"knob {key} = {value} is not followed: the probe needs --enable-metrics")
        if knob.flag in chosen:
            message = f"knob {key!r} sets --{knob.flag} a second time"
            raise DeclarationError("knob-twice", message, where=f"engine.knobs.{key}", hint="keep one of them")
        if deprecated := known.find_deprecated(knob):
            notes.append(f"knob {key}: {deprecated.effect}")
        chosen[knob.flag] = render(key, knob, positive, value)
    yield from _in_order(known, chosen)


def _in_order(known: Edition, chosen: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for knob in known.knobs:
        if knob.flag in chosen and knob.flag not in RENDERED:
            yield from chosen[knob.flag]


def _find(known: Edition, key: str) -> tuple[Knob, bool]:
    where = f"engine.knobs.{key}"
    found = known.find(key) or known.find(ALIASES.get(spelled(key), key))
    if found is None:
        retired = known.table.retirement(key)
        if retired or any(known.table.forms(key)):
            hint = f"use {retired.replaced_by}" if retired and retired.replaced_by else "take it out"
            message = f"sglang {known.version} has no --{spelled(key)}; other versions have"
            raise DeclarationError("knob-retired", message, where=where, hint=hint)
        near = known.suggest(key)
        message = f"sglang {known.version} has no flag --{spelled(key)} ({len(known.knobs)} are known)"
        raise DeclarationError("knob-unknown", message, where=where, hint=f"did you mean {near}?" if near else "")
    if managed := known.find_managed(found[0]):
        raise DeclarationError(
            managed.code, f"{found[0].option} is no knob: {managed.reason}", where=where, hint=managed.instead
        )
    return found
