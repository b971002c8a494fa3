"""llama-server's allocation as a working: every figure of the law, from the header and the declaration to the bytes."""

from __future__ import annotations

from archonctl.engines.llamacpp.assess import Assessment
from archonctl.engines.llamacpp.kv import CONTEXT_STEP, ROW_BLOCKS, Cache, ContextShape, KvAllocation
from archonctl.engines.terms import Term, Working
from archonctl.model.geometry import Layer, ModelFacts

_CONTEXT = "src/llama-context.cpp"
_CACHE = "src/llama-kv-cache.cpp"


def explain(now: Assessment, model: ModelFacts | None) -> tuple[Term, ...]:
    """The working of one assessment; empty where the context is not known, or the model has no law."""
    if now.shape is None or (model is not None and model.geometry is None):
        return ()
    work = Working()
    _context(work, now, now.shape)
    if now.kv is not None and model is not None and model.geometry is not None:
        layers = model.geometry.layers[: len(model.geometry.layers) - model.geometry.nextn_layers]
        names = [_cache(work, now, cache, layers) for cache in now.kv.caches if cache.layers]
        names += _recurrent(work, now.kv, model)
        if names:
            work.work("kv_bytes", now.kv.bytes, "bytes", "allocated for contexts at boot", " + ".join(names))
    work.work("kv_tokens", now.shape.n_ctx, "tokens", "what all sequences may hold together", "n_ctx_seq * streams")
    work.work("slot_tokens", now.shape.n_ctx_slot, "tokens", "what one slot may hold", _slot(work, now))
    return work.terms()


def _context(work: Working, now: Assessment, shape: ContextShape) -> None:
    contract, settings = now.endpoint.contract, now.settings
    work.take("seqs", contract.seqs, "sequences", "promised at once", "declared", key="contract.seqs")
    work.take("len", contract.len, "tokens", "promised to each", "declared", key="contract.len")
    work.take("margin", contract.margin, "", "share on top", "declared", key="contract.margin")
    key = settings.keys.get("parallel")
    slots = settings.kv.n_seq_max
    if key or slots != contract.seqs:
        source = "--parallel -1 becomes four slots (tools/server/server.cpp)" if settings.slots_auto else ""
        work.take(
            "slots", slots, "sequences", "--parallel", "declared", source, key=f"engine.knobs.{key or 'parallel'}"
        )
    else:
        work.work("slots", slots, "sequences", "--parallel, from the contract", "seqs")
    if settings.kv.kv_unified:
        work.take("streams", shape.streams, "", "one cache for all slots (--kv-unified)", "config", _CONTEXT)
    else:
        work.work("streams", shape.streams, "", "a cache for each slot", "slots", _CONTEXT)
    work.take("step", CONTEXT_STEP, "cells", "a stream is rounded up to", "config", f"GGML_PAD in {_CONTEXT}")
    _asked(work, now)
    stream = "pad(n_ctx, step)" if settings.kv.kv_unified else "pad(pad(n_ctx, step) // slots, step)"
    work.work("n_ctx_seq", shape.n_ctx_seq, "cells", "a stream", stream, _CONTEXT)


def _asked(work: Working, now: Assessment) -> None:
    settings = now.settings
    if now.context is not None and not now.context.is_exact:
        work.estimate("n_ctx", now.context, "tokens", "--ctx-size 0: what memory has room for", origin="common/fit.cpp")
    elif now.context is not None or settings.kv.n_ctx == 0:
        work.take("trained", now.trained, "tokens", "the model's trained context", "header", "<arch>.context_length")
        times = "trained * streams" if settings.kv.fit else "trained"
        value = now.trained * (now.shape.streams if now.shape and settings.kv.fit else 1)
        work.work("n_ctx", value, "tokens", "--ctx-size 0: as trained", times, "common/fit.cpp")
    elif settings.declares("ctx-size"):
        key = f"engine.knobs.{settings.keys['ctx-size']}"
        work.take("n_ctx", settings.kv.n_ctx, "tokens", "--ctx-size", "declared", key=key)
    else:
        wanted = now.endpoint.contract.tokens_with_margin
        work.work("wanted", wanted, "tokens", "the contract with its margin", "seqs * len + round(seqs * len * margin)")
        formula = "pad(wanted, step)" if settings.kv.kv_unified else "slots * pad(ceil(wanted / seqs), step)"
        work.work("n_ctx", settings.kv.n_ctx, "tokens", "--ctx-size, derived from the contract", formula)


def _slot(work: Working, now: Assessment) -> str:
    """Formula of the slot's cap; takes what it needs."""
    settings, limits = now.settings.kv, ["n_ctx_seq"]
    if settings.slot_cap:
        key = f"engine.knobs.{now.settings.keys['kv-unified-per-slot']}"
        limits.append(work.take("slot_cap", settings.slot_cap, "tokens", "--kv-unified-per-slot", "declared", key=key))
    if settings.stretched_context:
        limits.append(
            work.take("stretched", settings.stretched_context, "tokens", "YaRN makes of the trained one", "config",
                      f"llama_init_from_model in {_CONTEXT}")
        )  # fmt: skip
    elif now.trained and "trained" in {term.name for term in work.terms()}:
        limits.append("trained")
    elif now.trained:
        limits.append(work.take("trained", now.trained, "tokens", "trained context", "header", "<arch>.context_length"))
    return f"min({', '.join(limits)})" if len(limits) > 1 else limits[0]


