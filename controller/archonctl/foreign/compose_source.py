"""The services of a compose file, as the engine starts in it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from archonctl.foreign.compose import Service, read_compose
from archonctl.foreign.containers import Container, Option
from archonctl.foreign.launch import in_container
from archonctl.foreign.start import Start
from archonctl.foreign.words import Unread, Word

_OPTIONS = {
    "devices": "device",
    "volumes": "volume",
    "ports": "publish",
    "group_add": "group-add",
    "shm_size": "shm-size",
    "network_mode": "network",
    "networks": "network",
    "security_opt": "security-opt",
    "cap_add": "cap-add",
    "mem_limit": "memory",
    "stop_signal": "stop-signal",
    "stop_grace_period": "stop-timeout",
    "ipc": "ipc",
    "user": "user",
    "init": "init",
    "runtime": "runtime",
    "gpus": "gpus",
    "cpuset": "cpuset-cpus",
    "extra_hosts": "add-host",
    "working_dir": "workdir",
    "container_name": "name",
    "restart": "restart",
    "env_file": "env-file",
    "privileged": "privileged",
    "pull_policy": "pull",
    "hostname": "hostname",
    "labels": "label",
    "logging": "log-driver",
    "depends_on": "requires",
    "profiles": "label",
    "platform": "platform",
}
"""Keys of a compose service by the option of ``docker run`` that they become."""


def compose_starts(path: Path, text: str) -> tuple[list[Start], list[Unread]]:
    """Every engine of a compose file, and what was not read. Raises as ``read_compose``."""
    compose = read_compose(text, str(path))
    starts: list[Start] = []
    unread = list(compose.unread)
    for service in compose.services:
        if service.image is None:
            unread.append(Unread(service.name, "it has no image (build is not followed)", service.line))
            continue
        container, others = _of_service(service, service.image)
        found, more = in_container(container, service.command)
        starts += [Start(each, service.name, str(path), path.absolute().parent, unread=tuple(others)) for each in found]
        unread += more if found or more else [Unread(service.name, "starts no engine that is known here", service.line)]
    return starts, unread


def _of_service(service: Service, image: Word) -> tuple[Container, list[Unread]]:
    options: list[Option] = []
    unread: list[Unread] = []
    for key, words in service.others.items():
        if key == "ulimits":
            options += [Option("ulimit", word, word.line, word.column) for word in words]
        elif key == "deploy":
            options += _reserved(words, unread)
        elif key in ("healthcheck", "ports", *_OPTIONS):
            name = _OPTIONS.get(key, "health-cmd")
            options += [Option(name, word, word.line, word.column) for word in words]
        else:
            unread += [
                Unread(f"{key}: {word.text}"[:80], "a key that is not read", word.line, word.column)
                for word in words[:1]
            ]
    return Container("compose", image, tuple(options)), unread


def _reserved(words: Iterable[Word], unread: list[Unread]) -> list[Option]:
    """The cards of ``deploy.resources.reservations.devices``."""
    ids, count, driver = list[str](), "", ""
    for word in words:
        key, _, value = word.text.rpartition("=")
        last = key.rpartition("=")[2]
        if last == "device_ids":
            ids.append(value)
        elif last == "count":
            count = value
        elif last in ("driver", "capabilities"):
            driver = driver or value
        else:
            unread.append(Unread(word.text[:80], "a key of deploy that is not read", word.line, word.column))
    if not (ids or count or driver):
        return []
    chosen = f"device={','.join(ids)}" if ids else "all"
    if count not in ("", "all", "-1"):
        unread.append(Unread(f"count: {count}", "a number of cards, and not which: all are taken"))
    return [Option("gpus", Word(chosen))]
