"""A model for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from archonctl.cli.output import Output
from archonctl.memory.interval import MIB
from archonctl.model.geometry import Geometry, Layer, ModelFacts


def facts_text(facts: ModelFacts, out: Output) -> str:
    """What the model is, how its layers attend, and its bytes by class and type."""
    parts = f" in {facts.parts} files" if facts.parts > 1 else ""
    head = f"{facts.format}  {facts.file_bytes:,} bytes{parts}, {facts.tensors:,} tensors"
    lines = [f"{out.paint(facts.path, 'bold')}  {head}"]
    if facts.geometry is None:
        lines.append(f"  {out.paint('layers unknown', 'yellow')}: {facts.geometry_reason}")
    else:
        lines += _geometry(facts.geometry)
    if how := facts.quantization:
        bits = f", {how.bits} bits" if how.bits else ""
        group = f", groups of {how.group_size}" if how.group_size else ""
        cache = f", asks for a cache of {how.kv_cache}" if how.kv_cache else ""
        lines.append(f"  quantised by {how.method}{bits}{group}{cache}")
    lines += [
        f"  {part.cls:<15} {part.dtype:<8} {part.bytes / MIB:>12,.2f} MiB  {part.tensors:>5} tensors"
        for part in facts.tensor_bytes
    ]
    if facts.tensor_bytes:
        lines.append(f"  {'all':<15} {'':<8} {facts.weight_bytes / MIB:>12,.2f} MiB")
    return "\n".join(lines)


def _geometry(geometry: Geometry) -> Iterator[str]:
    yield f"  {geometry.architecture}  {geometry.name}".rstrip()
    context = f"{geometry.trained_context:,}" if geometry.trained_context else "not said"
    vocab = f"{geometry.vocab:,}" if geometry.vocab else "not said"
    yield f"  trained context {context}, vocabulary {vocab}, hidden {geometry.hidden:,}, {geometry.heads} heads"
    rows = Counter(_row(layer) for layer in geometry.layers)
    yield f"  {len(geometry.layers)} layers: " + ", ".join(f"{n} {row}" for row, n in rows.most_common())
    if geometry.latent_dim:
        indexer = f", an indexer's key of {geometry.indexer_dim}" if geometry.indexer_dim else ""
        yield f"  a latent of {geometry.latent_dim} and {geometry.rope_dim} of rope a token{indexer}"
    if state := geometry.recurrent:
        elements = state.conv_elements + state.ssm_elements
        yield f"  {state.kind or 'recurrent'} state of {elements:,} elements a sequence and layer"
    if geometry.experts:
        shared = f", {geometry.experts_shared} shared" if geometry.experts_shared else ""
        yield f"  {geometry.experts} experts, {geometry.experts_used} used a token{shared}"


def _row(layer: Layer) -> str:
    """What a layer keeps: layers that keep the same are counted together."""
    if layer.attention in ("recurrent", "mla"):
        return layer.attention
    if layer.attention == "none":
        return "without a cache of their own"
    window = f" of {layer.window:,}" if layer.window else ""
    return f"{layer.attention}{window} ({layer.kv_heads} KV heads of {layer.head_dim_k})"
