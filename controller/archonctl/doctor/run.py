"""Gather the facts that the chosen checks need, then let each check judge, all of it in children with deadlines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from archonctl.doctor.bounded import NoAnswer, Task, gather
from archonctl.doctor.checks import cards, clock, containers, disks, endpoints, leftovers, limits, ports, services, ttm
from archonctl.doctor.machine import Machine, engine_pids, hostname
from archonctl.doctor.runtimes import ANSWER_S, NAMES, Name, Runtime, ask
from archonctl.doctor.subject import Subject, study
from archonctl.doctor.values import Check, Line, Report, Result, unanswered, unseen
from archonctl.host.detect import detect_host
from archonctl.host.nvidia import WAIT_S
from archonctl.host.profile import Host

HOST_S = WAIT_S + 1
"""For the cards: detection itself gives NVML up after ``WAIT_S``, since waking eight cards may take most of that."""

STUDY_S = 20.0
"""For one declaration: a plan takes a tenth of a second; a model on the network or a sleeping card takes seconds."""

VERIFY_S = 24 * 3600.0
"""For reading a whole model file, which was asked for."""

OfMachine = Callable[[Machine], tuple[Result, ...]]
OfEndpoint = Callable[[Machine, Subject], tuple[Result, ...]]

OF_MACHINE: dict[str, OfMachine] = {
    "gpu-driver": cards.gpu_driver,
    "gpu-visible": cards.gpu_visible,
    "gpu-nodes": cards.gpu_nodes,
    "gpu-access": cards.gpu_access,
    "leftovers": leftovers.leftovers,
    "ttm-module": ttm.ttm_module,
    "ttm-limit": ttm.ttm_limit,
    "gtt-size": ttm.gtt_size,
    "ram": limits.ram,
    "memlock": limits.memlock,
    "cgroup-memory": limits.cgroup_memory,
    "cgroup-version": limits.cgroup_version,
    "shared-memory": limits.shared_memory,
    "disk-space": disks.disk_space,
    "container-runtime": containers.container_runtime,
    "container-cgroups": containers.container_cgroups,
    "container-devices": containers.container_devices,
    "systemd-running": services.systemd_running,
    "systemd-version": services.systemd_version,
    "clock": clock.clock,
    "ports": ports.ports,
}
OF_ENDPOINT: dict[str, OfEndpoint] = {
    "disk-models": disks.disk_models,
    "declaration": endpoints.declaration,
    "engine-program": endpoints.engine_program,
    "model-file": endpoints.model_file,
    "plan": endpoints.plan,
}
_ANYWHERE = ("declaration", "plan")
"""What does not depend on this machine being the endpoint's own."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked at. ``named``: the user named the one declaration, so this machine is meant for it."""

    checks: tuple[Check, ...]
    declarations: tuple[Path, ...]
    named: bool
    root: Path
    environ: Mapping[str, str]
    cwd: Path
    strict: bool = False
    verify_files: bool = False


def run_checks(asked: Asked) -> Report:
    """Everything that was asked, in the order of the table. Raises nothing for what a machine may hold."""
    machine = observe(asked)
    pairs = [(check, subject) for check in asked.checks for subject in _subjects(check, machine)]
    answers = gather([Task(_work(check, machine, subject), _deadline(check, asked)) for check, subject in pairs])
    lines = [
        Line(check, subject.name if subject else "", result)
        for (check, subject), answer in zip(pairs, answers, strict=True)
        for result in (answer if isinstance(answer, tuple) else (unanswered(answer),))
    ]
    return Report(machine.name, tuple(lines), tuple(subject.name for subject in machine.subjects), asked.strict)


def observe(asked: Asked) -> Machine:
    """The facts that the chosen checks need; the others are left empty."""
    root, needs = asked.root, {name for check in asked.checks for name in check.needs}
    name = hostname(root)
    is_live = root == Path("/")
    tasks: dict[tuple[str, str], Task[object]] = {}
    if "host" in needs:
        tasks["host", ""] = Task(lambda: detect_host(root), HOST_S)
    if "engines" in needs:
        tasks["engines", ""] = Task(lambda: engine_pids(root), HOST_S)
    if "systemd" in needs and is_live:
        tasks["systemd", ""] = Task(_systemd_version, HOST_S)
    if "runtimes" in needs and is_live:
        tasks |= {("runtime", each): Task(partial(ask, each), ANSWER_S + 1) for each in NAMES}
    if "endpoints" in needs:
        tasks |= {("endpoint", str(path)): Task(_study(asked, path, name), STUDY_S) for path in asked.declarations}
    answers = dict(zip(tasks, gather(list(tasks.values())), strict=True))
    host, engines, version = (answers.get((fact, "")) for fact in ("host", "engines", "systemd"))
    return Machine(
        root=root,
        host=host if isinstance(host, Host | NoAnswer) else NoAnswer("it was not asked", late=False),
        subjects=tuple(_subject(Path(of), answer) for (fact, of), answer in answers.items() if fact == "endpoint"),
        runtimes=tuple(_runtime(each, answers["runtime", each]) for each in NAMES if ("runtime", each) in answers),
        engines=engines if isinstance(engines, dict) else {},
        environ=asked.environ,
        uid=os.geteuid(),
        groups=frozenset({os.getegid(), *os.getgroups()}),
        systemd_version=version if isinstance(version, int) else None,
        verify_files=asked.verify_files,
    )


def _study(asked: Asked, path: Path, name: str) -> Callable[[], Subject]:
    return lambda: study(path, asked.environ, asked.root, name, is_named=asked.named, cwd=asked.cwd)


def _systemd_version() -> int | None:
    from archonctl.service.install import systemd_version

    return systemd_version()


def _subject(path: Path, answer: object) -> Subject:
    if isinstance(answer, Subject):
        return answer
    lost = unanswered(answer)
    return Subject(path.stem, str(path), lost, (unseen("not planned: the declaration could not be looked at"),))


def _runtime(name: Name, answer: object) -> Runtime:
    if isinstance(answer, Runtime):
        return answer
    why = answer.why if isinstance(answer, NoAnswer) else "no answer"
    return Runtime(name, name, fault=f"{name} info: {why}")


def _subjects(check: Check, machine: Machine) -> tuple[Subject | None, ...]:
    return machine.subjects if check.per == "endpoint" else (None,)


def _work(check: Check, machine: Machine, subject: Subject | None) -> Callable[[], tuple[Result, ...]]:
    if subject is None:
        return lambda: OF_MACHINE[check.id](machine)
    if subject.elsewhere and check.id not in _ANYWHERE:
        return lambda: (Result("skip", subject.elsewhere),)
    return lambda: OF_ENDPOINT[check.id](machine, subject)


def _deadline(check: Check, asked: Asked) -> float:
    return VERIFY_S if check.id == "model-file" and asked.verify_files else check.deadline_s
