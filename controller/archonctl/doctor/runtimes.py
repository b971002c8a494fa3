"""Container runtimes as they tell of themselves: ``docker info`` and ``podman info``, each asked once."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from typing import Literal

Name = Literal["podman", "docker"]
NAMES: tuple[Name, ...] = ("podman", "docker")
ANSWER_S = 3.0

_FORMAT = {"podman": "json", "docker": "{{json .}}"}


@dataclass(frozen=True, slots=True)
class Runtime:
    """One runtime. ``program`` is empty where it is not installed; ``fault`` says why it gave no answer."""

    name: Name
    program: str = ""
    version: str = ""
    cgroup_driver: str = ""
    cgroup_version: str = ""
    runtimes: tuple[str, ...] = ()
    """OCI runtimes by name (``nvidia`` is the one that brings cards in)."""
    rootless: bool = False
    fault: str = ""


def ask(name: Name) -> Runtime:
    """Ask one runtime. Raises nothing."""
    import subprocess

    program = shutil.which(name) or ""
    if not program:
        return Runtime(name)
    try:
        done = subprocess.run(
            [program, "info", "--format", _FORMAT[name]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return Runtime(name, program, fault=f"{name} info did not answer within {ANSWER_S:g} s")
    except OSError as err:
        return Runtime(name, program, fault=f"{program}: {err.strerror or err}")
    return parse(name, program, done.returncode, done.stdout, done.stderr)


def parse(name: Name, program: str, code: int, out: str, said: str) -> Runtime:
    """What was printed, as a value; whatever was printed."""
    try:
        value = json.loads(out)
    except (ValueError, RecursionError):
        value = None
    words = " ".join(said.split())[:300]
    if code != 0 or not isinstance(value, dict):
        return Runtime(name, program, fault=words or f"{name} info ended with {code} and printed no JSON")
    if name == "docker":
        version = _text(value, "ServerVersion")
        fault = "" if version else words or "the daemon tells no version"
        names = value.get("Runtimes")
        options = value.get("SecurityOptions")
        return Runtime(
            name, program, version, _text(value, "CgroupDriver"), _text(value, "CgroupVersion"),
            tuple(sorted(map(str, names))) if isinstance(names, dict) else (),
            "name=rootless" in (options if isinstance(options, list) else ()), fault,
        )  # fmt: skip
    host, release = _table(value, "host"), _table(value, "version")
    return Runtime(
        name, program, _text(release, "Version"), _text(host, "cgroupManager"),
        _text(host, "cgroupVersion").removeprefix("v"), (_text(_table(host, "ociRuntime"), "name"),),
        _table(host, "security").get("rootless") is True,
    )  # fmt: skip


def _table(value: dict[str, object], key: str) -> dict[str, object]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _text(value: dict[str, object], key: str) -> str:
    found = value.get(key)
    return found[:100] if isinstance(found, str) else ""
