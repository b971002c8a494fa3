"""``archonctl inspect``."""

from __future__ import annotations

from argparse import Namespace

from archonctl.cli.output import Output
from archonctl.memory.interval import MIB


def run(args: Namespace, out: Output) -> int:
    """Read a header and present it."""
    from archonctl.model.as_json import facts_json
    from archonctl.model.inspect import inspect_model

    facts = inspect_model(args.model)
    if out.json:
        out.value(facts_json(facts))
        return 0
    lines = [f"{out.paint(facts.path, 'bold')}  {facts.format}  {facts.file_bytes:,} bytes, {facts.tensors:,} tensors"]
    geometry = facts.geometry
    if geometry:
        kinds: dict[str, int] = {}
        for layer in geometry.layers:
            kinds[layer.attention] = kinds.get(layer.attention, 0) + 1
        lines += [
            f"  {geometry.architecture}  {geometry.name}",
            f"  trained context {geometry.trained_context:,}, vocabulary {geometry.vocab:,}",
            f"  {len(geometry.layers)} layers: " + ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())),
        ]
        if geometry.experts:
            lines.append(f"  {geometry.experts} experts, {geometry.experts_used} used a token")
    lines += [
        f"  {part.cls:<15} {part.dtype:<8} {part.bytes / MIB:>12,.2f} MiB  {part.tensors:>5} tensors"
        for part in facts.tensor_bytes
    ]
    out.answer("\n".join(lines))
    return 0
