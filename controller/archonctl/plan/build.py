"""The judgement: an engine's forecast against the contract.

The rule, in one place: a contract **holds** if no other limit is under it, the cautious end of the capacity
covers ``seqs x len`` and the best estimate also covers the margin; it is **short** if the best estimate does
not, or if any hard limit is exceeded; everything else is **unknown**.
"""

from __future__ import annotations

from dataclasses import replace

from archonctl.deployment.load import LoadedEndpoint
from archonctl.deployment.remote import refuse_remote
from archonctl.deployment.schema import Contract, Endpoint
from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.engines.terms import Term
from archonctl.host.capacity import host_capacity
from archonctl.host.load import load_host
from archonctl.host.profile import Host
from archonctl.memory.demand import Fit, fit
from archonctl.model.geometry import ModelFacts
from archonctl.plan.values import Plan, PlanVerdict


def build_plan(name: str, endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = True) -> Plan:
    """Judge one declaration on one host. Touches nothing; ``detail`` False leaves out working and levers.

    Raises DeclarationError where the declaration contradicts itself or its engine kind has no law here.
    """
    forecast = adapter(endpoint.engine.kind).forecast(endpoint, host, model, detail=detail)
    fits = (fit(forecast.demands, "host", host_capacity(host)),)
    verdict, reasons = judge(endpoint.contract, forecast, fits)
    notes = forecast.notes + tuple(_fit_notes(fits))
    plan = Plan(
        name, endpoint.engine.kind, endpoint.engine.version, endpoint.contract, verdict, reasons, forecast, fits, notes
    )
    if not detail or verdict == "holds":
        return plan
    from archonctl.plan.levers import ranked  # it plans too, and only a contract that does not hold needs a way out
    from archonctl.plan.trial import Trial

    found = ranked(Trial(name, endpoint, host, model), plan)
    return replace(plan, forecast=replace(forecast, levers=found))


def plan_endpoint(loaded: LoadedEndpoint) -> Plan:
    """Load what the declaration points to (host profile or this machine, model header or manifest) and judge it.

    Raises DeclarationError or ModelError where one of them cannot be read.
    """
    host, model = load_host(loaded), load_model(loaded.endpoint)
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


def load_model(endpoint: Endpoint, *, network: bool = True) -> ModelFacts | None:
    """The facts of the artefact: from its manifest if one is declared, else from the file where the law needs it.

    Without ``network`` a model that is not on this machine raises ModelError ``model-remote-only``.
    """
    if endpoint.model.manifest:
        from archonctl.model.manifest import read_manifest

        return read_manifest(endpoint.model.manifest)
    if adapter(endpoint.engine.kind).needs_model_header:
        if not network:
            refuse_remote(endpoint.model.path, "nothing is asked of the network here")
        from archonctl.model.inspect import inspect_model

        facts, projector = inspect_model(endpoint.model.path), _projector(endpoint)
        return replace(facts, projector_bytes=inspect_model(projector).weight_bytes) if projector else facts
    return None


def _projector(endpoint: Endpoint) -> str:
    """The file of a multimodal projector of llama-server; "" where none is declared."""
    if endpoint.engine.kind != "llamacpp":
        return ""
    return next((str(value) for key, value in endpoint.engine.knobs.items() if key in ("mmproj", "mm")), "")


def judge(contract: Contract, forecast: Forecast, fits: tuple[Fit, ...]) -> tuple[PlanVerdict, tuple[str, ...]]:
    """Verdict and, where it is not "holds", every reason with both numbers."""
    short = [f"{p.message} ({p.hint})" if p.hint else p.message for p in forecast.problems]
    if forecast.seqs_limit is not None and forecast.seqs_limit < contract.seqs:
        short.append(f"{forecast.seqs_limit:,} sequences at once, {contract.seqs:,} promised")
    if forecast.seq_len_limit is not None and forecast.seq_len_limit < contract.len:
        short.append(f"a sequence may hold {forecast.seq_len_limit:,} tokens, {contract.len:,} promised")
    short += [f.finding.message for f in fits if f.verdict == "too_big" and f.finding]
    tokens, wanted = forecast.kv_tokens, contract.tokens_with_margin
    if tokens is not None and tokens.best < wanted:
        margin = f" ({contract.tokens:,} and the margin)" if wanted != contract.tokens else ""
        short.append(f"{int(tokens.best):,} tokens, {wanted:,} wanted{margin}: {wanted - int(tokens.best):,} short")
    if short:
        return "short", tuple(short)
    if tokens is None:
        return "unknown", ("the pool's tokens are unknown: nothing to judge by",)
    if tokens.low < contract.tokens:
        return "unknown", (
            f"the cautious estimate is {int(tokens.low):,} tokens, {contract.tokens:,} promised; "
            f"the best estimate is {int(tokens.best):,}",
        )
    return "holds", ()


def _fit_notes(fits: tuple[Fit, ...]) -> list[str]:
    return [f.finding.message for f in fits if f.verdict == "unknown" and f.finding]
