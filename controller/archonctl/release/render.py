"""From a declaration and its command line to the files that run it: rendered once, used by all that start it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from archonctl import __version__
from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.remote import refuse_remote
from archonctl.deployment.schema import Endpoint
from archonctl.deployment.secrets import has_url_password, is_secret_flag, is_secret_variable
from archonctl.deployment.tiers import Tiers
from archonctl.engines import adapter
from archonctl.engines.base import CommandLine
from archonctl.errors import DeclarationError
from archonctl.host.load import load_host
from archonctl.release.containers import container_files
from archonctl.release.env_file import write_env
from archonctl.release.preflight_file import PREFLIGHT_FILE
from archonctl.release.quoting import start_script
from archonctl.release.unit import STOP_S, drop_in_text, load_timeout_s, settings, unit_text
from archonctl.release.values import MANIFEST, SCHEMA, Release, ReleaseFile, to_json

INSTALLED = Path("/var/lib/archon")
"""Where the system's endpoints lie: ``archon@.service`` starts ``/var/lib/archon/NAME/releases/current``."""

STOP_MARGIN_S = 30
"""What systemd waits longer than the container runtime, which ends the engine itself when its grace is over."""

ENV_FILE = "engine.env"
ARGV_FILE = "argv.json"
START_FILE = "start"
DROP_IN_FILE = "drop-in.conf"
DECLARATION_FILE = "declaration.json"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def command_of(loaded: LoadedEndpoint) -> CommandLine:
    """The engine's command line, errors placed at the line of the declaration. Raises DeclarationError."""
    with loaded.placing():
        return adapter(loaded.endpoint.engine.kind).command(_with_groups(loaded))


def _with_groups(loaded: LoadedEndpoint) -> Endpoint:
    """The endpoint with the host's own numbers of its device groups, where a container needs them."""
    endpoint = loaded.endpoint
    if not endpoint.engine.image or endpoint.container.groups:
        return endpoint
    groups = tuple(sorted(set(load_host(loaded).groups.values())))
    return endpoint.model_copy(update={"container": endpoint.container.model_copy(update={"groups": groups})})


def render_release(
    loaded: LoadedEndpoint,
    command: CommandLine,
    plan_digest: str = "",
    home: Path | None = None,
    preflight: str = "",
    *,
    own_manager: bool = False,
) -> Release:
    """The release of one endpoint. Writes nothing.

    ``preflight`` is the text of ``preflight.env``, where a plan gave one (``preflight_text``). ``home`` is the absolute
    folder where the files will lie when the unit starts (default: where the template unit looks); ``own_manager`` says
    that it is a user's own unit. Raises
    DeclarationError ``endpoint-name``, ``release-inline-secret``, ``env-value-unrepresentable``,
    ``argument-unrepresentable``, ``release-path-unsupported`` or ``declaration-bad-value``, and ModelError
    ``model-remote-only``.
    """
    name, endpoint = loaded.name, loaded.endpoint
    if not _NAME.fullmatch(name):
        message = f"the endpoint's name {name[:60]!a} cannot name a unit"
        hint = "rename the declaration: letters, digits, dot, dash and underscore, at most 100"
        raise DeclarationError("endpoint-name", message, where=str(loaded.path), hint=hint)
    refuse_remote(endpoint.model.path, "an engine is started with a model of this machine")
    _refuse_secrets(loaded, command)
    place = home or INSTALLED / name / "releases" / "current"
    start_s = start_seconds(loaded)
    lines = settings(
        user=endpoint.service.user,
        engine=endpoint.engine.kind,
        argv=command.argv or ("",),
        pinned=command.pinned,
        timeout_s=start_s,
        where=loaded.origins.get("service.user", ""),
        stop_s=max(STOP_S, command.container.stop_s + STOP_MARGIN_S) if command.container else STOP_S,
        model=endpoint.model.path,
        writes=_writes(endpoint, command),
        own_manager=own_manager,
    )
    unit_name = f"archon-{name}.service"
    texts = {
        ENV_FILE: write_env(command.env),
        START_FILE: start_script(command.argv, command.env),
        DROP_IN_FILE: drop_in_text(name, lines),
        unit_name: unit_text(name, command.argv, os.fspath(place / ENV_FILE), lines),
    }
    files = {
        ARGV_FILE: ReleaseFile(to_json(list(command.argv))),
        DECLARATION_FILE: ReleaseFile(to_json(_declaration(loaded))),
    }
    texts |= container_files(name, command, os.fspath(place / ENV_FILE), lines, start_s)
    if preflight:
        texts[PREFLIGHT_FILE] = preflight
    for file, text in texts.items():
        files[file] = ReleaseFile(text.encode("utf-8"), 0o755 if text.startswith("#!") else 0o644)
    files[MANIFEST] = ReleaseFile(to_json(_manifest(loaded, files, plan_digest)))
    return Release(name, os.fspath(place), unit_name, command.argv, dict(command.env), files, command.notes)


