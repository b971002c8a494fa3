"""Container runtimes: there, answering, one manager of control groups, and able to bring the cards in."""

from __future__ import annotations

from collections.abc import Iterator

from archonctl.doctor.checks.cards import device_nodes
from archonctl.doctor.machine import Machine
from archonctl.doctor.runtimes import Runtime
from archonctl.doctor.values import Result, failed, passed, skipped, unseen, warned

_CDI = ("/etc/cdi", "/var/run/cdi", "/run/cdi")
"""Folders of CDI specifications (CNCF container device interface, SPEC.md)."""


def container_runtime(machine: Machine) -> tuple[Result, ...]:
    """Installed and answering, where an endpoint needs it; else what is there."""
    if not machine.is_live and not machine.runtimes:
        return (skipped("another machine's files tell nothing of its container runtimes"),)
    wanted = _wanted(machine)
    results = []
    for runtime in machine.runtimes:
        who = wanted.get(runtime.name, "")
        if not runtime.program:
            if who:
                message = f"{who} runs in {runtime.name}, which is not installed"
                results.append(failed("container-runtime-missing", message, f"install {runtime.name}"))
        elif runtime.fault and machine.uid and "permission denied" in runtime.fault.lower():
            results.append(
                unseen(f"{runtime.name}: {runtime.fault}", "sudo archonctl doctor, or join the group docker")
            )
        elif runtime.fault:
            fix = f"{runtime.name} info; systemctl status {runtime.name}"
            message = f"{runtime.program}: {runtime.fault}"
            if who:
                results.append(failed("container-runtime-silent", f"{who} runs in {runtime.name}. {message}", fix))
            else:
                results.append(skipped(f"{message}; no endpoint here runs in it"))
        else:
            about = f", for {who}" if who else "; no endpoint here runs in it"
            rootless = ", rootless" if runtime.rootless else ""
            results.append(passed(f"{runtime.name} {runtime.version} answers{rootless}{about}"))
    return tuple(results) or (skipped("neither podman nor docker is installed, and no endpoint here needs one"),)


def container_cgroups(machine: Machine) -> tuple[Result, ...]:
    """Beside systemd a second manager of the same tree of control groups is trouble under pressure.

    Source: kubernetes.io, Container Runtimes, cgroup drivers.
    """
    answering = [runtime for runtime in machine.runtimes if runtime.version and not runtime.fault]
    if not answering:
        return (skipped("no container runtime answers"),)
    if not machine.read.exists("/run/systemd/system"):
        told = ", ".join(f"{each.name}: {each.cgroup_driver or 'unknown'}" for each in answering)
        return (skipped(f"systemd is not process 1, so any driver will do ({told})"),)
    return tuple(_driver(runtime) for runtime in answering)


def _driver(runtime: Runtime) -> Result:
    version = f", cgroup version {runtime.cgroup_version}" if runtime.cgroup_version else ""
    if not runtime.cgroup_driver:
        return unseen(f"{runtime.name} does not tell its cgroup driver")
    told = f"{runtime.name} uses {runtime.cgroup_driver}{version}"
    if runtime.cgroup_driver == "systemd":
        return passed(f"{told}, as process 1 does")
    if runtime.name == "docker":
        fix = '"exec-opts": ["native.cgroupdriver=systemd"] in /etc/docker/daemon.json, and restart it'
    else:
        fix = 'cgroup_manager = "systemd" in containers.conf'
    return warned("container-cgroup-driver", f"{told}, and process 1 is systemd: 2 managers of one tree", fix)


def container_devices(machine: Machine) -> tuple[Result, ...]:
    """What brings cards into containers is set up. Nothing is started to find out."""
    results = list(_devices(machine))
    return tuple(results) or (skipped("no endpoint here takes cards into a container"),)


def _devices(machine: Machine) -> Iterator[Result]:
    nodes, answering = device_nodes(machine), {each.name: each for each in machine.runtimes}
    for subject in machine.here:
        spec = subject.command.container if subject.command else None
        runtime = answering.get(spec.runtime) if spec else None
        if spec is None or runtime is None or not runtime.program:
            continue
        named = [device.split(":")[0] for device in spec.devices if device.startswith("/")]
        if spec.gpus or any("=" in device for device in spec.devices):
            yield _nvidia(machine, runtime, subject.name)
        elif named:
            lacking = [device for device in named if device not in nodes and not machine.stat(device)]
            told = f"{subject.name}: {len(named) - len(lacking)} of {len(named)} devices of its container are here"
            if lacking:
                yield failed("device-missing", f"{told}; not {', '.join(lacking)}", "is the driver loaded?")
            else:
                yield passed(told)


def _nvidia(machine: Machine, runtime: Runtime, who: str) -> Result:
    files = [f"{folder}/{name}" for folder in _CDI for name in machine.read.names(folder) if "nvidia" in name]
    ways = [*(["runtime nvidia"] if "nvidia" in runtime.runtimes else []), *files]
    if ways:
        return passed(f"{who}: {runtime.name} brings NVIDIA cards in by {', '.join(ways)}")
    message = f"{who}: 0 ways for {runtime.name} to bring NVIDIA cards in: no runtime nvidia, no CDI specification"
    if runtime.name == "docker":
        fix = "install nvidia-container-toolkit; nvidia-ctk runtime configure --runtime=docker; restart docker"
    else:
        fix = "install nvidia-container-toolkit; nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    return failed("container-devices-hidden", message, fix)


def _wanted(machine: Machine) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for subject in machine.here:
        if subject.command and subject.command.container:
            found.setdefault(subject.command.container.runtime, []).append(subject.name)
    return {runtime: ", ".join(names) for runtime, names in found.items()}