def _cache(work: Working, now: Assessment, cache: Cache, serving: tuple[Layer, ...]) -> str:
    """Terms of one cache; the name of its bytes."""
    kind = cache.kind
    layers = [la for la in serving if (la.attention == "sliding") == (kind == "sliding") and la.attention in _KINDS]
    if kind == "sliding" and not now.settings.kv.swa_full:
        _window(work, now, layers, cache.cells)
    else:
        work.work(f"{kind}_cells", cache.cells, "cells", f"of a stream, {kind} attention", "n_ctx_seq", _CACHE)
    sides = [
        name
        for side, size in (("k", cache.k_bytes), ("v", cache.v_bytes))
        if (name := _side(work, now, cache, layers, side, size))
    ]
    formula = " + ".join(sides)
    return work.work(f"{kind}_bytes", cache.bytes, "bytes", f"K and V of {cache.layers} {kind} layers", formula, _CACHE)


_KINDS = ("full", "mla", "sliding")


def _window(work: Working, now: Assessment, layers: list[Layer], cells: int) -> None:
    kv = now.settings.kv
    window = max(layer.window for layer in layers)
    work.take("window", window, "tokens", "the widest sliding window", "header", "<arch>.attention.sliding_window")
    ubatch = now.shape.n_ubatch if now.shape else 0
    said = now.settings.keys.get("ubatch-size")
    key = f"engine.knobs.{said}" if said else ""
    work.take("n_ubatch", ubatch, "tokens", "--ubatch-size, capped by batch and context", "config", _CONTEXT, key=key)
    held = "window * slots" if kv.kv_unified else "window"
    formula = f"pad(min(n_ctx_seq, {held} + n_ubatch), step)"
    what = "of a stream, behind a sliding window"
    work.work("sliding_cells", cells, "cells", what, formula, "src/llama-kv-cache-iswa.cpp")


def _side(work: Working, now: Assessment, cache: Cache, layers: list[Layer], side: str, size: int) -> str:
    """Bytes of K or of V; "" where nothing is kept (V of MLA)."""
    if not size:
        return ""
    kv, rows = now.settings.kv, cache.cells * cache.streams
    dtype = kv.type_k if side == "k" else kv.type_v
    values, block_bytes = ROW_BLOCKS[dtype]
    width = size // rows * values // block_bytes
    uneven = size * values != width * block_bytes * rows
    name = f"{cache.kind}_{side}"
    if uneven:  # a row that is no whole block loses its tail: the engine's own figure stands
        row = work.take(f"{name}_row", size // rows, "bytes", f"{side.upper()} of a cell, {dtype}", "header", _CACHE)
        return work.work(f"{name}_bytes", size, "bytes", side.upper(), f"{cache.kind}_cells * streams * {row}", _CACHE)
    heads = "one latent row" if layers and layers[0].attention == "mla" else "all KV heads"
    what = f"{side.upper()} elements of a cell: {cache.layers} layers, {heads}"
    work.take(f"{name}_width", width, "elements", what, "header", "<arch>.attention.*")
    for part, figure in (("values", values), ("bytes", block_bytes)):
        if f"{side}_block_{part}" not in {term.name for term in work.terms()}:
            work.take(f"{side}_block_{part}", figure, part, f"a block of {dtype}", "declared",
                      "ggml/src/ggml-common.h", key="contract.kv_dtype")  # fmt: skip
    formula = f"{cache.kind}_cells * streams * {name}_width * {side}_block_bytes // {side}_block_values"
    return work.work(f"{name}_bytes", size, "bytes", f"{side.upper()} of all cells", formula, _CACHE)


def _recurrent(work: Working, kv: KvAllocation, model: ModelFacts) -> list[str]:
    state, geometry = kv.recurrent, model.geometry
    if state is None or geometry is None or geometry.recurrent is None:
        return []
    layers = sum(layer.attention == "recurrent" for layer in geometry.layers)
    rows = "src/llama-memory-recurrent.cpp"
    work.take("recurrent_layers", layers, "layers", "that keep a state instead of cells", "header", "<arch>.*")
    work.take(
        "conv_elements",
        geometry.recurrent.conv_elements,
        "elements",
        "of a convolution state",
        "header",
        "<arch>.ssm.*",
    )
    work.take(
        "ssm_elements", geometry.recurrent.ssm_elements, "elements", "of a state-space state", "header", "<arch>.ssm.*"
    )
    formula = "slots * recurrent_layers * (conv_elements + ssm_elements) * 4"
    return [work.work("state_bytes", state.bytes, "bytes", "states, always f32", formula, rows)]
