"""A plan kept in a file, so that what was reviewed is what is applied, or nothing is.

``archonctl plan --out FILE`` writes down the declaration in force, the verdict, and every fact that either stood on;
``archonctl apply FILE`` takes the declaration from there, looks at the same facts again and refuses if one is not as
it was. What is free at a moment is not among them: ``apply`` judges that anew.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from archonctl import __version__
from archonctl.deployment.checks import walk_leaves
from archonctl.deployment.keys import dotted
from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.deployment.schema import Endpoint
from archonctl.errors import ArchonError, DeclarationError, GateRefusal, HostRefusal
from archonctl.host.load import load_host
from archonctl.host.save import profile_text
from archonctl.plan.as_json import plan_json
from archonctl.plan.values import Plan
from archonctl.release.disk import read_plain, sync_folder, write_file
from archonctl.release.store import DIGEST_CHARS
from archonctl.release.values import ReleaseFile, to_json
from archonctl.service.apply_rooms import render
from archonctl.service.installed import Installed
from archonctl.service.place import Place
from archonctl.service.plan_here import plan_here
from archonctl.service.surroundings import file_digest, model_facts, program_facts

SCHEMA = "archonctl.saved-plan/1"

Facts = dict[str, str]

WORDS = {
    "archonctl": "the version of archonctl",
    "declaration": "the declaration's file",
    "host_profile": "the host profile's file",
    "manifest": "the model manifest's file",
    "host": "the host's cards, RAM and limits",
    "engine_version": "the engine's version",
    "program": "the engine's program, bytes and time of change (ns)",
    "model_bytes": "the model file, bytes",
    "model_mtime_ns": "the model file, changed at (ns)",
    "release": "the release that is rendered",
    "installed": "the release that is installed",
    "installed_user": "the release that is installed for the user",
    "verdict": "the plan's verdict",
}
"""Every fact that a saved plan stands on, and what it is called."""


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan file as it was read: the declaration that was judged, and what its verdict stood on."""

    path: Path
    loaded: LoadedEndpoint
    facts: Facts


class StalePlan(GateRefusal):
    """Something that the plan stood on is not as it was; the tail has a line for each."""

    def __init__(self, saved: SavedPlan, differences: tuple[str, ...]) -> None:
        count = f"{len(differences)} of the things that the plan stood on are" if differences[1:] else "one thing is"
        hint = f"look at it anew: archonctl plan {saved.loaded.path} --out {saved.path}"
        super().__init__("plan-stale", f"{count} not as it was: {differences[0]}", where=str(saved.path), hint=hint)
        self.tail = differences[1:]


def save_plan(loaded: LoadedEndpoint, plan: Plan, path: Path, environ: Mapping[str, str]) -> None:
    """Write the plan to ``path``, whole or not at all; an earlier plan there is replaced.

    Raises HostRefusal ``saved-plan-not-written`` where that fails or something else lies there, and DeclarationError
    as ``render_release``.
    """
    if path.exists() and not _is_plan(path):
        hint = "give another name, or remove it first"
        raise HostRefusal("saved-plan-not-written", "what lies there is no saved plan", where=str(path), hint=hint)
    value = {
        "schema": SCHEMA,
        "endpoint": loaded.name,
        "source": str(loaded.path),
        "declared": loaded.endpoint.model_dump(mode="json"),
        "origins": dict(loaded.origins),
        "facts": _facts(loaded, plan, environ),
        "plan": plan_json(plan),
    }
    try:
        write_file(path, ReleaseFile(to_json(value)))
        sync_folder(path.parent)
    except OSError as err:
        raise HostRefusal("saved-plan-not-written", err.strerror or str(err), where=str(path)) from None


def read_saved_plan(path: Path) -> SavedPlan:
    """What ``save_plan`` wrote. Raises DeclarationError ``saved-plan-invalid``."""
    try:
        value = json.loads(read_plain(path))
        schema = value["schema"]
        if schema != SCHEMA:
            raise _invalid(path, f"its schema is {str(schema)[:60]!a}, expected {SCHEMA}")
        endpoint, source = Endpoint.model_validate(value["declared"]), Path(str(value["source"]))
        origins = {str(key): str(origin) for key, origin in dict(value["origins"]).items()}
        facts = {str(key): str(fact) for key, fact in dict(value["facts"]).items()}
        name = str(value["endpoint"])
    except OSError as err:
        raise _invalid(path, err.strerror or str(err)) from None
    except (ValueError, TypeError, KeyError, RecursionError, ValidationError) as err:
        raise _invalid(path, f"it is not as it was written ({type(err).__name__})") from None
    if missing := [WORDS[key] for key in ("archonctl", "declaration", "release", "verdict") if not facts.get(key)]:
        raise _invalid(path, f"it does not say {', '.join(missing)}")
    return SavedPlan(path, LoadedEndpoint(endpoint, name, source, source.parent.parent, origins), facts)


