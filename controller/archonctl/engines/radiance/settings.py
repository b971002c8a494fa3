"""What a declaration asks of radiance, read once: knobs checked by version, defaults filled in, types settled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint, KnobValue
from archonctl.engines.base import Problem
from archonctl.engines.radiance.knobtable import (
    Version,
    accepts,
    check_knob,
    find,
    known,
    managed,
    number_of,
    parse_version,
    table,
)
from archonctl.engines.radiance.kv import Era, check_dtype, era_of
from archonctl.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Settings:
    """The declaration in the engine's terms. MiB and tokens; ``None`` where the engine decides by itself."""

    version: Version
    era: Era
    kv_dtype: str
    slots: int
    """``--max-num-seqs``: sequences that get recurrent state, at least the contract's if the knob is not set."""
    window: int | None
    """``--max-model-len``; None means the trained context."""
    tp: int
    slab_mib: int | None
    pool_mib: int | None
    host_pool_mib: int
    prefix_mib: int
    batched_tokens: int
    checkpoint_slots: int
    depth: int | None
    """Draft tokens a step; None is ``auto``."""
    lossy_wire: bool
    wire_min_kib: int
    knobs: Mapping[str, KnobValue]
    """Every valid knob by its canonical flag, the contract's three included."""


def read_settings(endpoint: Endpoint) -> tuple[Settings, tuple[Problem, ...]]:
    """Settings and everything that is wrong with the knobs.

    A knob that this version does not take is a problem and counts as not set. Raises DeclarationError for what
    has no meaning at all: ``engine-version-missing``, ``engine-version-invalid``, ``kv-dtype-unknown``,
    ``kv-dtype-conflict``, ``knob-bad-value``, ``knob-twice`` and ``knob-reserved``.
    """
    version = parse_version(endpoint.engine.version, "engine.version")
    contract = endpoint.contract
    check_dtype(contract.kv_dtype)
    given, problems = _valid(endpoint, version)
    knobs: dict[str, KnobValue] = {
        "max-num-seqs": contract.seqs,
        "max-model-len": contract.len,
        "kv-cache-dtype": contract.kv_dtype,
        **given,
    }
    if knobs["kv-cache-dtype"] != contract.kv_dtype:
        message = f"knob kv-cache-dtype is {knobs['kv-cache-dtype']}, contract.kv_dtype is {contract.kv_dtype}"
        raise _wrong("kv-dtype-conflict", "kv-cache-dtype", message, "take the knob out: the contract names the dtype")
    prefix = "prefix-cache-mib" if known(table()["prefix-cache-mib"], version) else "prefix-cache-host-mib"
    return (
        Settings(
            version=version,
            era=era_of(version),
            kv_dtype=contract.kv_dtype,
            slots=_whole(knobs, "max-num-seqs"),
            window=_whole(knobs, "max-model-len") or None,
            tp=_whole(knobs, "tp"),
            slab_mib=_whole(knobs, "vram-weights-mib") or None,
            pool_mib=_whole(knobs, "vram-kv-mib") or None,
            host_pool_mib=_whole(knobs, "host-pool-mib"),
            prefix_mib=_whole(knobs, prefix),
            batched_tokens=_whole(knobs, "max-num-batched-tokens"),
            checkpoint_slots=_whole(knobs, "checkpoint-slots"),
            depth=_number(knobs, "num-speculative-tokens"),
            lossy_wire=knobs.get("tp-wire") == "wht6",
            wire_min_kib=_whole(knobs, "tp-wire-min-kb"),
            knobs=knobs,
        ),
        tuple(problems),
    )


def _valid(endpoint: Endpoint, version: Version) -> tuple[dict[str, KnobValue], list[Problem]]:
    """The knobs that can be rendered, by canonical flag, and those that this version does not take."""
    knobs: dict[str, KnobValue] = {}
    problems: list[Problem] = []
    for key, value in endpoint.engine.knobs.items():
        knob, problem = find(key), check_knob(key, value, version)
        if problem is not None and (knob is None or problem.code == "knob-bad-value"):
            raise _wrong(problem.code, key, problem.message, problem.hint)
        if problem is not None or knob is None:
            problems += [problem] if problem is not None else []
            continue
        if (rule := managed(knob)) is not None:
            raise _wrong("knob-reserved", key, f"knob {knob.flag}: {rule.reason}", rule.instead)
        if knob.flag in knobs:
            message = f"knob {knob.flag} is set twice, once as {key}: {knobs[knob.flag]!r} and {value!r}"
            raise _wrong("knob-twice", key, message, "keep one of them")
        knobs[knob.flag] = value
    return knobs, problems


def _wrong(code: str, key: str, message: str, hint: str = "") -> DeclarationError:
    return DeclarationError(code, message, where=f"engine.knobs.{key}", hint=hint)


def effective(knobs: Mapping[str, KnobValue], flag: str) -> KnobValue | None:
    """The value in force: as declared, else the engine's default, else None; numbers in text are numbers."""
    knob = table().get(flag)
    value = knobs.get(flag, (knob.default or None) if knob else None)
    if knob is None or value is None or knob.type not in ("int", "float") or not accepts(knob, value):
        return value
    number = number_of(knob, value)
    return value if number is None else number


def _number(knobs: Mapping[str, KnobValue], flag: str) -> int | None:
    value = effective(knobs, flag)
    return None if value is None or isinstance(value, str) else int(value)


def _whole(knobs: Mapping[str, KnobValue], flag: str) -> int:
    return _number(knobs, flag) or 0
