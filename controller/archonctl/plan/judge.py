"""The judgement: an engine's forecast against the contract.

The rule, in one place: a contract **holds** if no other limit is under it, the cautious end of the capacity
covers ``seqs x len``, the best estimate also covers the margin, and what is asked of the host and of each card fits;
it is **short** if the best estimate does not, or if any hard limit is exceeded; everything else is **unknown**. Memory
that nobody knows does not stand in the way: the plan goes on and says so.
"""

from __future__ import annotations

from archonctl.deployment.schema import Contract, Endpoint
from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.host.profile import Host
from archonctl.host.visible import visible_host
from archonctl.memory.demand import Fit
from archonctl.model.geometry import ModelFacts
from archonctl.plan.scopes import judged_scopes, memory_notes
from archonctl.plan.values import Plan, PlanVerdict


def judged_plan(name: str, endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = False) -> Plan:
    """Judge one declaration on one host. Touches nothing; ``detail`` adds the working and the engine's own levers.

    Cards that the engine's variables hide from it do not count. Raises DeclarationError where the declaration
    contradicts itself or its engine kind has no law here.
    """
    host = visible_host(host, endpoint.engine.env)
    forecast = adapter(endpoint.engine.kind).forecast(endpoint, host, model, detail=detail)
    fits = judged_scopes(forecast, host)
    verdict, reasons = judge(endpoint.contract, forecast, fits)
    notes = (*forecast.notes, *memory_notes(forecast, fits, host))
    return Plan(
        name, endpoint.engine.kind, endpoint.engine.version, endpoint.contract, verdict, reasons, forecast, fits, notes
    )


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
    if doubtful := [f.finding.message for f in fits if not f.allows and f.finding]:
        return "unknown", tuple(doubtful)
    return "holds", ()
