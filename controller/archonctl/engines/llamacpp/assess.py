"""One declaration under the law: what would be allocated, what is refused, and whether the contract holds.

The forecast presents it; the levers run it again on changed declarations, so that no lever is ever guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import Problem
from archonctl.engines.llamacpp import memory
from archonctl.engines.llamacpp import spread as spreading
from archonctl.engines.llamacpp.declared import DeclaredKnobs
from archonctl.engines.llamacpp.draft import Draft, draft_of
from archonctl.engines.llamacpp.fit import fitted_context
from archonctl.engines.llamacpp.kv import (
    ContextShape,
    KvAllocation,
    KvSettings,
    allocate,
    context_shape,
)
from archonctl.engines.llamacpp.loading import as_loaded
from archonctl.engines.llamacpp.offload import Offload, offload_of
from archonctl.engines.llamacpp.refusals import refusals, split_refusals
from archonctl.engines.llamacpp.settings import Settings, adapted, settings_of, trained_context
from archonctl.engines.llamacpp.spread import Spread
from archonctl.host.capacity import host_capacity
from archonctl.host.profile import Host
from archonctl.memory.demand import Demand, Fit, fit
from archonctl.memory.interval import Interval
from archonctl.model.geometry import Geometry, ModelFacts


@dataclass(frozen=True, slots=True)
class Assessment:
    """Everything that follows from one declaration on one host with one model.

    ``shape`` is None where not even the context is known; ``kv`` where the model's geometry is not.
    """

    endpoint: Endpoint
    settings: Settings
    trained: int
    context: Interval | None
    """What --fit makes of --ctx-size 0, in tokens; None where the context is stated, or nobody knows."""
    shape: ContextShape | None
    kv: KvAllocation | None
    compute: Interval | None
    checkpoint_bytes: int
    on_cards: bool
    offload: Offload
    spread: Spread | None
    """What lies on which card; None where nothing does, or where only the engine knows."""
    draft: Draft | None
    problems: tuple[Problem, ...]
    demands: tuple[Demand, ...]
    fit: Fit

    @property
    def holds(self) -> bool:
        """True if nothing that is known speaks against the contract and its margin."""
        contract, shape = self.endpoint.contract, self.shape
        return (
            not self.problems
            and shape is not None
            and self.settings.kv.n_seq_max >= contract.seqs
            and shape.n_ctx_slot >= contract.len
            and shape.n_ctx >= contract.tokens_with_margin
            and self.fit.allows
        )


def assess(endpoint: Endpoint, host: Host, model: ModelFacts | None) -> Assessment:
    """Apply the law. Raises DeclarationError for knobs that cannot be understood (see ``settings_of``)."""
    settings = adapted(settings_of(endpoint), model)
    trained = trained_context(settings, model)
    geometry = _geometry(model, trained)
    offload = offload_of(endpoint, host)
    if offload.split_mode == "tensor":
        settings = replace(settings, kv=replace(settings.kv, fit=False))  # --fit gives up on it (common/fit.cpp)
    context = fitted_context(settings, host, model, geometry, offload)
    if context is not None:
        settings = replace(settings, kv=replace(settings.kv, n_ctx=int(context.best)))
    known = settings.kv.n_ctx > 0 or trained > 0
    shape = context_shape(settings.kv, trained) if known else None
    kv = allocate(geometry, settings.kv) if geometry and known else None
    compute = memory.estimated_compute(model, geometry, settings.kv, kv) if model and geometry and kv else None
    checkpoint = memory.checkpoint_bytes(geometry, settings.kv, kv) if geometry and kv else 0
    on_cards = bool(offload.devices) and settings.offload is not False and offload.gpu_layers != 0
    draft = draft_of(settings.speculation, model, geometry, settings.kv, shape.n_ctx) if shape else None
    placed = spreading.spread(model, geometry, settings.kv, kv, offload, draft) if on_cards else None
    demands = _demands(model, settings, kv, compute, on_cards, placed, draft)
    demands += _projector(model, settings, offload) + memory.ram_cache_demands(settings, checkpoint)
    problems = (
        *refusals(geometry, settings.kv),
        *split_refusals(geometry, settings.kv, offload, endpoint.engine.version),
        *_over_trained(endpoint, settings.kv, trained),
        *(spreading.problems(placed) if placed else ()),
    )
    demands = as_loaded(demands, DeclaredKnobs(endpoint.engine.knobs))
    ram = fit(demands, "host", host_capacity(host))
    return Assessment(
        endpoint, settings, trained, context, shape, kv, compute, checkpoint, on_cards, offload, placed, draft,
        problems, tuple(demands), ram,
    )  # fmt: skip


def _geometry(model: ModelFacts | None, trained: int) -> Geometry | None:
    if model is None or model.geometry is None:
        return None
    return replace(model.geometry, trained_context=trained)


def _demands(
    model: ModelFacts | None,
    settings: Settings,
    kv: KvAllocation | None,
    compute: Interval | None,
    on_cards: bool,
    placed: Spread | None,
    draft: Draft | None,
) -> list[Demand]:
    if placed is not None:
        return list(spreading.demands(placed, memory.cache_dtype(settings.kv)))
    found = [memory.weights(model)] if model else []
    found += memory.cache_demands(settings, kv) if kv else []
    found += [memory.compute_demand(compute)] if compute else []
    found += _beside(draft) if draft else []
    if on_cards:
        # What does not fit stays in RAM, but for a split by hand: only the engine knows how much that is.
        found = [
            replace(demand, scope="device", detail=f"{demand.detail}, split unknown", low_bytes=0) for demand in found
        ]
    return found


def _beside(draft: Draft) -> list[Demand]:
    """What a draft context takes where all of it lies in one place."""
    found = [memory.weights(draft.model)] if draft.model else []
    found.append(Demand("kv_cache", "host", memory.cache_dtype(draft.settings), draft.kv.bytes, "cells"))
    found += [memory.compute_demand(draft.compute)] if draft.compute else []
    return [replace(demand, detail=f"draft: {demand.detail}") for demand in found]


def _projector(model: ModelFacts | None, settings: Settings, offload: Offload) -> list[Demand]:
    """Weights of a multimodal projector: on the first card, unless it is kept off (tools/mtmd/clip.cpp)."""
    if model is None or not model.projector_bytes:
        return []
    size, what = model.projector_bytes, "multimodal projector (mmproj)"
    if offload.devices and settings.projector_offload:
        return [Demand("weights", "device", "", size, what, "header", offload.devices[0].index)]
    return [Demand("weights", "host", "", size, what, "header")]


def _over_trained(endpoint: Endpoint, settings: KvSettings, trained: int) -> list[Problem]:
    cap, wanted = settings.stretched_context or trained, endpoint.contract.len
    if not cap or wanted <= cap:
        return []
    kind = "stretched by YaRN" if settings.stretched_context else "trained"
    return [
        Problem(
            "len-over-trained-context",
            f"contract.len is {wanted:,} tokens, the model's context is {cap:,} ({kind}): "
            f"llama-server caps every slot at it",
            f"lower contract.len to {cap}, or stretch the context with the knobs rope-scaling = "
            f'"yarn" and rope-scale = {-(-wanted // (trained or cap))} (linear scaling does not lift the cap)',
        )
    ]
