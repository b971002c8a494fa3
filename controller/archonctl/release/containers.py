"""The files of a release that start its container without systemd's template: podman, docker and Quadlet."""

from __future__ import annotations

import json
from collections.abc import Sequence

from archonctl.engines.base import CommandLine, ContainerSpec
from archonctl.engines.container import cdi_names, run_argv
from archonctl.release.quoting import start_script, unit_word

_KEPT = (
    "Restart=",
    "RestartSec=",
    "RestartSteps=",
    "RestartMaxDelaySec=",
    "RestartPreventExitStatus=",
    "TimeoutStartSec=",
    "TimeoutStopSec=",
    "LogRateLimitIntervalSec=",
    "LogRateLimitBurst=",
    "LimitMEMLOCK=",
)
"""Lines of the unit's ``[Service]`` that hold in a Quadlet too; the rest Quadlet decides itself."""


def container_files(
    name: str, command: CommandLine, env_file: str, lines: tuple[list[str], list[str]], start_s: int
) -> dict[str, str]:
    """Text of every container file by name; none for a binary.

    ``env_file`` is the absolute path of the environment file, ``lines`` are those of the unit, ``start_s`` the
    seconds that a start may take.
    """
    spec = command.container
    if spec is None:
        return {}
    found = {f"{name}.container": quadlet_text(name, spec, env_file, lines, start_s)}
    for runtime in ("podman", "docker"):
        argv = run_argv(spec, runtime, start_s if runtime == "docker" else None)
        found[f"{runtime}.json"] = json.dumps(list(argv), indent=2, ensure_ascii=False) + "\n"
        found[f"run-{runtime}"] = start_script(argv, command.env, _remarks(spec))
    return found


def _remarks(spec: ContainerSpec) -> list[str]:
    if not spec.pinned:
        return []
    return [
        "No --memory on purpose: the engine pins host memory, and a limit would also count the page cache that",
        "reading the model fills, so the kernel would end the engine while it loads.",
    ]


def quadlet_text(
    name: str, spec: ContainerSpec, env_file: str, lines: tuple[list[str], list[str]], start_s: int
) -> str:
    """A Quadlet ``.container`` unit (podman-systemd.unit(5), podman 5)."""
    unit, service = lines
    place = "~/.config/containers/systemd of the user that runs it" if spec.rootless else "/etc/containers/systemd"
    return "\n".join(
        [
            "# Rendered by archonctl from the declaration. Change the declaration, not this file.",
            f"# Place: {place}",
            "[Unit]",
            f"Description=LLM endpoint {name}",
            "After=network.target",
            *unit,
            "",
            "[Container]",
            *_image_lines(spec),
            *_host_lines(spec, env_file),
            *_health_lines(spec, start_s),
            *(f"PodmanArgs={unit_word(word, dollars=True)}" for word in spec.options),
            "",
            "[Service]",
            *(line for line in service if line.startswith(_KEPT)),
            "",
            "[Install]",
            f"WantedBy={'default.target' if spec.rootless else 'multi-user.target'}",
            "",
        ]
    )


def _image_lines(spec: ContainerSpec) -> list[str]:
    lines = [f"Image={spec.image}", f"ContainerName={spec.name}"]
    lines += [f"Entrypoint={_plain(spec.entrypoint)}"] if spec.entrypoint else []
    return [*lines, f"Exec={' '.join(unit_word(word, dollars=True) for word in spec.arguments)}", "RunInit=true"]


def _host_lines(spec: ContainerSpec, env_file: str) -> list[str]:
    lines = [f"Network={spec.network}"]
    lines += [f"PublishPort={spec.publish}"] if spec.publish else []
    lines += [f"AddDevice={device}" for device in (*spec.devices, *cdi_names(spec.gpus))]
    if spec.rootless and spec.devices:
        lines += [
            "# the groups of the user itself: a number would mean a subordinate group here",
            "GroupAdd=keep-groups",
        ]
    elif spec.groups:
        lines += ["# by number: names differ within images", *(f"GroupAdd={group}" for group in spec.groups)]
    if spec.pinned:
        lines += [*(f"# {line}" for line in _remarks(spec)), "Ulimit=memlock=-1:-1"]
    lines += [f"SeccompProfile={spec.seccomp}"] if spec.seccomp else []
    if spec.shm == "host":
        lines.append("PodmanArgs=--ipc=host")
    elif spec.shm:
        lines.append(f"ShmSize={spec.shm}")
    lines += [f"Volume={_plain(mount)}" for mount in spec.mounts]
    lines += [f"EnvironmentFile={unit_word(env_file, dollars=True)}"] if spec.env else []
    return [*lines, "StopSignal=SIGTERM", f"StopTimeout={spec.stop_s}"]


def _plain(text: str) -> str:
    """A value that Quadlet takes whole, quotes included; systemd still expands the unit that is made of it."""
    return text.replace("%", "%%").replace("$", "$$")


def _health_lines(spec: ContainerSpec, start_s: int) -> Sequence[str]:
    if not spec.health:
        return ()
    return (
        f"HealthCmd={_plain(spec.health)}",
        "# until then a failure does not count: the model is being read",
        f"HealthStartPeriod={start_s}s",
        "HealthInterval=30s",
        "HealthTimeout=5s",
        "HealthRetries=3",
    )
