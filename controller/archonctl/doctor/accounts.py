"""Accounts by number, from the files of the machine that is looked at (names differ between it and a container)."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from archonctl.doctor.machine import Machine

_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Account:
    """Whom something runs as; ``name`` is empty where only the number is known."""

    name: str
    uid: int
    groups: frozenset[int]

    def may_use(self, found: os.stat_result) -> bool:
        """Read and write, by the permission bits (an access list shows as the group's bits)."""
        if self.uid == 0:
            return True
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid in self.groups else 0
        return (found.st_mode >> shift) & 0o6 == 0o6


def find_account(machine: Machine, name: str) -> Account | None:
    """The account of that name or number; whoever asks for an empty one. None where there is no such account."""
    if not name:
        return Account(_name_of(machine, machine.uid), machine.uid, machine.groups)
    for line in (machine.read.text("/etc/passwd") or "").splitlines():
        fields = line.split(":")
        if len(fields) >= 4 and name in (fields[0], fields[2]) and all(map(_NUMBER.fullmatch, fields[2:4])):
            return Account(fields[0], int(fields[2]), frozenset({int(fields[3]), *_groups_of(machine, fields[0])}))
    return None


def _name_of(machine: Machine, uid: int) -> str:
    found = re.search(rf"^([^:\n]+):[^:\n]*:{uid}:", machine.read.text("/etc/passwd") or "", re.MULTILINE)
    return found[1] if found else ""


def _groups_of(machine: Machine, name: str) -> list[int]:
    rows = [line.split(":") for line in (machine.read.text("/etc/group") or "").splitlines()]
    return [int(row[2]) for row in rows if len(row) >= 4 and _NUMBER.fullmatch(row[2]) and name in row[3].split(",")]
