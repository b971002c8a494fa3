"""Which device of llama-server holds which weights and which cells.

Read from llama.cpp b11434, and compared there with ``llama-fit-params`` over the RPC backend, whose devices count as
GPUs (tests/golden/llamacpp_devices.json): ``load_tensors`` in src/llama-model.cpp (split points, input and output),
``create_tensor`` in src/llama-model-loader.cpp (overrides, a tied output), src/llama-kv-cache.cpp (cells follow their
layer), ``llama_prepare_model_devices`` in src/llama.cpp (order and main GPU) and common/arg.cpp (which flags override).
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from archonctl.engines.llamacpp.kv import KvAllocation, KvSettings, layer_bytes
from archonctl.engines.llamacpp.offload import Offload
from archonctl.model.geometry import Geometry, ModelFacts

_BLOCK = re.compile(r"blk\.(\d+)\.")
_INPUT = re.compile(r"(token_embd|position_embd|token_types|per_layer_token_embd)\.")
"""Tensors of LLM_TENSOR_LAYER_INPUT (src/llama-arch.cpp): they stay in RAM whatever is offloaded."""
_OUTPUT = re.compile(r"(output|cls|dec\.output|enc\.output)")
EMBEDDING = "token_embd.weight"
OUTPUT = 1 << 31


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """What one device holds. ``device`` counts the devices in use from 0; None is RAM."""

    device: int | None
    weights: int
    kv: int
    layers: int


def place(
    model: ModelFacts,
    geometry: Geometry,
    settings: KvSettings,
    kv: KvAllocation,
    offload: Offload,
    free: Sequence[float],
) -> tuple[DeviceShare, ...]:
    """RAM first, then each of the ``len(free)`` devices; ``free`` is their free memory, in any unit.

    Raises ValueError where the tensors are not known one by one.
    """
    if not model.tensor_sizes:
        raise ValueError("the tensors are not known one by one")
    where = layer_devices(len(geometry.layers), offload, free)
    weights: dict[int | None, int] = {}
    for name, size in model.tensor_sizes:
        device = _tensor_device(name, where, offload)
        weights[device] = weights.get(device, 0) + size
        if name == EMBEDDING and where[-1] is not None and not _has_output(model):
            # A tied output is loaded a second time, onto the device of the output.
            weights[where[-1]] = weights.get(where[-1], 0) + size
    cells: dict[int | None, int] = {}
    for layer, size in enumerate(layer_bytes(geometry, settings, kv)):
        device = where[layer] if offload.kv_offload else None
        cells[device] = cells.get(device, 0) + size
    devices: tuple[int | None, ...] = (None, *range(len(free)))
    return tuple(DeviceShare(d, weights.get(d, 0), cells.get(d, 0), where[:-1].count(d)) for d in devices)


def layer_devices(layers: int, offload: Offload, free: Sequence[float]) -> list[int | None]:
    """The device of each layer, and last that of the output; None is RAM."""
    wanted = layers + 1 if offload.gpu_layers is None else offload.gpu_layers
    first = max(layers + 1 - wanted, 0)
    count = min(wanted, layers + 1) if free else 0
    if len(free) == 1:
        return [None if il < first or il - first >= count else 0 for il in range(layers + 1)]
    points = _split_points(offload.tensor_split, free)
    return [
        None if il < first or il - first >= count else bisect_right(points, _f32(_f32(il - first) / count))
        for il in range(layers + 1)
    ]


def _split_points(split: Sequence[float], free: Sequence[float]) -> list[float]:
    """Where the devices end, as shares of the offloaded layers, in the engine's own single precision."""
    given = [split[i] if i < len(split) else 0.0 for i in range(len(free))]
    sizes = given if any(given) else [float(size) for size in free]
    sums = list(accumulate((_f32(size) for size in sizes), lambda a, b: _f32(a + b)))
    return [_f32(each / sums[-1]) for each in sums] if sums and sums[-1] else []


def _f32(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def _tensor_device(name: str, where: Sequence[int | None], offload: Offload) -> int | None:
    for pattern, target in offload.overrides:
        if pattern.search(name):
            return target
    home = _home(name)
    return None if home is None else where[min(home, len(where) - 1)]


@lru_cache(maxsize=1 << 16)
def _home(name: str) -> int | None:
    """The layer that a tensor goes with, OUTPUT for the last; None stays in RAM. Asked again for each split tried."""
    if block := _BLOCK.match(name):
        return int(block[1])
    if _INPUT.match(name):
        return None
    return OUTPUT if _OUTPUT.match(name) else 0


def _has_output(model: ModelFacts) -> bool:
    return any(name == "output.weight" for name, _ in model.tensor_sizes)
