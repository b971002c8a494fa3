"""How a unit starts, stops and bounds an engine. Source: systemd.service(5), systemd.kill(5), systemd.exec(5),
systemd.resource-control(5)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from archonctl.engines.llamacpp.loading import locks_weights
from archonctl.findings import Finding, Severity
from archonctl.foreign.containers import Container
from archonctl.gate.unit.timespan import in_words, seconds
from archonctl.gate.unit.use import UnitUse
from archonctl.memory.interval import GIB
from archonctl.release.unit import load_timeout_s

DEFAULT_START_S = 90.0
STOP_S = {"radiance": 60.0, "vllm": 15.0, "sglang": 15.0, "llamacpp": 5.0}
"""Seconds that an engine takes to finish a step and free its cards. Source: radiance's compose files (60 s); the
others wait for their workers to be joined."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGTPE]?)(?:i?B?)", re.IGNORECASE)
_NEVER_NOTIFY = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama-server", "radiance": "radiance"}


def service_findings(use: UnitUse) -> list[Finding]:
    """Everything about ``[Service]`` but the restart policy and the words."""
    return [*_type(use), *_start_timeout(use), *_stop(use), *_memlock(use), *_memory(use)]


def _type(use: UnitUse) -> Iterator[Finding]:
    if use.quadlet:
        return
    kind, name = use.text("Type", "simple"), _NEVER_NOTIFY[use.launch.kind]
    detached = _has(use.container, "d", "detach")
    notifies = _has(use.container, "sdnotify")
    helped = any("systemd-notify" in item.text for item in use.unit.directives)
    if kind in ("notify", "notify-reload") and not (notifies or helped or detached):
        message = (
            f"Type={kind}, and {name} never says that it is ready: the start hangs until TimeoutStartSec= kills it"
        )
        yield use.finding("unit-type-mismatch", "error", message, "Type", "Type=exec, and verify from outside")
    elif kind == "forking" and not detached:
        message = f"Type=forking, and {name} stays in the foreground: the start hangs until TimeoutStartSec= kills it"
        yield use.finding("unit-type-mismatch", "error", message, "Type", "Type=exec")
    elif kind == "oneshot" and not detached:
        message = f"Type=oneshot, and {name} does not end: the unit stays 'activating' as long as it serves"
        yield use.finding("unit-type-mismatch", "error", message, "Type", "Type=exec")
    elif kind in ("simple", "exec") and detached and use.text("RemainAfterExit") not in ("yes", "true", "on", "1"):
        message = f"Type={kind}, and the container is started with -d: the command ends at once, and so does the unit"
        fix = "take -d out, so that the container's process is the unit's"
        yield use.finding("unit-type-mismatch", "error", message, "ExecStart", fix)


def _start_timeout(use: UnitUse) -> Iterator[Finding]:
    """A start job that ends with the load must last as long as the load."""
    item = use.unit.last("Service", "TimeoutStartSec") or use.unit.last("Service", "TimeoutSec")
    limit = seconds(item.text) if item else DEFAULT_START_S
    if limit is None or limit == 0 or math.isinf(limit) or use.model_bytes is None:
        return
    needed = load_timeout_s(use.model_bytes, None)
    if limit >= needed:
        return
    waits = use.text("Type", "simple") in ("notify", "notify-reload", "forking", "dbus", "oneshot") or bool(
        use.unit.all("Service", "ExecStartPost")
    )
    if not waits and item is None:
        return
    size = f"{use.model_bytes / GIB:,.1f} GiB"
    message = (
        f"TimeoutStartSec is {in_words(limit)}{'' if item else ' (the default)'}, and {size} of weights may take "
        f"{needed:,} s to load"
    )
    if not waits:
        message += "; it does not bound the load as long as nothing holds the start job"
    key = item.key if item else "TimeoutStartSec"
    yield use.finding(
        "unit-start-timeout-short", "error" if waits else "note", message, key, f"TimeoutStartSec={needed}"
    )


def _stop(use: UnitUse) -> Iterator[Finding]:
    kill = use.text("KillMode", "control-group")
    if kill in ("process", "none"):
        message = f"KillMode={kill} leaves the engine's workers alive, and with them the memory of the cards"
        severity: Severity = "warning" if use.container is not None else "error"
        yield use.finding("unit-kill-mode", severity, message, "KillMode", "KillMode=control-group")
    if use.text("SendSIGKILL", "yes") in ("no", "false", "off", "0"):
        message = "SendSIGKILL=no: a worker that ignores SIGTERM stays, and with it the memory of the cards"
        yield use.finding("unit-kill-mode", "error", message, "SendSIGKILL", "take SendSIGKILL out")
    if use.text("KillSignal", "SIGTERM") in ("SIGKILL", "KILL", "9"):
        message = "KillSignal=SIGKILL ends the engine without a step to free what it pinned and shared"
        yield use.finding("unit-kill-mode", "warning", message, "KillSignal", "take KillSignal out")
    item = use.unit.last("Service", "TimeoutStopSec") or use.unit.last("Service", "TimeoutSec")
    limit, needed = seconds(item.text) if item else None, STOP_S[use.launch.kind]
    if item and limit is not None and 0 < limit < needed:
        message = f"{item.key} is {in_words(limit)}, and {use.launch.kind} may take {in_words(needed)} to stop"
        yield use.finding("unit-stop-timeout-short", "warning", message, item.key, f"TimeoutStopSec={needed:g}")


def _memlock(use: UnitUse) -> Iterator[Finding]:
    """Pinned pools need the limit of the unit, and of the container in it."""
    words = [word.text for word in use.launch.arguments]
    pinned = use.launch.kind == "radiance"
    locked = use.launch.kind == "llamacpp" and locks_weights(words)
    if not (pinned or locked):
        return
    what = "radiance pins its host pool" if pinned else "it locks the weights"
    if use.container is not None:
        return  # the container has a limit of its own
    item = use.unit.last("Service", "LimitMEMLOCK")
    size = None if item is None else size_bytes(item.text.rpartition(":")[2])
    if item is None or (size is not None and size < (use.model_bytes or GIB)):
        shown = "not set (8 MiB)" if item is None else item.text
        message = f"{what}, and LimitMEMLOCK is {shown}"
        yield use.finding(
            "unit-memlock", "error" if pinned else "warning", message, "LimitMEMLOCK", "LimitMEMLOCK=infinity"
        )


def _memory(use: UnitUse) -> Iterator[Finding]:
    for key in ("MemoryMax", "MemoryHigh", "MemoryLimit"):
        item = use.unit.last("Service", key)
        size = size_bytes(item.text) if item else None
        if item is None or size is None or math.isinf(size):
            continue
        if use.model_bytes is not None and size > 1.25 * use.model_bytes:
            continue
        against = (
            f"the model has {use.model_bytes / GIB:,.1f} GiB" if use.model_bytes else "the model's size is not known"
        )
        message = f"{key}={item.text} also counts pinned memory and the page cache of the weights; {against}"
        fix = f"take {key} out, or set it well above the model's bytes and the pinned pools"
        yield use.finding("unit-memory-limit", "warning", message, key, fix)


def _has(container: Container | None, *names: str) -> bool:
    return container is not None and any(option.name in names for option in container.options)


def size_bytes(text: str) -> float | None:
    """``96G`` in bytes (binary), ``infinity`` as infinite; None for percentages and what is no size."""
    if text == "infinity":
        return math.inf
    found = _SIZE.fullmatch(text.strip())
    return float(found[1]) * 1024 ** " KMGTPE".index(found[2].upper() or " ") if found else None
