"""``archonctl tiers``."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import TYPE_CHECKING

from archonctl.cli.endpoint import endpoint_of
from archonctl.cli.output import Output

if TYPE_CHECKING:
    from archonctl.deployment.load import LoadedEndpoint
    from archonctl.tiers.explain import Evidence


def run(args: Namespace, out: Output) -> int:
    """Explain placement, show what is staged, or clean it up."""
    return _plan(args, out) if args.action == "plan" else _staged(args, out)


def _staged(args: Namespace, out: Output) -> int:
    """Show what is staged; 3 where the declaration names no folder, or no folder is there."""
    from archonctl.cli.staged_text import staged_text
    from archonctl.errors import NoEvidence
    from archonctl.guard.tiering import specs_of, tiering_of
    from archonctl.tiers.stand import SCHEMA, stand_of
    from archonctl.tiers.store import StagingError, Store

    loaded = endpoint_of(args, out)
    tiering = tiering_of(loaded.endpoint)
    if tiering is None:
        why = "[tiers] names no folder (dram, disk), or the engine has tiers of its own"
        raise NoEvidence("tiers-not-declared", why, where=loaded.name, hint="archonctl tiers plan")
    cleaning = args.action == "clean"
    store = Store(specs_of(tiering, make=False), lock=cleaning)
    try:
        keep_s = args.older_than * 3600 if cleaning and args.older_than is not None else None
        removed = store.clean(keep_s=keep_s) if cleaning else ()
        places = stand_of(store)
    except StagingError as err:
        raise NoEvidence("tiers-not-readable", f"{err.trouble.value}: {err}", where=loaded.name) from None
    finally:
        store.close()
    if out.json:
        gone = [{"tier": tier, "file": name} for tier, name in removed]
        told = {"schema": SCHEMA, "endpoint": loaded.name, "places": [each.as_json() for each in places]}
        out.value({**told, "removed": gone})
    else:
        out.answer(staged_text(places, removed if cleaning else None))
    return 0


def _plan(args: Namespace, out: Output) -> int:
    """Explain placement: 0, or 3 where nothing can be weighed."""
    from archonctl.host.load import load_host
    from archonctl.service.plan_here import plan_here
    from archonctl.tiers.explain import explain

    loaded = endpoint_of(args, out)
    plan, host = plan_here(loaded), load_host(loaded)
    found = explain(
        loaded.name, loaded.endpoint, plan, host, _evidence(loaded, offline=args.offline), to_version=args.to
    )
    if out.json:
        from archonctl.tiers.as_json import tiers_plan_json

        out.value(tiers_plan_json(found))
    else:
        from archonctl.cli.tiers_text import tiers_text

        out.answer(tiers_text(found, out))
    return 3 if found.price is None or found.prefill is None else 0


def _evidence(loaded: LoadedEndpoint, *, offline: bool) -> Evidence:
    from archonctl.errors import ArchonError
    from archonctl.service.state import EndpointState, state_dir
    from archonctl.service.verdict_store import latest
    from archonctl.tiers.explain import Evidence
    from archonctl.tiers.live import ask
    from archonctl.tiers.measured import folders_of, read_measured

    folder = EndpointState(state_dir(os.environ), loaded.name).folder
    try:
        verdict = latest(folder, loaded.name)[0].value
    except ArchonError:
        verdict = None  # none was taken, or it cannot be read: the figure is one of several
    measured = read_measured(folders_of(loaded.name, folder, os.environ))
    return Evidence(None if offline else ask(loaded.endpoint), measured, verdict)
