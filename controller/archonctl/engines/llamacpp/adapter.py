"""llama.cpp (llama-server) behind the engine seam."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.base import Api, CardRule, CardShare, CommandLine, Forecast
from archonctl.engines.beside import context_bytes
from archonctl.engines.change import Variable
from archonctl.engines.llamacpp.assess import Assessment, assess
from archonctl.engines.llamacpp.draft import MTP
from archonctl.engines.llamacpp.kv import BUILD, VERIFIED_ARCHITECTURES, allocate
from archonctl.engines.llamacpp.levers import levers as find_levers
from archonctl.engines.llamacpp.settings import contract_context
from archonctl.engines.llamacpp.spread import Part
from archonctl.engines.llamacpp.spread import notes as spread_notes
from archonctl.engines.llamacpp.terms import explain
from archonctl.engines.oracle import Oracle
from archonctl.host.profile import Card, Host
from archonctl.memory.interval import MIB, Interval
from archonctl.model.geometry import ModelFacts

API = Api(
    health="/health",
    models="/v1/models",
    tokenize="/tokenize",
    completions="/v1/completions",
    chat="/v1/chat/completions",
    tokenize_field="content",
    checks_model_name=False,
    over_window_statuses=frozenset({400}),
    tokenize_extra={"add_special": True},
    completion_extra={"cache_prompt": False, "ignore_eos": True, "timings_per_token": True, "return_progress": True},
    report="/props",
    report_format="llamacpp-props",
    busy="/slots",
    metrics="/metrics",
    id_from_file=True,
)
"""llama.cpp b11434 tools/server/README.md, tried on that build. A model name in a request is not looked at."""


class LlamaCppAdapter:
    """The adapter of llama-server."""

    kind = "llamacpp"
    api = API
    needs_model_header = True

    def forecast(self, endpoint: Endpoint, host: Host, model: ModelFacts | None, *, detail: bool = True) -> Forecast:
        """Cells, bytes and tokens as llama-server allocates them, and what would make a short contract hold.

        Raises DeclarationError for knobs that contradict each other or the contract.
        """
        if endpoint.engine.knobs:
            from archonctl.engines.llamacpp.command import check_knobs  # the table of 256 flags, only where one is set

            check_knobs(endpoint)
        now = assess(endpoint, host, model)
        shape = now.shape
        return Forecast(
            method=_method(now, model),
            kv_tokens=_tokens(now, model),
            seqs_limit=now.settings.kv.n_seq_max,
            seq_len_limit=shape.n_ctx_slot if shape else None,
            cards=_cards(now, host) if now.on_cards else (_ram(now, host, model),),
            demands=now.demands,
            card_rule=CardRule(headroom=0.0, together=now.on_cards and now.spread is None),
            levers=find_levers(now, host, model) if detail else (),
            notes=tuple(_notes(now, host, model)),
            not_modelled=tuple(_not_modelled(now, model)),
            problems=now.problems,
            terms=explain(now, model) if detail else (),
        )

    @property
    def oracle(self) -> Oracle:
        """``llama-fit-params``."""
        from archonctl.engines.llamacpp.oracle import ORACLE  # only --oracle asks

        return ORACLE

    def variables(self, endpoint: Endpoint, host: Host) -> Mapping[str, Variable]:
        """What a plan can be solved for. Raises DeclarationError as ``forecast``."""
        from archonctl.engines.llamacpp.variables import variables  # only --solve and a short contract ask

        return variables(endpoint, host)

    def command(self, endpoint: Endpoint) -> CommandLine:
        """argv for llama-server, every flag checked against the table of its build.

        Raises DeclarationError for a knob that cannot be rendered.
        """
        # The flag table is 256 rows of TOML: only rendering and gating read it.
        from archonctl.engines.llamacpp.command import command_line

        return command_line(endpoint)


ADAPTER = LlamaCppAdapter()


def _architecture(model: ModelFacts | None) -> str:
    return model.geometry.architecture if model and model.geometry else ""


def _method(now: Assessment, model: ModelFacts | None) -> str:
    if model is not None and model.geometry is None:
        return f"unknown: {model.geometry_reason or 'the header names no geometry'}"
    if now.shape is None:
        return "unknown: the context is taken from a model that was not read"
    verified = _architecture(model) in VERIFIED_ARCHITECTURES
    how = "exact" if verified else "tokens exact"
    declared = now.endpoint.engine.version.removeprefix("b")
    other = f", taken for b{declared} too" if declared not in ("", BUILD[1:]) else ""
    return f"llama.cpp {BUILD} allocation law, {how}{other}"


def _ram(now: Assessment, host: Host, model: ModelFacts | None) -> CardShare:
    """RAM as the one card of a CPU-only host; ``outside`` is the compute buffer and what caches may grow to."""
    by_class: dict[str, int] = {}
    for demand in now.demands:
        by_class[demand.cls] = by_class.get(demand.cls, 0) + demand.bytes
    ceilings = [mib for mib in (host.available_mib, host.cgroup_limit_mib) if mib is not None]
    pool = now.kv.bytes / MIB if now.kv else None
    needed = _needed_mib(now, model)
    return CardShare(
        index=0,
        name="RAM",
        total_mib=host.ram_mib,
        ceiling_mib=min(ceilings, default=host.ram_mib),
        slab_mib=by_class["weights"] / MIB if "weights" in by_class else None,
        pool_mib=pool,
        pool_needed_mib=needed,
        margin_mib=pool - needed if pool is not None and needed is not None else None,
        outside_mib=(by_class.get("activation", 0) + by_class.get("ddr_cache", 0)) / MIB if now.compute else None,
    )


def _needed_mib(now: Assessment, model: ModelFacts | None) -> float | None:
    """What the contract with its margin needs of KV, were every knob derived from it."""
    if now.kv is None or model is None or model.geometry is None:
        return None
    own, seqs = now.settings.kv, max(now.endpoint.contract.seqs, now.settings.kv.n_seq_max)
    wanted = replace(own, n_ctx=contract_context(now.endpoint, seqs, own.kv_unified), n_seq_max=seqs)
    return allocate(model.geometry, wanted).bytes / MIB


def _tokens(now: Assessment, model: ModelFacts | None) -> Interval | None:
    """All cells of the first cache: exact, but where --fit chooses the context by an estimate of the rest.

    None for a model that was read and has no law: how large its cells are, and whether it has any, nobody knows.
    """
    if now.shape is None or (model is not None and model.geometry is None):
        return None
    context = now.context
    if context is None or context.is_exact:
        return Interval.exact(now.shape.n_ctx)
    return Interval(min(context.low, now.shape.n_ctx), now.shape.n_ctx, max(context.high, now.shape.n_ctx), "assumed")


def _cards(now: Assessment, host: Host) -> tuple[CardShare, ...]:
    """Each card with its part; one that is not used, or of whose part nothing is known, claims nothing."""
    parts = {part.card.index: part for part in now.spread.cards if part.card} if now.spread else {}
    return tuple(_split(card, parts[card.index]) if card.index in parts else _unsplit(card) for card in host.cards)


def _split(card: Card, part: Part) -> CardShare:
    compute = part.compute.best / MIB if part.compute else None
    weights, cells = part.share.weights / MIB, part.share.kv / MIB
    return CardShare(card.index, card.name, card.total_mib, card.free_mib, weights, cells, None, None, compute)


def _unsplit(card: Card) -> CardShare:
    """A card whose share is not modelled: nothing is claimed about it."""
    return CardShare(card.index, card.name, card.total_mib, card.free_mib, None, None, None, None)


def _notes(now: Assessment, host: Host, model: ModelFacts | None) -> Iterator[str]:
    yield from _version_notes(now, model)
    shape, settings, contract = now.shape, now.settings, now.endpoint.contract
    if shape is None:
        return
    slots = settings.kv.n_seq_max
    if now.context and not now.context.is_exact:
        low, high = int(now.context.low), int(now.context.high)
        yield f"ctx-size 0: --fit takes what memory has room for, about {shape.n_ctx:,} tokens ({low:,} to {high:,})"
    elif settings.kv.n_ctx == 0 and settings.kv.fit:
        yield (
            f"ctx-size 0 asks for all {shape.n_ctx:,} tokens of the trained context: --fit does not shorten it; "
            f"fit-ctx = N lets it, down to N a stream"
        )
    if settings.slots_auto:
        yield f"parallel = -1 becomes {slots} slots on one unified cache"
    if settings.kv.n_ctx not in (0, shape.n_ctx):
        yield (
            f"ctx-size {settings.kv.n_ctx:,} becomes {shape.n_ctx:,} "
            f"({shape.streams} x {shape.n_ctx_seq:,}: sequences are rounded up to 256 cells)"
        )
    if not settings.declares("ctx-size"):
        yield f"ctx-size {shape.n_ctx:,} is derived from the contract ({shape.streams} x {shape.n_ctx_seq:,} cells)"
    if settings.kv.kv_unified and slots * shape.n_ctx_slot > shape.n_ctx:
        yield (
            f"{slots} slots share {shape.n_ctx:,} cells and each may grow to {shape.n_ctx_slot:,}: requests that "
            f"together want more end in HTTP 500 (Context size has been exceeded); kv-unified-per-slot = "
            f"{contract.len} caps each at the contract"
        )
    if now.trained and shape.n_ctx_slot < shape.n_ctx_seq and not settings.kv.slot_cap:
        yield (
            f"{shape.n_ctx_seq - shape.n_ctx_slot:,} of {shape.n_ctx_seq:,} cells a sequence can never be used: "
            f"a slot is capped at {shape.n_ctx_slot:,} tokens"
        )
    if settings.kv.stretched_context:
        yield f"YaRN stretches the context to {settings.kv.stretched_context:,} tokens (trained: {now.trained:,})"
    if now.spread:
        yield from spread_notes(now.spread)
    if settings.offload and not host.cards:
        yield "gpu-layers is set, but this host has no card: everything stays in RAM"


def _bare(part: Part) -> str:
    """The maker of a card whose driver has no figure; "" for another one."""
    known = part.card is None or context_bytes("ggml", part.card) is not None
    return "" if known or part.card is None else part.card.maker or "an unknown maker"


def _unknown_draft(now: Assessment) -> Iterator[str]:
    said = now.settings.speculation
    if any(kind.startswith("ngram") for kind in said.types):
        yield "the tables of n-gram drafting"
    if said.unclear:
        yield f"weights and cells of {said.unclear}: no law covers a drafter of that kind"
    elif now.draft is None and (said.model or MTP in said.types):
        yield "weights and cells of the draft: " + (
            "its model was not read, or no law covers it" if said.model else "the model has no multi-token layers"
        )
    if now.settings.kv.kept_states:
        yield "states kept for drafted tokens follow the sources and were not compared with a boot log"


def _version_notes(now: Assessment, model: ModelFacts | None) -> Iterator[str]:
    version = now.endpoint.engine.version
    if not version:
        yield f"engine.version is not declared; the law is that of {BUILD}"
    elif re.sub(r"^b", "", version) != BUILD[1:]:
        yield f"engine.version is {version}; the law was verified on {BUILD}"
    architecture = _architecture(model)
    if architecture and architecture not in VERIFIED_ARCHITECTURES:
        yield f"bytes for {architecture} follow the sources of {BUILD} and were not compared with a boot log"


def _not_modelled(now: Assessment, model: ModelFacts | None) -> Iterator[str]:
    if model is None:
        yield "weights, KV bytes and the trained context: the model's header was not read"
    elif model.geometry is None:
        yield f"KV bytes and the trained context: {model.geometry_reason or 'the header names no geometry'}"
    elif now.compute is None:
        yield "the compute buffer: no law for this architecture's widths"
    if now.on_cards and now.spread is None:
        why = f": {now.offload.unclear}" if now.offload.unclear else ""
        yield f"which card holds which weights and cells{why}; tokens stay exact"
    if now.spread:
        makers = sorted({maker for part in now.spread.cards if (maker := _bare(part))})
        if makers:
            yield f"the driver's own memory on cards of {', '.join(makers)}: no public figure was found"
        yield "what a backend keeps for itself on a card"
        yield "the split was compared with llama.cpp's planner over RPC devices, not on a card"
    if model is not None and model.projector_bytes:
        yield "the projector's compute buffer: it goes by the size of the images"
    elif now.endpoint.engine.knobs.keys() & {"mmproj", "mm", "mmproj-url", "mmu"}:
        yield "the multimodal projector: it was not read"
    yield from _unknown_draft(now)
    if now.settings.cache_ram_mib < 0:
        yield "the prompt cache: cache-ram = -1 lets it grow without limit"
    if now.settings.extras:
        yield f"memory and tokens that {', '.join(now.settings.extras)} take"
    yield "llama-server's own heap and stacks (tens of MiB)"
