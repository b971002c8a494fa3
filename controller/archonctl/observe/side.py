"""One release with everything that is known of it: its files, a plan of it made now, its latest verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from archonctl.deployment.schema import Endpoint
from archonctl.errors import ArchonError, NoEvidence
from archonctl.plan.values import Plan
from archonctl.probe.stored import Stored
from archonctl.release.load import StoredRelease
from archonctl.service.history import History
from archonctl.service.installed import Installed, argv_of, env_of
from archonctl.service.plan_here import plan_here
from archonctl.service.verdict_store import latest


@dataclass(frozen=True)
class Side:
    """A release of an endpoint. ``no_plan`` and ``no_verdict`` say why there is none; empty where there is one."""

    name: str
    digest: str
    folder: Path
    endpoint: Endpoint
    argv: tuple[str, ...]
    env: Mapping[str, str]
    plan: Plan | None = None
    no_plan: str = ""
    verdict: Stored | None = None
    no_verdict: str = ""
    verdict_file: Path | None = None


def side_of(installed: Installed, digest: str) -> Side:
    """Raises HostRefusal ``release-missing``, ``release-damaged``; a plan or a verdict that is not there is said."""
    release = installed.stored(digest)
    plan, no_plan = planned(release)
    verdict, no_verdict, file = None, "", None
    try:
        verdict, found = latest(installed.folder, installed.name, digest)
        file = found.path
    except ArchonError as err:
        no_verdict = err.message
    return Side(
        installed.name,
        digest,
        release.folder,
        release.loaded.endpoint,
        argv_of(release),
        env_of(release),
        plan,
        no_plan,
        verdict,
        no_verdict,
        file,
    )


def planned(release: StoredRelease) -> tuple[Plan | None, str]:
    """The plan of what a release declares, by the laws and the machine of now; else why there is none."""
    try:
        return plan_here(release.loaded), ""
    except (ArchonError, OSError) as err:
        return None, f"no plan can be made of it now: {getattr(err, 'message', '') or err}"


def before(history: History, digest: str) -> str:
    """The release that ran before this one. Raises NoEvidence ``release-before-missing``."""
    records = list(history.records)
    for number in reversed(range(len(records))):
        record = records[number]
        if record.release != digest:
            continue
        if record.before and record.before != digest:
            return record.before
        if earlier := [each.release for each in records[:number] if each.release not in ("", digest)]:
            return earlier[-1]
    why = f"the history knows no release before {digest or 'the current one'}"
    raise NoEvidence("release-before-missing", why, hint="name both: archonctl compare NAME@A NAME@B")
