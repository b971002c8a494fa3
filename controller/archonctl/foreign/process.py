"""A running process as the command that started it. Reads /proc below an injectable root."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

from archonctl.errors import UsageError
from archonctl.foreign.words import Command, Setting, Unread, Word

_LIMIT_BYTES = 1 << 20
PREFIXES = (
    "CUDA_", "HIP_", "ROCR_", "HSA_", "GPU_", "NCCL_", "RCCL_", "LLAMA_", "GGML_", "VLLM_", "SGLANG_", "SGL_",
    "RADIANCE_", "HF_", "TORCH_", "PYTORCH_", "OMP_", "TRITON_", "NVIDIA_", "AITER_",
)  # fmt: skip
"""Variables that shape an engine. The rest of a process's environment is its login, its shell and its unit."""


def read_process(pid: int, root: Path = Path("/")) -> tuple[Command, str, tuple[Unread, ...]]:
    """Command and user of a running process; what of it cannot be read is named.

    Raises UsageError ``process-unreadable`` where there is none, or its command line is not ours to read.
    """
    folder = root / "proc" / str(pid)
    unread: list[Unread] = []
    words = [part.decode("utf-8", "replace") for part in _read(folder / "cmdline").split(b"\0")[:-1]]
    if not words:
        raise UsageError("process-unreadable", f"process {pid} has no command line: a kernel thread, or it is ending")
    words[0] = _program(folder, words[0])
    env: list[Setting] = []
    try:
        variables = _read(folder / "environ").split(b"\0")
    except UsageError:
        variables = []
        unread.append(Unread(f"/proc/{pid}/environ", "not ours to read: ask as the same user, or as root"))
    for variable in variables:
        name, equals, value = variable.decode("utf-8", "replace").partition("=")
        if equals and name.startswith(PREFIXES):
            env.append(Setting(name, Word(value)))
    unread += _place(folder, pid)
    return Command(tuple(map(Word, words)), tuple(env), f"process {pid}"), _user(folder), tuple(unread)


def _program(folder: Path, name: str) -> str:
    """The whole path of the program: a bare name was looked up on a PATH that is not ours."""
    try:
        path = os.readlink(folder / "exe")  # noqa: PTH115
    except OSError:
        return name
    same = Path(path).name == Path(name).name
    return path.removesuffix(" (deleted)") if same and not name.startswith("/") else name


def _place(folder: Path, pid: int) -> list[Unread]:
    try:
        cgroup = _read(folder / "cgroup").decode("utf-8", "replace")
    except UsageError:
        return []
    if re.search(r"(docker|libpod|crio|cri-containerd)[-/]", cgroup):
        reason = "it runs in a container: image and mounts are not to be seen from here; import what starts that"
        return [Unread(f"process {pid}", reason)]
    unit = re.search(r"/([^/\n]+\.service)$", cgroup, re.MULTILINE)
    if unit:
        return [Unread(unit[1][:80], "it is run by this unit, whose other settings are not read: import the unit")]
    return []


def _user(folder: Path) -> str:
    found = re.search(r"^Uid:\s+([0-9]+)", _read(folder / "status").decode("utf-8", "replace"), re.MULTILINE)
    if found is None or found[1] == "0":
        return ""
    try:
        return pwd.getpwuid(int(found[1])).pw_name
    except KeyError:
        return found[1]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LIMIT_BYTES)
    except OSError as err:
        reason = err.strerror or str(err)
        raise UsageError("process-unreadable", f"cannot read it: {reason}", where=str(path)) from None