def is_plan_name(word: str | None) -> bool:
    """True for a word that can only mean a plan file: endpoints are meant by name or by .toml file."""
    return word is not None and word.endswith(".json")


def refuse_stale(saved: SavedPlan, environ: Mapping[str, str], *, user: bool = False) -> None:
    """Look at every fact again. Raises StalePlan (``plan-stale``, exit 4), and as ``plan_here`` and ``save_plan``."""
    plan = plan_here(saved.loaded)
    now = _facts(saved.loaded, plan, environ)
    mine, other = ("installed_user", "installed") if user else ("installed", "installed_user")
    release = now["release"]
    if user:  # a user's own unit is rendered otherwise
        place = Installed(saved.loaded.name, Path("/"), Place.of_user(environ))
        release = render(saved.loaded, place.home, plan, user=True).digest
    if now.get(mine) == release[:DIGEST_CHARS]:
        # this very plan was applied, perhaps half: the same again is no other plan
        now[mine] = saved.facts.get(mine, "")
    differs = [key for key in WORDS if key != other and saved.facts.get(key, "") != now.get(key, "")]
    if differs:
        raise StalePlan(saved, tuple(f"{WORDS[key]}: {_told(key, saved, now, environ)}" for key in differs))


def _told(key: str, saved: SavedPlan, now: Facts, environ: Mapping[str, str]) -> str:
    """What was and what is, in the terms of whoever has to look at it."""
    was, becomes = saved.facts.get(key, ""), now.get(key, "")
    if key == "host":
        return _host_lines(was, becomes)
    if key == "declaration" and (keys := _keys(saved, environ)):
        return keys
    return f"was {was or 'unknown'}, is {becomes or 'unknown'}"


def _host_lines(was: str, now: str) -> str:
    """The lines of the profile that went and came; its comments aside."""
    lines = difflib.ndiff(was.splitlines(), now.splitlines())
    return "; ".join(line.rstrip() for line in lines if line[:2] in ("- ", "+ ") and line[2:].strip())


def _keys(saved: SavedPlan, environ: Mapping[str, str]) -> str:
    """The keys of the declaration whose values differ; those that were given as options stay as they were given."""
    try:
        today = load_endpoint(saved.loaded.path, {}, environ).endpoint
    except ArchonError as err:
        return f"it cannot be read any more: {err}"
    was, now = _leaves(saved.loaded.endpoint), _leaves(today)
    given = {key for key, origin in saved.loaded.origins.items() if origin.startswith("flag ")}
    keys = sorted(key for key in {**was, **now} if was.get(key) != now.get(key) and key not in given)
    return "; ".join(f"{key} was {was.get(key, 'not there')}, is {now.get(key, 'not there')}" for key in keys)


def _leaves(endpoint: Endpoint) -> dict[str, object]:
    return {dotted(loc): value for loc, value in walk_leaves(endpoint.model_dump())}


def _facts(loaded: LoadedEndpoint, plan: Plan, environ: Mapping[str, str]) -> Facts:
    """What is known of it now; what cannot be told is not in it."""
    endpoint = loaded.endpoint
    system = Installed(loaded.name)
    facts: dict[str, str | int] = {
        "archonctl": __version__,
        "declaration": file_digest(str(loaded.path)) or "gone",
        "host_profile": file_digest(endpoint.host.profile),
        "manifest": file_digest(endpoint.model.manifest),
        "host": profile_text(load_host(loaded)),
        "engine_version": endpoint.engine.version,
        "program": program_facts((endpoint.engine.binary,) if endpoint.engine.binary else ()),
        **model_facts(endpoint.model.path),
        "release": render(loaded, system.home, plan).digest,
        "installed": _current(system),
        "installed_user": _current(Installed(loaded.name, Path("/"), Place.of_user(environ))),
        "verdict": plan.verdict,
    }
    return {key: str(fact) for key, fact in facts.items() if fact != ""}


def _current(installed: Installed) -> str:
    with contextlib.suppress(OSError, HostRefusal):
        return installed.current() or "none"
    return ""


def _is_plan(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        value = json.loads(read_plain(path))
        return isinstance(value, dict) and value.get("schema") == SCHEMA
    return False


def _invalid(path: Path, why: str) -> DeclarationError:
    hint = "archonctl plan ENDPOINT --out FILE writes one"
    return DeclarationError("saved-plan-invalid", f"this is no saved plan: {why}", where=str(path), hint=hint)
