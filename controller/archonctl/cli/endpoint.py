"""From the words on the command line to a loaded endpoint."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from archonctl.cli.output import Output
from archonctl.deployment.find import PREFERRED, VARIABLE, find_endpoint
from archonctl.deployment.load import LoadedEndpoint, load_endpoint, parse_setting
from archonctl.errors import HostRefusal, UsageError

if TYPE_CHECKING:
    from archonctl.service.installed import Installed
    from archonctl.service.place import Place

_FLAGS = {
    "seqs": "contract.seqs",
    "len": "contract.len",
    "kv_dtype": "contract.kv_dtype",
    "margin": "contract.margin",
    "engine_version": "engine.version",
}


def endpoint_of(args: Namespace, out: Output) -> LoadedEndpoint:
    """The endpoint that the arguments mean; says on stderr when it was chosen without being named."""
    return loader_of(args, out)({})


def overrides(args: Namespace) -> list[str]:
    """The options given that would change a declaration."""
    flags = [f"--{name.replace('_', '-')}" for name in _FLAGS if getattr(args, name) is not None]
    return flags + (["--set"] if args.set else [])


def loader_of(args: Namespace, out: Output) -> Callable[[Mapping[str, str]], LoadedEndpoint]:
    """Loads what the arguments mean, with the values of more dotted keys over them; says as ``endpoint_of``."""
    path, said = find_endpoint(args.endpoint, os.environ, _here())
    if said:
        out.talk(f"archonctl: {said}")
    flags: dict[str, object] = {
        key: getattr(args, name) for name, key in _FLAGS.items() if getattr(args, name) is not None
    }
    flags |= dict(parse_setting(text) for text in args.set)
    place = Path(given) if (given := getattr(args, "place", "")) else None
    return lambda more: load_endpoint(path, {**flags, **more}, os.environ, place=place)


def installed_of(word: str | None, out: Output, *, user: bool = False) -> Installed:
    """The installed endpoint that a name or a declaration's path means; its declaration need not be there any more.

    Raises UsageError ``endpoint-not-installed``, or as ``find_endpoint``.
    """
    from archonctl.service.installed import Installed, installed_names

    root, where = Path("/"), place_of(user=user)
    names = installed_names(root, where)
    chosen = word or os.environ.get(VARIABLE, "")
    if not chosen and names:
        preferred = [name for name in names if name == PREFERRED] or names
        if len(preferred) == 1:
            out.talk(f"archonctl: endpoint {preferred[0]} (of {len(names)} installed)")
            return Installed(preferred[0], root, where)
    if chosen in names:
        return Installed(chosen, root, where)
    path, _said = find_endpoint(chosen or None, os.environ, _here())
    if path.stem not in names:
        known = ", ".join(names) or "none"
        why = f"{path.stem} is not installed on this machine"
        raise UsageError("endpoint-not-installed", why, hint=f"archonctl apply {path.stem}; installed: {known}")
    return Installed(path.stem, root, where)


def guarded_of(args: Namespace, out: Output) -> tuple[LoadedEndpoint, Installed | None]:
    """What a name means that is to be guarded: the release that runs where it is installed, else its declaration."""
    from archonctl.service.installed import Installed, installed_names

    where, word = place_of(user=args.user), args.endpoint or ""
    if word in installed_names(Path("/"), where):
        installed = Installed(word, Path("/"), where)
        if digest := installed.current():
            return installed.stored(digest).loaded, installed
    return endpoint_of(args, out), None


def state_folder(word: str | None, out: Output, environ: Mapping[str, str]) -> tuple[str, Path]:
    """Name and state folder of the endpoint that a word means: one that has a folder, else by its declaration."""
    from archonctl.service.state import EndpointState, state_dir

    chosen = word or environ.get(VARIABLE, "")
    root = state_dir(environ)
    if chosen and "/" not in chosen and (root / chosen).is_dir():
        return chosen, EndpointState(root, chosen).folder
    path, said = find_endpoint(chosen or None, environ, _here())
    if said:
        out.talk(f"archonctl: {said}")
    return path.stem, EndpointState(root, path.stem).folder


def all_installed(words: list[str], out: Output, *, user: bool = False) -> list[Installed]:
    """The named installed endpoints, else all of them. Raises as ``installed_of``."""
    from archonctl.service.installed import Installed, installed_names

    root, where = Path("/"), place_of(user=user)
    named = [installed_of(word, out, user=user) for word in words]
    return named or [Installed(name, root, where) for name in installed_names(root, where)]


def recorded_of(word: str | None, out: Output, *, user: bool = False) -> Installed:
    """As ``installed_of``, and also what only ``up`` has started: whatever there is a record of."""
    known = {each.name: each for each in all_recorded(out, user=user)}
    chosen = word or os.environ.get(VARIABLE, "")
    if not chosen and (found := known.get(PREFERRED) or (next(iter(known.values())) if len(known) == 1 else None)):
        out.talk(f"archonctl: endpoint {found.name} (of {len(known)} recorded)")
        return found
    return known.get(chosen) or known.get(Path(chosen).stem) or installed_of(word, out, user=user)


def all_recorded(out: Output, *, user: bool = False) -> list[Installed]:
    """Every installed endpoint, and every one that ``up`` keeps releases of; those of a set $ARCHON_STATE_DIR first.

    A home that is somebody else's (``sudo -u``, without ``-H``) keeps nothing of this user's.
    """
    from dataclasses import replace

    from archonctl.service.installed import Installed, installed_names
    from archonctl.service.state import state_dir

    found = {each.name: each for each in all_installed([], out, user=user)}
    where = replace(place_of(user=user), state=state_dir(os.environ))
    try:
        names = installed_names(Path("/"), where)
    except HostRefusal:
        if os.environ.get("ARCHON_STATE_DIR"):
            raise
        names = []
    for name in names:
        if name not in found or os.environ.get("ARCHON_STATE_DIR"):
            found[name] = Installed(name, Path("/"), where)
    return [found[name] for name in sorted(found)]


def place_of(*, user: bool) -> Place:
    """The machine's endpoints, whatever the environment says, or this user's. Raises UsageError ``user-is-root``."""
    from archonctl.service.place import SYSTEM, Place

    if user and os.geteuid() == 0:
        why = "--user is for an ordinary user's own service manager, and this is root"
        raise UsageError("user-is-root", why, hint="leave out --user, or run it as that user in a session of theirs")
    return Place.of_user(os.environ) if user else SYSTEM


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError(
            "no-working-directory", "the current directory is gone", hint="cd to one that is there"
        ) from None