def start_seconds(loaded: LoadedEndpoint) -> int:
    """Seconds that a start may take."""
    return load_timeout_s(_model_bytes(loaded), loaded.endpoint.service.load_timeout_s)


def _writes(endpoint: Endpoint, command: CommandLine) -> list[str]:
    """What the engine may be told to write to: every argument and value but its program and its model."""
    read = {command.argv[0] if command.argv else "", endpoint.model.path}
    return [word for word in (*command.argv, *command.env.values()) if word not in read]


def _manifest(loaded: LoadedEndpoint, files: dict[str, ReleaseFile], plan_digest: str) -> dict[str, object]:
    engine = loaded.endpoint.engine
    return {
        "schema": SCHEMA,
        "endpoint": loaded.name,
        "archonctl": __version__,
        "engine": {"kind": engine.kind, "version": engine.version, "image": engine.image},
        "plan_sha256": plan_digest,
        "files": {
            name: {"sha256": file.sha256, "bytes": len(file.content), "mode": f"{file.mode:04o}"}
            for name, file in files.items()
        },
    }


def _declaration(loaded: LoadedEndpoint) -> dict[str, object]:
    """What was in force, and where each value came from; the file without its folder, so that bytes do not depend on
    the directory that archonctl was called from.

    ``[kubernetes]`` is none of it: how many replicas there are, and on which nodes, is no other release. Nor is a
    table that nobody declared, so that what is installed stays the same release when archonctl learns one more.
    """
    endpoint = loaded.endpoint
    left_out = {"kubernetes"} | ({"tiers"} if endpoint.tiers == Tiers() else set())
    return {
        "schema": "archonctl.declaration/1",
        "source": str(loaded.path),
        "declared": endpoint.model_dump(mode="json", exclude=left_out),
        "origins": {
            key: _short(origin, loaded.path.name)
            for key, origin in loaded.origins.items()
            if key.partition(".")[0] not in left_out
        },
    }


def _short(origin: str, file: str) -> str:
    line = re.fullmatch(r".*:([0-9]+)", origin)
    return f"{file}:{line[1]}" if line and not origin.startswith(("flag ", "environment ")) else origin


def _model_bytes(loaded: LoadedEndpoint) -> int | None:
    """As declared, else the size of the file times the parts of a split one; None for folders and what is not there."""
    if loaded.endpoint.model.bytes is not None:
        return loaded.endpoint.model.bytes
    path = loaded.endpoint.model.path
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    parts = re.search(r"-00001-of-([0-9]{5})\.gguf$", path)
    return found.st_size * (int(parts[1]) if parts else 1) or None if stat.S_ISREG(found.st_mode) else None


def _refuse_secrets(loaded: LoadedEndpoint, command: CommandLine) -> None:
    """A release is kept for rollback and can be read by others, a command line by everyone: neither holds a secret."""
    engine = loaded.endpoint.engine
    for name, value in {**engine.env, **command.env}.items():
        if is_secret_variable(name, value):
            raise _secret(loaded, f"the variable {name}", f"engine.env.{name}")
    for flag in (*command.argv, *(f"--{knob}" for knob, value in engine.knobs.items() if value)):
        if is_secret_flag(flag):
            raise _secret(loaded, f"the argument of {flag.partition('=')[0]}", f"engine.knobs.{flag.lstrip('-')}")
    _refuse_url_passwords(loaded, command.argv)


def _refuse_url_passwords(loaded: LoadedEndpoint, argv: Iterable[str]) -> None:
    for number, word in enumerate(argv):
        if has_url_password(word):
            raise _secret(loaded, f"a password within a URL in argument {number}", "")


def _secret(loaded: LoadedEndpoint, what: str, key: str) -> DeclarationError:
    return DeclarationError(
        "release-inline-secret",
        f"{what} is a secret, and a release is written where others can read it",
        where=loaded.origins.get(key, str(loaded.path)),
        hint="put it into a file of its own and name that (service.api_key_file, or the engine's own token file)",
    )
