"""Combinations that llama-server is known to refuse at boot, found before anything is started.

Sources: ``llama_init_from_model`` and the constructor in src/llama-context.cpp, src/llama-cparams.h and
common/arg.cpp of llama.cpp b11434; each was seen to end in exit 1.
"""

from __future__ import annotations

import re

from archonctl.engines.base import Problem
from archonctl.engines.llamacpp.kv import BUILD, MAX_CONTEXT, MAX_SEQUENCES, QUANTISED, ROW_BLOCKS, KvSettings
from archonctl.engines.llamacpp.offload import Offload
from archonctl.model.geometry import Geometry, Layer

WHOLE_TENSORS_ONLY = frozenset(
    {
        *("grok", "mpt", "plamo2", "minicpm3", "gemma3n", "mamba", "mamba2", "jamba", "falcon-h1", "olmo2", "olmoe"),
        *("deepseek2", "deepseek32", "hy_v4", "dots3note", "glm-dsa", "bitnet", "t5", "nemotron_h", "nemotron_h_moe"),
        *("granitehybrid", "minimax-01", "minimax-m2", "minimax-m3", "mistral4", "kimi-linear", "bailingmoe3"),
        *("kimi-k3", "glm5-next", "qwen3tts"),
    }
)
"""Architectures that --split-mode tensor refuses (``llm_arch_supports_sm_tensor`` in src/llama-arch.cpp)."""
ROW_SPLIT_GONE = 11434
"""The first build that was read whose CUDA backend has no split buffers (ggml/src/ggml-cuda); SYCL's has."""


def refusals(geometry: Geometry | None, settings: KvSettings) -> tuple[Problem, ...]:
    """Everything that is known to end in exit 1, each with both figures."""
    found: list[Problem] = []
    if settings.n_seq_max > MAX_SEQUENCES:
        found.append(
            Problem(
                "llamacpp-too-many-slots",
                f"{settings.n_seq_max:,} slots are wanted, llama-server serves at most {MAX_SEQUENCES}",
                f"lower contract.seqs (or the knob parallel) to {MAX_SEQUENCES}",
            )
        )
    if settings.n_ctx > MAX_CONTEXT:
        found.append(
            Problem(
                "llamacpp-context-too-large",
                f"a context of {settings.n_ctx:,} tokens is wanted, --ctx-size takes at most {MAX_CONTEXT:,}",
                "lower contract.seqs or contract.len",
            )
        )
    if settings.type_v in QUANTISED and not settings.flash_attn:
        found.append(
            Problem(
                "llamacpp-quantised-v",
                f"V is {settings.type_v} while flash-attn is off: llama-server exits at boot",
                f'set the knob flash-attn to "auto", or contract.kv_dtype to "{settings.type_k}/f16"',
            )
        )
    return (*found, *(_geometry_refusals(geometry, settings) if geometry else ()))


def split_refusals(geometry: Geometry | None, settings: KvSettings, offload: Offload, version: str) -> list[Problem]:
    """A --split-mode with which llama-server ends at boot; empty where that is not known."""
    mode, cards = offload.split_mode, offload.devices
    if not cards or mode not in ("row", "tensor"):
        return []
    why = ""
    if mode == "tensor" and geometry and geometry.architecture in WHOLE_TENSORS_ONLY:
        why = f"{geometry.architecture} has no tensor split"
    elif mode == "tensor" and not settings.flash_attn:
        why = "a tensor split needs flash attention, and flash-attn is off"
    elif mode == "row" and all(card.maker in ("nvidia", "amd") for card in cards) and _build(version) >= ROW_SPLIT_GONE:
        why = f"card {cards[0].index} ({cards[0].name}) has no split buffers in this build"
    if not why:
        return []
    hint = "take split-mode out: whole layers are then shared out over the cards"
    return [Problem("llamacpp-split-mode", f"split-mode is {mode}, but {why}: llama-server exits at boot", hint)]


def _build(version: str) -> int:
    """The number of a build; that of the law where none is declared, 0 for a version of another kind."""
    number = re.fullmatch(r"b?(\d+)", version or BUILD)
    return int(number[1]) if number else 0


def _geometry_refusals(geometry: Geometry, settings: KvSettings) -> list[Problem]:
    found: list[Problem] = []
    if settings.type_k != settings.type_v and any(layer.attention == "mla" for layer in geometry.layers):
        found.append(
            Problem(
                "llamacpp-mla-kv-dtype",
                f"{geometry.architecture} keeps one latent row (MLA): K {settings.type_k}, V {settings.type_v}",
                f'name one dtype: contract.kv_dtype = "{settings.type_k}"',
            )
        )
    for side, dtype in (("K", settings.type_k), ("V", settings.type_v)):
        block = ROW_BLOCKS[dtype][0]
        uneven = [layer for layer in geometry.layers if _off_block(layer, side, block, settings.flash_attn)]
        if uneven:
            head = uneven[0].head_dim_k if side == "K" else uneven[0].head_dim_v
            found.append(
                Problem(
                    "llamacpp-kv-dtype-block",
                    f"{side} as {dtype} comes in blocks of {block} values, layer {uneven[0].index} has heads of {head}",
                    'use a dtype without blocks: contract.kv_dtype = "f16"',
                )
            )
    return found


def _off_block(layer: Layer, side: str, block: int, flash_attn: bool) -> bool:
    """With flash attention every head must be whole blocks; without it, at least the row must be."""
    if layer.attention not in ("full", "sliding", "mla") or (side == "V" and layer.attention == "mla"):
        return False
    head, width = (layer.head_dim_k, layer.k_width) if side == "K" else (layer.head_dim_v, layer.v_width)
    return bool((head if flash_attn else width) % block)
