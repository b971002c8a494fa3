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
from archonctl.doctor.runtimes import ANSWER_S, NAMES, Runtime, ask
from archonctl.doctor.subject import Subject, study
from archonctl.doctor.values import Check, Line, Report, Result, failed, unseen
from archonctl.host.detect import detect_host

STUDY_S = 10.0
"""For one declaration: a plan takes a tenth of a second, and a model on the network or a driver may take seconds."""

HOST_S = 5.0
"""For the cards: a driver that has to wake them first takes a second or two each."""

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
        for result in (answer if isinstance(answer, tuple) else (_unanswered(answer),))
    ]
    return Report(machine.name, tuple(lines), tuple(subject.name for subject in machine.subjects), asked.strict)


def observe(asked: Asked) -> Machine:
    """The facts that the chosen checks need; the others are left empty."""
    root, needs = asked.root, {name for check in asked.checks for name in check.needs}
    name = hostname(root)
    tasks: dict[str, Task[object]] = {}
    if "host" in needs:
        tasks["host"] = Task(lambda: detect_host(root), HOST_S)
    if "engines" in needs:
        tasks["engines"] = Task(lambda: engine_pids(root), HOST_S)
    if "systemd" in needs and root == Path("/"):
        tasks["systemd"] = Task(_systemd_version, HOST_S)
    if "runtimes" in needs and root == Path("/"):
        tasks |= {each: Task(partial(ask, each), ANSWER_S + 1) for each in NAMES}
    if "endpoints" in needs:
        tasks |= {str(path): Task(_study(asked, path, name), STUDY_S) for path in asked.declarations}
    answers = dict(zip(tasks, gather(list(tasks.values())), strict=True))
    engines, version = answers.get("engines"), answers.get("systemd")
    host = answers.get("host")
    return Machine(
        root=root,
        host=host if host is not None else NoAnswer("it was not asked", late=False),  # type: ignore[arg-type]
        subjects=tuple(_subject(path, answers[str(path)]) for path in asked.declarations if str(path) in answers),
        runtimes=tuple(_runtime(each, answers[each]) for each in NAMES if each in answers),
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
    lost = _unanswered(answer)
    return Subject(path.stem, str(path), lost, (unseen("not planned: the declaration could not be looked at"),))


def _runtime(name: str, answer: object) -> Runtime:
    if isinstance(answer, Runtime):
        return answer
    why = answer.why if isinstance(answer, NoAnswer) else "no answer"
    return Runtime(name, name, fault=f"{name} info: {why}")  # type: ignore[arg-type]


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


def _unanswered(answer: object) -> Result:
    """A check that hangs has found something; one that fell over is a defect of ours."""
    why = answer.why if isinstance(answer, NoAnswer) else "no answer"
    if isinstance(answer, NoAnswer) and answer.late:
        fix = "ps -eo pid,stat,wchan:30,cmd | grep ' D' shows what waits in the kernel: a disk, a share, a driver"
        return failed("check-unanswered", why, fix)
    return failed("internal-fault", why, "a defect of archonctl: please report it")
