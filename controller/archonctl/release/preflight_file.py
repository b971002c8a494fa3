"""``preflight.env``: what root checks before an engine starts, as the strict KEY=VALUE file that its script reads.

``scripts/ttm-preflight.sh`` reads the same grammar; a test gives both the same bytes and expects the same answer.
Only keys that apply to the engine are there, so that a check that does not apply is skipped and not passed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields

from archonctl.engines.base import CommandLine, Forecast, Pinned
from archonctl.engines.llamacpp.loading import holds_weights
from archonctl.errors import DeclarationError
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB

PREFLIGHT_FILE = "preflight.env"
LARGEST_BYTES = 16_384

IDLE_VRAM_MIB = 1024
"""More than an idle card shows (tens to hundreds of MiB) and less than any engine leaves behind (gigabytes)."""

FLOOR_KEYS = ("RANKS", "HOST_POOL_MIB", "NGRAM_TABLE_MIB", "PREFIX_CACHE_MIB", "MAX_NUM_BATCHED_TOKENS")
"""All or none of them; in the order of ``Pinned``."""

_NINE_DIGITS = 999_999_999
_LARGEST = {
    "FORMAT": 1,
    **dict.fromkeys(FLOOR_KEYS, _NINE_DIGITS),
    "RANKS": 1024,
    "TTM_TARGET_MIB": _NINE_DIGITS,
    "RAM_NEED_MIB": _NINE_DIGITS,
    "MEMLOCK_NEED_MIB": _NINE_DIGITS,
    "RENDER_NODES": 1024,
    "VRAM_USED_MAX_MIB": _NINE_DIGITS,
    "WAIT_S": 600,
}
_NODE = r"/dev(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+"
_AT_LEAST_ONE = ("FORMAT", "RANKS")
_TEXT = {
    "ENDPOINT": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII),
    "SHARED_CARDS": re.compile(r"yes|no"),
    "DEVICES": re.compile(
        r"(?=.{1,2000}\Z)/dev(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+(,/dev(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+)*"
    ),
}
_KEY = re.compile(r"[A-Z][A-Z0-9_]*", re.ASCII)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)

# what llama-server allocates only as it is used, or maps so that the kernel may drop it
_NOT_AT_BOOT = frozenset({"weights", "ddr_cache"})


def preflight_text(endpoint: str, engine: str, command: CommandLine, forecast: Forecast, host: Host) -> str:
    """The file of one endpoint, from its plan.

    ``engine`` is the kind. Raises DeclarationError ``preflight-file-invalid`` for a figure that the grammar does not
    hold (more than nine digits of MiB).
    """
    values: dict[str, str | int] = {"FORMAT": 1, "ENDPOINT": endpoint}
    values |= _memory(command, forecast, host) | _cards(engine, forecast, host)
    lines = [
        "# Rendered by archonctl from the declaration. Change the declaration, not this file.",
        *(f"{key}={value}" for key, value in values.items()),
        "",
    ]
    text = "\n".join(lines)
    parse_preflight(text.encode("utf-8"), PREFLIGHT_FILE)
    return text


def _memory(command: CommandLine, forecast: Forecast, host: Host) -> dict[str, str | int]:
    pinned = forecast.host_need.pinned
    if pinned is not None:
        floor = floor_mib(pinned)
        target = {} if host.ttm_target_mib is None else {"TTM_TARGET_MIB": host.ttm_target_mib}
        terms = (getattr(pinned, term.name) for term in fields(pinned))
        # the driver pins through the TTM limit; what it registers of the process's own pages counts as locked
        return {**dict(zip(FLOOR_KEYS, terms, strict=True)), **target, "RAM_NEED_MIB": floor, "MEMLOCK_NEED_MIB": floor}
    weights_held = command.pinned or holds_weights(command.argv)
    wanted = [d for d in forecast.demands if d.scope == "host" and (weights_held or d.cls not in _NOT_AT_BOOT)]
    need = -(-sum(d.bytes for d in wanted if d.cls != "ddr_cache") // MIB)
    values: dict[str, str | int] = {"RAM_NEED_MIB": need} if need else {}
    if need and command.pinned:
        values["MEMLOCK_NEED_MIB"] = need
    return values


def _cards(engine: str, forecast: Forecast, host: Host) -> dict[str, str | int]:
    pinned = forecast.host_need.pinned
    if not host.cards and engine != "radiance":
        return {}
    devices = host.devices or (("/dev/kfd",) if engine == "radiance" else ())
    if not devices:
        return {}
    values: dict[str, str | int] = {"DEVICES": ",".join(devices)}
    if "/dev/kfd" in devices:
        values["RENDER_NODES"] = pinned.ranks if pinned is not None else max(1, len(forecast.cards))
        values["VRAM_USED_MAX_MIB"] = IDLE_VRAM_MIB
    if host.cards_shared:
        values["SHARED_CARDS"] = "yes"
    return values


def floor_mib(pinned: Pinned) -> int:
    """ranks x host pool + table + prefix cache + batched tokens, in MiB."""
    return pinned.ranks * pinned.host_pool_mib + pinned.table_mib + pinned.prefix_mib + pinned.batched_tokens


def parse_preflight(content: bytes, where: str = PREFLIGHT_FILE) -> Mapping[str, str | int]:
    """The keys of a preflight file, numbers as int.

    Raises DeclarationError ``preflight-file-invalid`` with the line.
    """
    if len(content) > LARGEST_BYTES:
        raise _invalid(where, 1, f"{len(content)} bytes, at most {LARGEST_BYTES}")
    if not content.endswith(b"\n"):
        raise _invalid(where, 1, "the last line is not ended: the file is empty or was cut short")
    values: dict[str, str | int] = {}
    for number, raw in enumerate(content.split(b"\n")[:-1], 1):
        if re.search(rb"[^ -~]", raw):
            raise _invalid(where, number, "holds a character that is not printable ASCII")
        line = raw.decode("ascii")
        if line and not line.startswith("#"):
            key, value = _setting(line, values, where, number)
            values[key] = value
    _complete(values, where)
    return values


def _setting(line: str, before: Iterable[str], where: str, number: int) -> tuple[str, str | int]:
    key, equals, text = line.partition("=")
    if not equals or not _KEY.fullmatch(key):
        raise _invalid(where, number, "is neither KEY=VALUE nor a comment")
    if key in before:
        raise _invalid(where, number, f"{key} is set a second time")
    if not before and key != "FORMAT":
        raise _invalid(where, number, f"begins with {key}, expected FORMAT=1")
    if key in _LARGEST:
        if not _NUMBER.fullmatch(text):
            raise _invalid(where, number, f"{key} is no plain whole number: {text[:40]}")
        if not (key in _AT_LEAST_ONE) <= int(text) <= _LARGEST[key]:
            raise _invalid(where, number, f"{key} is {text}, at most {_LARGEST[key]}")
        return key, int(text)
    if key not in _TEXT:
        raise _invalid(where, number, f"{key} is not known")
    if not _TEXT[key].fullmatch(text):
        raise _invalid(where, number, f"{key} does not take {text[:60]}")
    return key, text


def _complete(values: Mapping[str, str | int], where: str) -> None:
    if "FORMAT" not in values:
        raise _invalid(where, 1, "sets nothing, expected FORMAT=1 first")
    if "ENDPOINT" not in values:
        raise _invalid(where, 1, "ENDPOINT is missing")
    there = [key for key in FLOOR_KEYS if key in values]
    if len(there) not in (0, len(FLOOR_KEYS)) or ("TTM_TARGET_MIB" in values and not there):
        raise _invalid(where, 1, f"the floor needs all of {' '.join(FLOOR_KEYS)}")


def _invalid(where: str, line: int, reason: str) -> DeclarationError:
    return DeclarationError("preflight-file-invalid", reason, where=f"{where}:{line}")
