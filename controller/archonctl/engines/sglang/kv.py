"""SGLang's memory pools: tokens from bytes, and bytes from what is free after loading.

Read from SGLang ``srt/model_executor/model_runner.py`` and ``kv_cache_configurator.py`` (profiling, the mamba share),
``srt/mem_cache/memory_pool.py`` and ``swa_memory_pool.py`` (sizes of the pools). "GB" in its log is 2**30 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from archonctl.errors import DeclarationError
from archonctl.model.geometry import Geometry, Layer

KV_BYTES = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1}
KV_BYTES |= {"auto": 2, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2, "half": 2, "float32": 4}
"""Bytes an element by ``--kv-cache-dtype``, or as the log names the dtype (without "torch.")."""
SWA_RATIO = 0.8
"""Tokens of the sliding pool for each of the full one (``--swa-full-tokens-ratio``, server_args.py)."""
MAMBA_RATIO = 0.9
"""Memory of the state pool against the KV pool (``--mamba-full-memory-ratio``, server_args.py)."""
INDEXER_BYTES = 132
"""Indexer key a token and layer: 128 fp8 and a 4-byte scale (``NSATokenToKVPool``)."""


PACKED_ROW_BYTES = 656
"""A latent row of a model with an indexer in fp8: 512 fp8, 4 scales of 4 bytes, 64 bf16 (``NSATokenToKVPool``)."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes a token on one rank: keys and values of full layers, of sliding ones, of indexers and of a draft.

    ``state`` is bytes a request of all recurrent layers on one rank; 0: none, or not known.
    """

    full: int
    sliding: int
    indexer: int = 0
    draft: int = 0
    state: int = 0

    @property
    def token(self) -> int:
        """All but the sliding layers: what a token of the one pool takes."""
        return self.full + self.indexer + self.draft


def element_bytes(dtype: str) -> int:
    """Bytes an element of the cache. Raises DeclarationError ``kv-dtype-unknown``."""
    name = dtype.lower().removeprefix("torch.") or "auto"
    if name not in KV_BYTES:
        raise DeclarationError("kv-dtype-unknown", f"no law for KV dtype {dtype!r}", hint="known: fp8, bf16, fp16")
    return KV_BYTES[name]


def rates(geometry: Geometry, *, tp: int = 1, dtype: str = "auto", draft_layers: int = 0) -> Rates:
    """Bytes a token on one of ``tp`` ranks. A latent row (MLA) is whole on every rank.

    ``draft_layers`` are those of an EAGLE or MTP draft, whose pool SGLang takes to cost what as many layers of the
    target do (pool_configurator.py).
    """
    size = element_bytes(dtype)
    kinds = geometry.kinds
    packed = bool(geometry.indexer_dim) and size == 1
    wide = [(layer, n) for layer, n in kinds if layer.attention in ("full", "mla", "chunked")]
    full = sum(n * _layer(layer, tp, size, packed) for layer, n in wide)
    latents = sum(n for layer, n in wide if layer.attention == "mla")
    indexer = latents * INDEXER_BYTES if geometry.indexer_dim else 0
    layers = sum(n for _, n in wide)
    sliding = sum(n * _layer(layer, tp, size) for layer, n in kinds if layer.attention == "sliding")
    draft = (full + indexer) * draft_layers // layers if layers else 0
    return Rates(full, sliding, indexer, draft, _state(geometry, tp))


def _layer(layer: Layer, tp: int, size: int, packed: bool = False) -> int:
    if layer.attention == "mla":
        return PACKED_ROW_BYTES if packed else layer.k_width * size
    return max(1, layer.kv_heads // tp) * (layer.head_dim_k + layer.head_dim_v) * size


def _state(geometry: Geometry, tp: int) -> int:
    """Bytes a request of all recurrent layers (``mamba_cache_per_req``): bf16 windows, float32 states unless asked."""
    one, count = geometry.recurrent, sum(n for layer, n in geometry.kinds if layer.attention == "recurrent")
    if one is None:
        return 0
    return count * (one.conv_elements // tp * 2 + one.ssm_elements // tp * (one.ssm_element_bytes or 4))


TWO_POOLS = ("gptoss", "llama4", "gemma4", "mimov2", "step3", "laguna", "mellum", "inkling")
"""Architectures whose windows SGLang keeps in a pool of their own (``is_hybrid_swa_model`` in
srt/configs/model_config.py of 0.5.8 to 0.5.23). All others keep them as if they were full: Gemma 3, Mistral, Phi-3.
"""
TWO_POOLS_SINCE = (0, 5, 8)
"""Before, two pools had to be asked for (--hybrid-kvcache-ratio)."""


def two_pools(names: str, version: str) -> bool:
    """Whether a model has a pool for its windows. ``names``: architecture or name; an unread version is a newer one."""
    match = re.search(r"(?<![\d.])v?(\d+)\.(\d+)\.(\d+)", version)
    if match and tuple(map(int, match.groups())) < TWO_POOLS_SINCE:
        return False
    plain = re.sub(r"[^a-z0-9]", "", names.lower())
    return any(each in plain for each in TWO_POOLS)


def in_one_pool(each: Rates) -> Rates:
    """Windows kept like full layers: one pool, one rate."""
    return replace(each, full=each.full + each.sliding, sliding=0)


def pool_tokens(pool_bytes: float, token_bytes: int, page: int = 1) -> int:
    """Tokens of one pool, in whole pages. Raises ValueError where a token takes nothing."""
    if token_bytes <= 0:
        raise ValueError("no layer of this pool keeps anything")
    return max(0, int(pool_bytes // token_bytes) // page * page)


def swa_tokens(pool_bytes: float, each: Rates, page: int = 1, ratio: float = SWA_RATIO) -> tuple[int, int]:
    """Tokens of the full and of the sliding pool, which share ``pool_bytes`` at a fixed ratio of tokens.

    Without a full layer there is one pool and no ratio (``HybridSWAPoolConfigurator``): both figures are its tokens.
    """
    if not each.full:
        alone = max(0, int(pool_bytes / (each.sliding + each.draft))) // page * page
        return alone, alone
    full = max(0, int(pool_bytes / (each.token + ratio * each.sliding)) // page * page)
    return full, int(full * ratio) // page * page


def static_bytes(free_before: float, free_after: float, fraction: float) -> float:
    """What ``--mem-fraction-static`` leaves for all pools of a rank, in the unit of the free memory given."""
    return free_after - free_before * (1 - fraction)


def kv_share(pool_bytes: float, ratio: float = MAMBA_RATIO, state: int = 0, states: int = 0) -> float:
    """The part of the pools that is left for keys and values beside recurrent states.

    In whole states where the bytes of one are known; ``states`` is --max-mamba-cache-size, which overrides the ratio
    (``handle_max_mamba_cache`` of srt/model_executor/model_runner.py).
    """
    if not state:
        return pool_bytes / (1 + ratio)
    return pool_bytes - (states or int(max(0.0, pool_bytes) * ratio / (1 + ratio) // state)) * state
