"""A plan: the judgement of a declaration, and the ways out where the contract does not hold."""

from __future__ import annotations

from dataclasses import replace

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.schema import Endpoint
from archonctl.engines.terms import Term
from archonctl.host.load import load_host
from archonctl.host.profile import Host
from archonctl.model.geometry import ModelFacts
from archonctl.plan.judge import judged_plan
from archonctl.plan.load import load_model
from archonctl.plan.values import Plan


def build_plan(name: str, endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = True) -> Plan:
    """``judged_plan`` and, with ``detail``, every way out of a contract that does not hold; raises the same."""
    plan = judged_plan(name, endpoint, host, model, detail=detail)
    if not detail or plan.verdict == "holds":
        return plan
    from archonctl.plan.levers import ranked  # only a contract that does not hold needs a way out
    from archonctl.plan.trial import Trial

    found = ranked(Trial(name, endpoint, host, model), plan)
    return replace(plan, forecast=replace(plan.forecast, levers=found))


def plan_endpoint(loaded: LoadedEndpoint, host: Host | None = None) -> Plan:
    """Load what the declaration points to (host profile or this machine, model header or manifest) and judge it.

    ``host``: what was loaded already. Raises DeclarationError or ModelError where one of them cannot be read.
    """
    host, model = host or load_host(loaded), load_model(loaded.endpoint)
    with loaded.placing():
        return build_plan(loaded.name, loaded.endpoint, host, model)


def placed(plan: Plan, loaded: LoadedEndpoint) -> Plan:
    """The same plan, with the file and line (flag, variable) of each declared figure in its working."""
    terms = tuple(
        replace(term, origin=_origin(term, loaded.origins.get(term.key, ""))) if term.key else term
        for term in plan.forecast.terms
    )
    return replace(plan, forecast=replace(plan.forecast, terms=terms))


def _origin(term: Term, place: str) -> str:
    return f"{term.origin} ({place})" if term.origin and place else place or term.origin or term.key
