"""The files that a release needs, checked before anything is stopped: model file and digest, container image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from archonctl.deployment.schema import ModelRef
from archonctl.errors import HostRefusal, ModelError
from archonctl.service.engine_account import EngineAccount
from archonctl.service.events import Say
from archonctl.service.preflight import check_model
from archonctl.service.state import atomic_write

RUNTIMES = ("podman", "docker")
_BLOCK_BYTES = 8 << 20
_ANSWER_S = 60.0


def check_artefact(model: ModelRef, memo: Path, say: Say) -> tuple[str, ...]:
    """The model file is there, of the declared size and digest; returns what could not be checked.

    Hashing 100 GiB takes minutes, so ``memo`` keeps which file (device, inode, size, times) had which digest; a file
    that anyone has touched since is hashed anew. Raises ModelError as ``check_model``, and ``model-digest-differs``.
    """
    if not model.path.startswith("/"):
        return (f"model {model.path}: a name of a repository; the engine finds its files itself, unchecked",)
    check_model(model.path, model.bytes)
    if model.sha256 is None:
        return ("model.sha256 is not declared: the file's contents are not checked",)
    path = Path(model.path)
    if not path.is_file():
        return (f"{model.path} is no single file: model.sha256 is not checked",)
    found = _known(path, memo) or _hashed(path, memo, say)
    if found != model.sha256:
        why = f"its sha256 is {found}, declared is {model.sha256}"
        raise ModelError("model-digest-differs", why, where=model.path, hint="another file than the declared one")
    return ()


def _identity(path: Path) -> list[int]:
    info = path.stat()
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _known(path: Path, memo: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        value = json.loads(memo.read_bytes())
        if value["path"] == str(path) and value["identity"] == _identity(path):
            return str(value["sha256"])
    return ""


def _hashed(path: Path, memo: Path, say: Say) -> str:
    identity, digest, done = _identity(path), hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                done += len(block)
                say("preflight", f"sha256 of {path.name}", done / max(identity[2], 1), progress=True)
    except OSError as err:
        raise ModelError("model-unreadable", err.strerror or str(err), where=str(path)) from None
    found = digest.hexdigest()
    value = {"schema": "archonctl.artefact/1", "path": str(path), "identity": identity, "sha256": found}
    with contextlib.suppress(OSError):  # not remembered: it is hashed again next time
        atomic_write(memo, json.dumps(value).encode() + b"\n", 0o644)
    return found


def image_of(argv: Sequence[str], image: str, account: EngineAccount | None = None) -> str:
    """The local id of the image that a container command runs; empty where the command runs no container.

    ``account`` is whom the unit runs as: a rootless podman keeps images of its own for every account.

    Raises HostRefusal ``image-missing`` where it is not here (it would be pulled while nothing serves), and
    ``image-unreadable`` where the runtime gives no answer.
    """
    if not image or PurePosixPath(argv[0]).name not in RUNTIMES:
        return ""
    command = [argv[0], "image", "inspect", "--format", "{{.Id}}", image]
    code, out, said = _ask(command, account)
    if code == 0 and out:
        return out
    if "no such image" in said.lower() or "not known" in said.lower():
        hint = f"{_as(account)}{argv[0]} pull {image}"
        why = f"the image is not on this machine{_for(account)}: {image}"
        raise HostRefusal("image-missing", why, where="engine.image", hint=hint)
    raise HostRefusal("image-unreadable", f"{' '.join(command[:3])}: {said or f'exit {code}'}", where="engine.image")


def container_image(argv: Sequence[str], account: EngineAccount | None = None) -> str:
    """The image id that the running container of this command has; empty where that cannot be told."""
    if PurePosixPath(argv[0]).name not in RUNTIMES or "--name" not in argv:
        return ""
    name = argv[argv.index("--name") + 1]
    code, out, _said = _ask([argv[0], "container", "inspect", "--format", "{{.Image}}", name], account)
    return out if code == 0 else ""


def _as(account: EngineAccount | None) -> str:
    ids = account is not None and not account.is_root
    return f"sudo -u {account.name} env HOME={account.home} " if account is not None and ids else ""


def _for(account: EngineAccount | None) -> str:
    return f" for {account.name} ({account.home})" if _as(account) and account is not None else ""


def _ask(command: Sequence[str], account: EngineAccount | None) -> tuple[int, str, str]:
    options: Mapping[str, Any] = {"env": {**os.environ, "LC_ALL": "C"}}
    if account is not None and not account.is_root and os.geteuid() == 0:
        if not account.home.is_dir():
            return 125, "", f"no such image: {account.home} is not there yet"
        options = account.options
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_S,
            check=False,
            **options,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        return 125, "", f"{type(err).__name__} {err}"
    return done.returncode, done.stdout.strip(), " ".join(done.stderr.split())[:500]
