"""What one declaration needs: that it can be read, its engine, its model file, and its plan."""

from __future__ import annotations

import os
from pathlib import Path

from archonctl.doctor.machine import Machine
from archonctl.doctor.subject import Subject
from archonctl.doctor.values import Result, failed, of_error, passed, skipped, unseen
from archonctl.errors import ArchonError
from archonctl.gate.artefact import remembered_sha256, sha256_of
from archonctl.service.engine_account import check_access, engine_account
from archonctl.service.place import SYSTEM
from archonctl.service.preflight import check_model, resolve_binary


def declaration(_machine: Machine, subject: Subject) -> tuple[Result, ...]:
    """It is valid, as every other verb reads it."""
    return (subject.declaration,)


def plan(_machine: Machine, subject: Subject) -> tuple[Result, ...]:
    """What ``archonctl plan`` says: the same function said it."""
    return subject.plan


def engine_program(_machine: Machine, subject: Subject) -> tuple[Result, ...]:
    """The declared program is there and can be executed; an image is the container runtime's business."""
    if subject.endpoint is None:
        return (skipped("the declaration cannot be used"),)
    if subject.refusal is not None:
        return (subject.refusal,)
    engine = subject.endpoint.engine
    if engine.image:
        return (skipped(f"runs from the image {engine.image}"),)
    try:
        program = resolve_binary(engine.binary or (subject.command.argv[0] if subject.command else ""))
    except ArchonError as err:
        return (of_error(err),)
    return (passed(f"{program} can be executed"),)


def model_file(machine: Machine, subject: Subject) -> tuple[Result, ...]:
    """Declared bytes against the file's; its SHA-256 where that is remembered, or reading it was asked for."""
    if subject.endpoint is None:
        return (skipped("the declaration cannot be used"),)
    model = subject.endpoint.model
    if not model.path.startswith("/"):
        return (skipped(f"{model.path}: no file of this machine; the engine finds it itself"),)
    try:
        actual = check_model(os.fspath(machine.at(model.path)), model.bytes)
        _check_account(machine, subject)
    except ArchonError as err:
        return (of_error(err, theirs=bool(machine.uid and subject.account)),)
    told = f"{actual:,} bytes" if model.bytes is None else f"{actual:,} bytes, {model.bytes:,} declared"
    if model.bytes is None and model.sha256 is None:
        fix = f"declare model.bytes = {actual}, and model.sha256"
        return (unseen(f"{model.path}: {told}, and neither size nor SHA-256 is declared to compare it with", fix),)
    return (passed(f"{model.path}: {told}"), *_digest(machine.at(model.path), model.sha256, machine.verify_files))


def _check_account(machine: Machine, subject: Subject) -> None:
    """Root may read anything; the unit's account may not. A container has accounts of its own.

    Raises as ``engine_account`` and ``check_access``.
    """
    endpoint = subject.endpoint
    if endpoint is None or not endpoint.engine.binary or not subject.account:
        return
    if machine.is_live and machine.uid == 0 and (account := engine_account(endpoint, subject.name, SYSTEM)):
        check_access(account, endpoint.engine.binary, endpoint.model.path)


def _digest(path: Path, wanted: str | None, read: bool) -> tuple[Result, ...]:
    if wanted is None or not path.is_file():
        return ()
    try:
        seen = sha256_of(path).sha256 if read else remembered_sha256(path)
    except OSError as err:
        return (unseen(f"{path}: its SHA-256 could not be read: {err.strerror or err}"),)
    if not seen:
        fix = "archonctl doctor --verify-files reads the whole file (minutes), and remembers it"
        return (unseen(f"{path.name}: its SHA-256 was never read here", fix),)
    if seen != wanted:
        message = f"{path}: its SHA-256 is {seen}, {wanted} is declared"
        return (failed("model-sha256-differs", message, "fetch the declared file again"),)
    return (passed(f"{path.name}: its SHA-256 is the declared one{'' if read else ', as it was last read'}"),)
