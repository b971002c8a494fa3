"""llama.cpp and ollama: tokens from the printed size of the main cache, or from the context that was asked for."""

from __future__ import annotations

from archonctl.engines.llamacpp.kv import ROW_BLOCKS, KvSettings, context_shape, row_bytes
from archonctl.ledger.case import CaseFacts
from archonctl.ledger.predict import Prediction
from archonctl.ledger.values import BootLedger
from archonctl.memory.interval import MIB
from archonctl.model.geometry import Geometry, Layer

COARSEST_MIB = 0.06
COARSE = 0.02
"""A size whose rounding is wider than both (ollama's "1.7 GiB") says less than the context that was asked for."""


def predict_case(facts: CaseFacts, ledger: BootLedger) -> Prediction:
    """Tokens that all sequences share: cells times streams."""
    type_k = _type(facts, ledger, "k")
    type_v = _type(facts, ledger, "v")
    if type_k not in ROW_BLOCKS or type_v not in ROW_BLOCKS:
        return Prediction(reason=f"no law for cache types {type_k!r} and {type_v!r}")
    row, why = _row(facts, ledger, type_k, type_v)
    size = ledger.get("kv_mib") or ledger.get("required_kv_mib")
    mixed = facts.geometry is not None and any(layer.attention == "sliding" for layer in facts.geometry.layers)
    sized = None
    if size is not None and size.best > 0 and row and not (mixed and ledger.engine == "ollama"):
        tokens = [int(part * MIB / row + 0.5) for part in (size.low, size.best, size.high)]
        sized = Prediction(
            tokens[1], "bytes", f"{size.best:g} MiB / {row:,} B a token ({why})", "", tokens[0], tokens[2]
        )
        if size.high - size.low <= max(2 * COARSEST_MIB, size.best * COARSE):
            return sized
    return (
        _from_flags(facts, ledger)
        or sized
        or Prediction(reason=why if not row else "the log names no size of the cache and the case no context")
    )


def _type(facts: CaseFacts, ledger: BootLedger, which: str) -> str:
    """The type of the cache whose size was read; where several caches were printed, the one of that size."""
    size = ledger.get("kv_mib")
    named = [name for name in ROW_BLOCKS if size is not None and ledger.get(f"{name}_mib") == size]
    if len(named) == 1:
        return named[0]
    stated = facts.word(f"cache_type_{which}") or facts.word("kv_cache_type") or facts.word("cache_type")
    printed = ledger.facts.get(f"{which}_type", "").lower() or ledger.facts.get("kv_type", "").lower()
    return printed or stated or "f16"


def _row(facts: CaseFacts, ledger: BootLedger, type_k: str, type_v: str) -> tuple[int, str]:
    """Bytes a token of the main cache over its layers; 0 and the reason where the geometry does not say."""
    layers, widths = _whole(ledger, "kv_layers", "full_layers", "layers"), _whole(ledger, "n_embd_k_gqa")
    if widths and layers:
        v_width = _whole(ledger, "n_embd_v_gqa") or widths
        row = layers * (row_bytes(widths, type_k) + row_bytes(v_width, type_v))
        return row, f"{layers} layers of {widths} + {v_width} as printed, {type_k}/{type_v}"
    if facts.geometry is None:
        return 0, facts.geometry_reason
    main = _main(facts.geometry)
    if not main:
        return 0, "no layer of the main cache is known"
    k_row = [row_bytes(layer.k_width, type_k) for layer in main]
    v_row = [0 if layer.attention == "mla" else row_bytes(layer.v_width, type_v) for layer in main]
    total, same = sum(k_row) + sum(v_row), len({*k_row}) == 1
    printed = _whole(ledger, "kv_layers", "full_layers")
    if printed and printed != len(main) and same:
        return total // len(main) * printed, f"{printed} layers as printed, {type_k}/{type_v}, widths as stated"
    return total, f"{len(main)} layers, {type_k}/{type_v}; geometry {facts.geometry_source}"


def _main(geometry: Geometry) -> tuple[Layer, ...]:
    serving = geometry.layers[: len(geometry.layers) - geometry.nextn_layers] or geometry.layers
    return tuple(layer for layer in serving if layer.attention in ("full", "mla"))


def _whole(ledger: BootLedger, *names: str) -> int:
    for name in names:
        value = ledger.get(name)
        if value is not None and value.best > 0:
            return int(value.best)
    return 0


def _from_flags(facts: CaseFacts, ledger: BootLedger) -> Prediction | None:
    """The context as asked for, rounded as the engine rounds it; ollama multiplies it by its parallel requests."""
    parallel = facts.number("parallel", "n_seq_max", "n_slots", "num_parallel")
    if ledger.engine == "ollama":
        context = facts.number("kvsize") or facts.number("num_ctx", "n_ctx") * max(1, parallel)
        return Prediction(context, "blind", "num_ctx x parallel as asked for") if context else None
    context = facts.number("n_ctx")
    if not context:
        return None
    unified = facts.switch("kv_unified")
    shape = context_shape(KvSettings(context, parallel or 1, not parallel if unified is None else unified), 0)
    return Prediction(shape.n_ctx, "blind", f"-c {context:,} over {shape.streams} streams, in steps of 256")
