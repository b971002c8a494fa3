"""The options of a container as keys of a declaration: ``[container]``, ``engine.mounts``, the published port."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from archonctl.deployment.schema import DEVICE
from archonctl.foreign.containers import Container, Option
from archonctl.foreign.words import Unread

_IMPLIED = frozenset(
    {
        "detach", "rm", "init", "interactive", "tty", "name", "restart", "log-driver", "log-opt", "pull", "env",
        "env-file", "stop-signal", "replace", "cidfile", "sdnotify", "cgroups", "health-start-period",
        "health-interval", "health-retries", "health-timeout", "entrypoint", "runtime", "requires", "hostname",
    }
)  # fmt: skip
"""Options that the rendered container has by itself, or that say nothing about the engine."""


@dataclass
class ContainerKeys:
    """What of a container goes where in a declaration."""

    table: dict[str, Any] = field(default_factory=dict)
    mounts: list[str] = field(default_factory=list)
    ports: list[tuple[str, str, str]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    def on_host(self, path: str) -> str:
        """Where a path of the container lies on the host; empty where no mount has it."""
        for mount in self.mounts:
            outer, inner = mount.split(":")[:2]
            if path == inner or path.startswith(inner.rstrip("/") + "/"):
                return outer.rstrip("/") + path[len(inner.rstrip("/")) :]
        return ""

    def covered(self, path: str) -> None:
        """Drop the mount of the folder that holds ``path``: the release mounts it by itself, at its own place."""
        kept = []
        for mount in self.mounts:
            outer = mount.split(":")[0].rstrip("/")
            if not (path == outer or path.startswith(f"{outer}/")):
                kept.append(mount)
        self.mounts = kept

    def published(self, port: str) -> tuple[str, str] | None:
        """Address and port on the host that the engine's port is published on."""
        return next(((address, outer) for address, outer, inner in self.ports if inner == port), None)


def container_keys(container: Container, base: Path) -> ContainerKeys:
    """Read every option. Relative folders begin at ``base``."""
    keys = ContainerKeys()
    if container.runtime in ("docker", "compose"):
        keys.table["runtime"] = "docker"
    keys.table["network"] = "bridge"
    for option in container.options:
        _one(keys, option, base)
    if keys.table["network"] == "host":
        del keys.table["network"]
    _merge_cdi(keys.table)
    return keys


def _one(keys: ContainerKeys, option: Option, base: Path) -> None:
    value, name = option.value.text, option.name
    if option.value.unresolved:
        keys.unread.append(
            Unread(f"--{name} {value}"[:80], "not known from the file alone", option.line, option.column)
        )
    elif name == "volume":
        _mount(keys, option, base)
    elif name == "publish":
        _publish(keys, option)
    elif name == "group-add":
        _group(keys, option)
    elif name == "health-cmd":
        _health(keys, value)
    elif found := _scalar(name, value):
        keys.table[found[0]] = found[1]
    elif name == "device" and re.fullmatch(DEVICE, value):
        keys.table.setdefault("devices", []).append(value)
    elif name not in _IMPLIED and not (name == "ulimit" and value.startswith("memlock=")):
        keys.table.setdefault("options", []).append(f"--{name}={value}" if value else f"--{name}")


def _scalar(name: str, value: str) -> tuple[str, str | int] | None:
    """Options with one key of their own."""
    if name == "network":
        return "network", value.removesuffix(".network") or "bridge"
    if name == "gpus":
        return "gpus", "all" if value == "all" else value.strip('"').removeprefix("device=")
    if name == "shm-size":
        return "shm", re.sub(r"([kmg])(i?b)?$", r"\1", value.lower())
    if name == "ipc" and value == "host":
        return "shm", "host"
    if name == "stop-timeout" and (found := re.fullmatch(r"([0-9]+)(s|m)?", value)):
        return "stop_s", int(found[1]) * (60 if found[2] == "m" else 1)
    return None


def _mount(keys: ContainerKeys, option: Option, base: Path) -> None:
    outer, _, rest = option.value.text.partition(":")
    if outer.startswith((".", "~")):
        outer = str(base / outer) if outer.startswith(".") else str(Path(outer).expanduser())
        outer = str(PurePosixPath(re.sub(r"/\./", "/", outer)))
    if outer.startswith("/") and rest.startswith("/"):
        keys.mounts.append(f"{outer}:{rest}")
    else:
        reason = "a named volume, whose folder only the runtime knows: put a folder in its place"
        keys.unread.append(Unread(option.value.text[:80], reason, option.line, option.column))


def _publish(keys: ContainerKeys, option: Option) -> None:
    found = re.fullmatch(r"(?:(\[[^\]]+\]|[0-9.]+):)?([0-9]+)?:?([0-9]+)(?:/tcp)?", option.value.text)
    if found is None:
        reason = "a published port that is not read"
        keys.unread.append(Unread(option.value.text[:80], reason, option.line, option.column))
        return
    keys.ports.append(((found[1] or "0.0.0.0").strip("[]"), found[2] or found[3], found[3]))


def _group(keys: ContainerKeys, option: Option) -> None:
    value = option.value.text
    if value.isdecimal():
        keys.table.setdefault("groups", []).append(int(value))
    elif value not in ("keep-groups", "video", "render"):
        reason = "a group by name, which differs within images: put its number into container.groups"
        keys.unread.append(Unread(value[:80], reason, option.line, option.column))


def _health(keys: ContainerKeys, value: str) -> None:
    """The words of a compose health check come one by one; its command is a word after CMD, or behind ``test=``."""
    if value.startswith(("test=", "interval=", "timeout=", "retries=", "start_period=", "disable=")):
        word = value.partition("=")[2] if value.startswith("test=") else ""
        if word in ("", "CMD", "CMD-SHELL"):
            return
        value = word if "health" not in keys.table else f"{keys.table['health']} {word}"
    if re.search(r"\b(curl|wget)\b.*/(health|ping|v1/models)\b", value):
        keys.table.pop("health", None)  # as every rendered container has it, at the port of the declaration
        return
    keys.table["health"] = "off" if value == "NONE" else value


def _merge_cdi(table: dict[str, Any]) -> None:
    """NVIDIA's CDI names as ``gpus``."""
    mark = "nvidia.com/gpu="
    cards = [device.removeprefix(mark) for device in table.get("devices", ()) if device.startswith(mark)]
    if cards:
        table["gpus"] = "all" if "all" in cards else ",".join(cards)
        table["devices"] = [device for device in table["devices"] if not device.startswith(mark)]
        if not table["devices"]:
            del table["devices"]
