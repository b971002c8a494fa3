"""The real rooms behind ``up``: plan, checks, release, ledger and probe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from archonctl.deployment.load import LoadedEndpoint
from archonctl.engines import adapter
from archonctl.ledger.reader import LedgerReader
from archonctl.ledger.values import BootLedger
from archonctl.plan.build import plan_endpoint
from archonctl.probe.run import probe_endpoint, quiet
from archonctl.probe.values import Depth, Leg, Progress, Verdict
from archonctl.release.render import command_of, render_release
from archonctl.release.store import CURRENT, write_release
from archonctl.service.preflight import check_model, check_port, resolve_binary, split_listen
from archonctl.service.values import Prepared, Reader, Rooms


def real(
    depth: Depth = "full", deadline: float | None = None, on_progress: Callable[[Progress], None] = quiet
) -> Rooms:
    """The rooms as they are. ``depth`` and ``deadline`` (seconds a capacity leg) are the probe's."""

    def probe(loaded: LoadedEndpoint, ledger: BootLedger, say: Callable[[str, float | None], None]) -> Verdict:
        def tell(leg: Leg) -> None:
            say(f"{leg.id}: {leg.status}", None)

        endpoint = loaded.endpoint
        api = adapter(endpoint.engine.kind).api
        return probe_endpoint(
            endpoint, api, ledger, legs=depth, deadline=deadline, on_progress=on_progress, on_leg=tell
        )

    return Rooms(
        plan=plan_endpoint,
        check=check,
        prepare=prepare,
        reader=reader,
        health_path=lambda loaded: adapter(loaded.endpoint.engine.kind).api.health,
        probe=probe,
    )


def check(loaded: LoadedEndpoint) -> int | None:
    """The program, the port, the model file, in this order; returns the model's bytes where they can be told.

    Raises HostRefusal or ModelError, see ``preflight``, and DeclarationError for a command that cannot be rendered.
    """
    endpoint = loaded.endpoint
    resolve_binary(command_of(loaded).argv[0])
    check_port(*split_listen(endpoint.service.listen))
    if not endpoint.model.path.startswith("/"):
        return endpoint.model.bytes  # the name of a repository: the engine finds the files itself
    return check_model(endpoint.model.path, endpoint.model.bytes)


def prepare(loaded: LoadedEndpoint, releases: Path) -> Prepared:
    """Render the release and store it. Raises DeclarationError or HostRefusal, see ``archonctl.release``."""
    release = render_release(loaded, command_of(loaded), home=releases / CURRENT)
    written = write_release(release, releases)
    return Prepared(release.argv, release.env, release.unit_name, release.unit_text, os.fspath(written.path))


def reader(loaded: LoadedEndpoint) -> Reader:
    """A reader for the log of the declared engine."""
    return LedgerReader(loaded.endpoint.engine.kind, loaded.endpoint.engine.version)
