"""The command line of llama-server for one declaration: every argument known, what decides memory written out.

Everything that the capacity law depends on is rendered even where it is the default: llama-server also reads
``LLAMA_ARG_*`` variables and config.ini files, and what is on the command line wins over both (common/arg.cpp).
A flag that the declared build has not yet is left out, and one that it has no more is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.base import CommandLine
from archonctl.engines.container import Needs, contained
from archonctl.engines.knob_values import as_int, spelled
from archonctl.engines.knobs import Edition, render
from archonctl.engines.listening import bind
from archonctl.engines.llamacpp.kv import QUANTISED
from archonctl.engines.llamacpp.loading import locks_weights
from archonctl.engines.llamacpp.settings import Settings, settings_of
from archonctl.engines.passed_on import table
from archonctl.errors import DeclarationError

VERBOSITY = 4
"""The level at which llama-server prints its KV cache; the default of 3 prints the slots only (b11434)."""
RENDERED = frozenset(
    {
        "ctx-size",
        "parallel",
        "kv-unified",
        "cache-type-k",
        "cache-type-v",
        "batch-size",
        "ubatch-size",
        "flash-attn",
        "cache-ram",
        "ctx-checkpoints",
        "verbosity",
        "metrics",
        "slots",
    }
)
"""Flags that are always written, from the settings; as knobs they only change the value."""


def command_line(endpoint: Endpoint) -> CommandLine:
    """argv and environment for one declaration.

    Raises DeclarationError: ``engine-binary-missing``, ``listen-invalid``, ``knob-unknown``, ``knob-retired``,
    ``knob-reserved``, ``knob-secret``, ``knob-bad-value`` and those of ``settings_of``.
    """
    if not endpoint.engine.binary and not endpoint.engine.image:
        raise DeclarationError(
            "engine-binary-missing",
            "neither a binary nor an image of llama.cpp is declared",
            where="engine.binary",
            hint='set engine.binary = "/path/to/llama-server", or engine.image by digest',
        )
    known = table("llamacpp", endpoint.engine.version)
    for variable in endpoint.engine.env:
        _refuse_retired(known, variable, f"engine.env.{variable}")
    settings, notes = settings_of(endpoint), list[str]()
    declared = list(_declared(known, endpoint, notes))
    host, port = bind(endpoint)
    service = endpoint.service
    argv = ["--model", endpoint.model.path, "--host", host, "--port", str(port)]
    argv += ["--alias", endpoint.model.served_name] if endpoint.model.served_name else []
    argv += ["--api-key-file", service.api_key_file] if service.api_key_file else []
    argv += _capacity(known, settings)
    argv += _observability(known, endpoint, notes)
    argv += declared
    pinned = locks_weights(argv)
    if endpoint.engine.image:
        return contained(endpoint, Needs(pinned=pinned), argv, notes)
    return CommandLine((endpoint.engine.binary, *argv), dict(endpoint.engine.env), tuple(notes), pinned=pinned)


def _capacity(known: Edition, settings: Settings) -> list[str]:
    kv = settings.kv
    slots = "-1" if settings.slots_auto else str(kv.n_seq_max)
    flash_attn = "on" if settings.flash_attn == "auto" and kv.type_v in QUANTISED else settings.flash_attn
    words = [
        ("--ctx-size", str(kv.n_ctx)),
        ("--parallel", slots),
        ("--kv-unified" if kv.kv_unified else "--no-kv-unified",),
        ("--cache-type-k", kv.type_k),
        ("--cache-type-v", kv.type_v),
        ("--flash-attn", flash_attn),
        ("--batch-size", str(kv.n_batch)),
        ("--ubatch-size", str(kv.n_ubatch)),
        ("--cache-ram", str(settings.cache_ram_mib)),
        ("--ctx-checkpoints", str(settings.checkpoints)),
    ]
    if known.options["--flash-attn"].knob.takes == 0:  # a bare flag before b6325
        words[5] = ("--flash-attn",) if flash_attn == "on" else ()
    return [word for each in words for word in each if each[0] in known.options]


def _observability(known: Edition, endpoint: Endpoint, notes: list[str]) -> list[str]:
    """Verbosity, metrics and slots: without them there is no evidence, so they are not for the knobs to take away."""
    level = VERBOSITY
    for key, value in endpoint.engine.knobs.items():
        found = known.find(key)
        if found is None:
            continue
        if found[0].flag == "verbosity":
            asked = as_int(value)
            if asked is None:
                render(key, *found, value)
            elif asked < VERBOSITY:
                notes.append(f"knob {key} = {asked} is raised to {VERBOSITY}: below it the boot ledger is not printed")
            else:
                level = asked
        elif found[0].flag in ("metrics", "slots") and render(key, *found, value) != (found[0].option,):
            notes.append(f"knob {key} = {value} is not followed: the probe and the metrics need --{found[0].flag}")
    notes.append(f"--verbosity {level} is set so that llama-server prints its KV cache (the boot ledger)")
    return ["--verbosity", str(level), "--metrics", "--slots"]


def _declared(known: Edition, endpoint: Endpoint, notes: list[str]) -> Iterator[str]:
    """The other knobs, in canonical long form and in the order of the table, so that the result is stable."""
    chosen: dict[str, tuple[str, tuple[str, ...]]] = {}
    for key, value in endpoint.engine.knobs.items():
        flag, arguments = _one(known, key, value, notes)
        if flag in chosen:
            raise DeclarationError(
                "knob-twice",
                f"knobs {chosen[flag][0]!r} and {key!r} are the same flag",
                where=f"engine.knobs.{key}",
                hint="keep one of them",
            )
        chosen[flag] = (key, arguments)
    for flag in sorted(chosen.keys() - RENDERED, key=known.order.__getitem__):
        yield from chosen[flag][1]


def check_knobs(endpoint: Endpoint) -> None:
    """Raise what ``command_line`` would raise for a knob: unknown, retired, reserved or with a bad value."""
    for _ in _declared(table("llamacpp", endpoint.engine.version), endpoint, []):
        pass


def _one(known: Edition, key: str, value: KnobValue, notes: list[str]) -> tuple[str, tuple[str, ...]]:
    where = f"engine.knobs.{key}"
    _refuse_retired(known, key, where)
    found = known.find(key)
    if found is None:
        if later := known.table.forms(key):
            message = f"{key} came with llama.cpp {later[0].since}, and the declared build is {known.version}"
            raise DeclarationError("knob-unknown", message, where=where, hint="take it out, or move to that build")
        near = known.suggest(key)
        raise DeclarationError(
            "knob-unknown",
            f"llama-server {known.version} has no flag --{spelled(key)} ({len(known.knobs)} are known)",
            where=where,
            hint=f"did you mean {near}?" if near else "llama-server --help lists them",
        )
    knob, positive = found
    if managed := known.find_managed(knob):
        raise DeclarationError(
            managed.code, f"{knob.option} is no knob: {managed.reason}", where=where, hint=managed.instead
        )
    if deprecated := known.find_deprecated(knob):
        notes.append(f"knob {key}: {deprecated.effect}")
    return knob.flag, render(key, knob, positive, value)


def _refuse_retired(known: Edition, key: str, where: str) -> None:
    """A flag or variable that went away before the declared build, or before the newest that was read."""
    flags = known.table
    retired = flags.retirement(key)
    if retired is None or known.find(key) or known.find_env(key):
        return
    if not flags.gone_by_rule(retired, flags.forms(key), flags.key(known.version)):
        return
    asides = [f"{retired.last_seen} still had it"] if retired.last_seen else []
    asides.append(f"declared: {known.version}")
    raise DeclarationError(
        "knob-retired",
        f"{key} is gone in llama.cpp {retired.removed} ({', '.join(asides)}): {retired.effect}",
        where=where,
        hint=f"use {retired.replaced_by}" if retired.replaced_by else "take it out",
    )
