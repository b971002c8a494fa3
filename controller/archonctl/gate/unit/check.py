"""A systemd unit or a Quadlet with its drop-ins: its engine's command line, and the traps around it."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from archonctl.findings import Finding
from archonctl.foreign.launch import Launch, in_container, launches
from archonctl.foreign.quadlet import read_quadlet
from archonctl.foreign.units import Unit
from archonctl.gate.container import container_findings
from archonctl.gate.context import Known
from archonctl.gate.judge import launch_findings, version_of
from archonctl.gate.source import Source
from archonctl.gate.unit.quoting import quoting_findings
from archonctl.gate.unit.restart import restart_findings
from archonctl.gate.unit.service import service_findings
from archonctl.gate.unit.unit import UnitFile
from archonctl.gate.unit.use import UnitUse

_SPLIT = re.compile(r"-00001-of-([0-9]{5})\.gguf$")


def unit_findings(
    source: Source, unit: Unit, drop_ins: Sequence[tuple[Source, Unit]] = (), model_bytes: int | None = None
) -> tuple[list[Finding], int]:
    """Everything about a unit that starts an engine, and how many it starts. Others are none of ours."""
    whole = UnitFile.of(source, unit, drop_ins)
    started = list(unit_launches(whole))
    found: list[Finding] = []
    for owner, launch in started:
        use = UnitUse(whole, launch, model_bytes if model_bytes is not None else bytes_of(launch))
        found += [*launch_findings(owner, launch), *container_findings(owner, launch), *service_findings(use)]
    if started or source.path.name.startswith("archon"):
        found += restart_findings(whole)
        found += quoting_findings(whole)
    return found, len(started)


def drop_in_findings(source: Source, unit: Unit) -> list[Finding]:
    """A drop-in whose unit was not given: the traps in its own lines, and the engine if it starts one."""
    found, count = unit_findings(source, unit)
    whole = UnitFile.of(source, unit)
    return found if count else quoting_findings(whole)


def unit_launches(unit: UnitFile) -> Iterator[tuple[Source, Launch]]:
    """The engines of ``ExecStart=`` (and of a Quadlet's ``Image=`` and ``Exec=``), with the file of each."""
    by_file = {id(item.source): item.source for item in unit.directives}
    env = Unit(tuple(item.entry for item in unit.directives), ()).environment()
    for item in unit.all("Service", "ExecStart"):
        for command in Unit((item.entry,), ()).commands():
            for launch in launches(replace(command, env=env))[0]:
                yield by_file[id(item.source)], launch
    container, command, _ = read_quadlet(Unit(tuple(item.entry for item in unit.directives), ()))
    image = unit.last("Container", "Image")
    if container is None or image is None:
        return
    owner = (unit.last("Container", "Exec") or image).source
    for launch in in_container(container, command)[0]:
        yield owner, launch


def env_files_of(unit: UnitFile) -> Iterator[tuple[str, Known]]:
    """The paths of ``EnvironmentFile=`` of a unit that starts an engine, with the engine and its version."""
    for owner, launch in unit_launches(unit):
        for section in ("Service", "Container"):
            for item in unit.all(section, "EnvironmentFile"):
                yield item.text.strip("\"'").removeprefix("-"), Known(launch.kind, version_of(owner, launch))


def bytes_of(launch: Launch) -> int | None:
    """The size of the model that the arguments name, where it is a file of this machine; None where it is not."""
    words = launch.arguments
    name = ""
    for number, word in enumerate(words[:-1]):
        if word.text in ("-m", "--model", "--model-path"):
            name = words[number + 1].text
    if launch.kind == "vllm" and len(words) > 1 and words[0].text == "serve":
        name = words[1].text
    if not name.startswith("/"):
        return None
    try:
        info = Path(name).stat()
    except (OSError, ValueError):
        return None
    parts = _SPLIT.search(name)
    return info.st_size * (int(parts[1]) if parts else 1) if stat.S_ISREG(info.st_mode) else None
