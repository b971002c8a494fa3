"""What can be known before an engine is started: its program, its port, its model file.

Cheap and without effects. The order is fixed: program, port, model; the first that fails is raised.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import stat
import struct
from pathlib import Path

from archonctl.errors import HostRefusal, ModelError
from archonctl.service import procfs

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# e_machine in elf(5), as the kernel's uname names the machine.
_MACHINES = {
    3: "i386",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    21: "ppc64le",
    22: "s390x",
    258: "loongarch64",
}

_SPLIT = re.compile(r"-00001-of-([0-9]{5})\.gguf$")


def resolve_binary(name: str, path: str = DEFAULT_PATH) -> str:
    """The program's absolute path, checked to be something that this machine can execute.

    A name without a slash is looked up in ``path``; a relative one from the working folder. Raises HostRefusal
    ``engine-binary-missing`` or ``engine-binary-unusable``.
    """
    if not name or "\0" in name:
        raise HostRefusal("engine-binary-missing", "no engine program is declared", hint="set engine.binary")
    found = Path(name).absolute() if "/" in name else Path(shutil.which(name, path=path) or name)
    try:
        info = found.stat() if found.is_absolute() else None
    except (FileNotFoundError, NotADirectoryError):
        info = None
    except OSError as err:
        raise _unusable(found, f"may not be looked at: {err.strerror or err}", "") from None
    if info is None:
        broken = f"; it is a link to {found.readlink()}" if os.path.islink(found) else ""  # noqa: PTH114 - never raises
        looked = "" if "/" in name else f" in {path}"
        why = f"no such program{looked}{broken}"
        hint = "correct engine.binary" if "/" in name else f"install {name}, or set engine.binary to its path"
        raise HostRefusal("engine-binary-missing", why, where=name, hint=hint)
    if stat.S_ISDIR(info.st_mode):
        raise _unusable(found, "is a directory", "name the program inside it")
    if not stat.S_ISREG(info.st_mode):
        raise _unusable(found, "is not a regular file", "")
    if not os.access(found, os.X_OK):
        raise _unusable(found, f"is not executable (mode {stat.S_IMODE(info.st_mode):04o})", f"chmod +x {found}")
    _check_format(found)
    return str(found)


def _unusable(path: Path, why: str, hint: str) -> HostRefusal:
    return HostRefusal("engine-binary-unusable", why, where=str(path), hint=hint)


def _check_format(path: Path) -> None:
    """Refuse what execve would refuse with ENOEXEC or a missing interpreter (binfmt_elf, binfmt_script)."""
    if not os.access(path, os.R_OK):
        return  # executable without being readable is legal; the kernel decides
    head = _head(path, 256)
    if head.startswith(b"#!"):
        interpreter = head[2:].split(b"\n")[0].split()[:1]
        if not interpreter or not os.access(interpreter[0], os.X_OK):
            name = interpreter[0].decode("utf-8", "replace") if interpreter else "nothing"
            raise _unusable(path, f"is a script for {name}, which cannot be executed", "")
        return
    if not head.startswith(b"\x7fELF") or len(head) < 20:
        kind = "is empty" if not head else "is neither an ELF program nor a script with #!"
        raise _unusable(path, kind, "was the download cut short, or is it an archive or an error page?")
    ours = _elf_machine(_head(Path("/proc/self/exe"), 20))
    theirs = _elf_machine(head)
    if ours is not None and theirs != ours and not (ours == 62 and theirs == 3):
        name = _MACHINES.get(theirs or 0, f"machine {theirs}")
        raise _unusable(path, f"is built for {name}, this machine is {os.uname().machine}", "")


def _head(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _elf_machine(head: bytes) -> int | None:
    if len(head) < 20:
        return None
    return int(struct.unpack((">" if head[5] == 2 else "<") + "H", head[18:20])[0])


def split_listen(listen: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port``. Raises HostRefusal ``listen-unavailable`` for a port outside 1 to 65535."""
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise HostRefusal("listen-unavailable", f"port {port or '(none)'} is not in 1 to 65535", where="service.listen")
    return host.strip("[]"), int(port)


def connect_host(host: str) -> str:
    """Where a client on this machine reaches a server that listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1", "": "127.0.0.1"}.get(host, host)


def check_port(host: str, port: int) -> None:
    """Bind the address for a moment, as the engine will. Raises HostRefusal ``port-in-use`` or ``listen-unavailable``.

    SO_REUSEADDR is set, so that connections of an earlier engine in TIME_WAIT are no obstacle (they are
    none to the engine either); SO_REUSEPORT is not, so that a listener that has it is one.
    """
    try:
        info = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as err:
        raise HostRefusal("listen-unavailable", f"cannot resolve {host!r}: {err}", where="service.listen") from None
    with socket.socket(info[0], socket.SOCK_STREAM) as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(info[4])
            attempt.listen(1)
        except OSError as err:
            if err.errno == errno.EADDRINUSE:
                raise _in_use(port) from None
            raise HostRefusal(
                "listen-unavailable",
                f"cannot listen on {host}:{port}: {err.strerror}",
                where="service.listen",
                hint="ports below 1024 need a privilege"
                if err.errno == errno.EACCES
                else "is it an address of this machine?",
            ) from None


def _in_use(port: int) -> HostRefusal:
    holders = procfs.listeners(port)
    who = " and ".join(map(str, holders)) or "a process that cannot be seen from here"
    return HostRefusal(
        "port-in-use",
        f"port {port} is held by {who}",
        where="service.listen",
        hint="stop it, or choose another port with --set service.listen=HOST:PORT",
    )


def check_model(path: str, declared_bytes: int | None) -> int:
    """The size of the model file in bytes; of all files, if it is a folder or the first part of a split GGUF.

    Raises ModelError ``model-missing``, ``model-unreadable``, or ``model-bytes-differ`` if the size is not the
    declared one.
    """
    where = Path(path)
    try:
        found = where.stat()
        actual = sum(part.stat().st_size for part in model_parts(where)) if is_many(where) else found.st_size
    except FileNotFoundError:
        raise ModelError("model-missing", "no such file", where=path, hint="set model.path") from None
    except OSError as err:
        raise ModelError("model-unreadable", err.strerror or str(err), where=path) from None
    if not os.access(where, os.R_OK):
        raise ModelError("model-unreadable", "may not be read by this user", where=path)
    if declared_bytes is not None and actual != declared_bytes:
        raise ModelError(
            "model-bytes-differ",
            f"{actual:,} bytes, {declared_bytes:,} declared ({actual - declared_bytes:+,})",
            where=path,
            hint="a download cut short, or another file than the declared one",
        )
    return actual


def is_many(path: Path) -> bool:
    return path.is_dir() or _SPLIT.search(path.name) is not None


def model_parts(path: Path) -> list[Path]:
    """The files of a folder, or of a split GGUF (llama.cpp names them NAME-00001-of-00003.gguf)."""
    if path.is_dir():
        return [file for file in path.rglob("*") if file.is_file()]
    stem, _, total = path.name.partition("-00001-of-")
    return [path.with_name(f"{stem}-{number:05d}-of-{total}") for number in range(1, int(total[:5]) + 1)]
