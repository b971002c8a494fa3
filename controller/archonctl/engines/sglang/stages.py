"""What the pipeline stages of SGLang hold: their layers, and weights of a rank on its card and in RAM.

Every stage sizes its pools by its own layers, and all take the smallest number of tokens (``all_reduce`` with MIN in
srt/model_executor/model_runner_kv_cache_mixin.py of 0.5.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from archonctl.engines.sglang.settings import Settings
from archonctl.engines.sharding import attention_share, offloaded, padded_vocabulary
from archonctl.errors import DeclarationError
from archonctl.memory.interval import Interval
from archonctl.model.geometry import ModelFacts

UNEVEN = 0.03
"""How much more than an even share of the weights one rank may hold: norms and odd tensors are whole on each."""


@dataclass(frozen=True, slots=True)
class Stage:
    """``model`` has the layers of this stage alone. ``weights`` are bytes of a rank on its card, ``in_ram`` those that
    --cpu-offload-gb keeps off it; None where the files were not there to count."""

    model: ModelFacts | None
    weights: Interval | None
    in_ram: Interval | None


def stages_of(model: ModelFacts | None, settings: Settings) -> tuple[Stage, ...]:
    """All stages, the first one first. Raises DeclarationError ``pp-partition-invalid``."""
    whole = model.geometry.serving if model and model.geometry else ()
    if model is None or model.geometry is None or settings.pp == 1:
        return (_stage(model, settings, len(whole) or 1, len(whole) or 1, first=True, last=True),)
    counts = stage_layers(len(whole), settings.pp, settings.partition)
    found = []
    for number, (count, end) in enumerate(zip(counts, accumulate(counts), strict=True)):
        geometry = replace(model.geometry, layers=whole[end - count : end], nextn_layers=0)
        stage = _stage(model, settings, count, len(whole), first=number == 0, last=number == settings.pp - 1)
        found.append(replace(stage, model=replace(model, geometry=geometry)))
    return tuple(found)


def stage_layers(layers: int, pp: int, partition: Sequence[int] = ()) -> tuple[int, ...]:
    """Layers of each stage: the last ones take what does not divide (``get_pp_indices`` in srt/distributed/utils.py).

    Raises DeclarationError ``pp-partition-invalid``.
    """
    if pp > layers:
        raise DeclarationError("pp-partition-invalid", f"{pp} pipeline stages for {layers} layers")
    if partition and (len(partition) != pp or sum(partition) != layers):
        where = f"{len(partition)} stages of {sum(partition)} layers"
        raise DeclarationError("pp-partition-invalid", f"the partition is {where}; pp is {pp}, layers are {layers}")
    return tuple(partition) or tuple(layers // pp + (number >= pp - layers % pp) for number in range(pp))


def _stage(model: ModelFacts | None, settings: Settings, count: int, of: int, *, first: bool, last: bool) -> Stage:
    if model is None or not model.tensor_bytes:
        return Stage(model, None, None)
    by_class = {"embedding": 0, "output": 0, "attention": 0}
    for part in model.tensor_bytes:
        by_class[part.cls] = by_class.get(part.cls, 0) + part.bytes
    tp, embedding, output = settings.tp, by_class.pop("embedding"), by_class.pop("output")
    attention = by_class.pop("attention")
    layers = (sum(by_class.values()) / tp + attention * attention_share(model, tp)) * count / of
    tied = not output and last and not first
    ends = (embedding if first or tied else 0) + (output if last else 0)
    mine = layers + ends * padded_vocabulary(model.geometry) / tp
    in_ram = offloaded(layers, count, settings.offload_gib)
    high = mine * (1 + UNEVEN if tp > 1 else 1) - in_ram.low
    return Stage(model, Interval(mine - in_ram.high, mine - in_ram.best, high, "header"), in_ram)
