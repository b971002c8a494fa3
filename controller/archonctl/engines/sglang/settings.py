"""From a declaration to the settings that decide SGLang's pools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.deployment.schema import Boot, Endpoint, KnobValue
from archonctl.engines.beside import Lora, Shape
from archonctl.engines.declared import DeclaredKnobs
from archonctl.engines.sglang.kv import KV_BYTES, MAMBA_RATIO, SWA_RATIO
from archonctl.errors import DeclarationError

ALIASES: Mapping[str, str] = {
    "tp": "tp-size",
    "tensor-parallel-size": "tp-size",
    "pp": "pp-size",
    "pipeline-parallel-size": "pp-size",
    "dp": "dp-size",
    "data-parallel-size": "dp-size",
    "model": "model-path",
}
"""Other spellings of srt/server_args.py (0.5)."""

DTYPES: Mapping[str, str] = {"f16": "auto", "fp16": "auto", "float16": "auto", "half": "auto", "fp8": "fp8_e5m2"}
"""What ``--kv-cache-dtype`` takes for a dtype that it has no word for: the model's own, and the older fp8."""

CHUNK_TOKENS, PREFILL_TOKENS, LORAS = 8192, 16384, 8
"""chunked_prefill_size of cards from 60 GiB on (less on smaller ones), max_prefill_tokens, max_loras_per_batch."""

PARTITION = "SGLANG_PP_LAYER_PARTITION"
DRAFTS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "MTP", "STANDALONE"})
"""Algorithms whose draft has a pool of its own (``is_eagle``, ``is_standalone`` in srt/speculative/spec_info.py)."""

_UNMODELLED = (
    "speculative-algorithm",
    "speculative-draft-model-path",
    "enable-lora",
    "enable-hierarchical-cache",
    "dp-size",
    "enable-dp-attention",
    "offload-group-size",
    "disaggregation-mode",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The declaration as SGLang will understand it. ``fraction``, ``cap_tokens`` are 0 where nothing is said."""

    tp: int
    pp: int
    partition: tuple[int, ...]
    """SGLANG_PP_LAYER_PARTITION: layers of each stage."""
    offload_gib: float
    """--cpu-offload-gb: GiB of a rank's layers that stay in RAM."""
    page: int
    context_tokens: int
    running: int
    fraction: float
    cap_tokens: int
    kv_dtype: str
    swa_ratio: float
    mamba_ratio: float
    window_pool: bool
    """False with --disable-hybrid-swa-memory."""
    states: int
    """--max-mamba-cache-size: recurrent states in all, whatever the ratio; 0: by the ratio."""
    drafts: bool
    """True with a draft whose keys and values lie in a pool beside the target's (EAGLE, MTP)."""
    extras: tuple[str, ...]
    """Declared knobs that move memory in ways that no law here covers."""

    @property
    def ranks(self) -> int:
        """Cards that hold a part of the model."""
        return self.tp * self.pp


def settings_of(endpoint: Endpoint) -> Settings:
    """The settings of one declaration.

    Raises DeclarationError ``knob-twice``, ``knob-bad-value``, ``kv-dtype-unknown`` or ``kv-dtype-conflict``.
    """
    knobs = DeclaredKnobs(endpoint.engine.knobs, ALIASES)
    fraction = knobs.decimal("mem-fraction-static")
    if fraction >= 1:
        raise DeclarationError(
            "knob-bad-value",
            f"mem-fraction-static is {fraction:g}; it is a share of the card, above 0 and below 1",
            where=f"engine.knobs.{knobs.keys['mem-fraction-static']}",
        )
    return Settings(
        tp=knobs.number("tp-size", 1, minimum=1),
        pp=knobs.number("pp-size", 1, minimum=1),
        partition=_partition(endpoint.engine.env.get(PARTITION, "").strip()),
        offload_gib=knobs.decimal("cpu-offload-gb", zero=True),
        page=knobs.number("page-size", 1, minimum=1),
        context_tokens=knobs.number("context-length", endpoint.contract.len, minimum=1),
        running=knobs.number("max-running-requests", endpoint.contract.seqs, minimum=1),
        fraction=fraction,
        cap_tokens=knobs.number("max-total-tokens", 0, minimum=1),
        kv_dtype=_kv_dtype(endpoint, knobs),
        swa_ratio=knobs.decimal("swa-full-tokens-ratio") or SWA_RATIO,
        mamba_ratio=knobs.decimal("mamba-full-memory-ratio") or MAMBA_RATIO,
        window_pool=not knobs.switch("disable-hybrid-swa-memory", False),
        states=knobs.number("max-mamba-cache-size", 0, minimum=1),
        drafts=knobs.text("speculative-algorithm").upper() in DRAFTS,
        extras=tuple(
            knobs.keys[name] for name in _UNMODELLED if knobs.text(name) not in ("", "False", "0", "1", "null")
        ),
    )


def shape_of(endpoint: Endpoint, settings: Settings) -> Shape:
    """What decides activations, graphs and LoRA slots. Defaults are those of srt/server_args.py (0.5)."""
    knobs = DeclaredKnobs(endpoint.engine.knobs, ALIASES)
    chunk = knobs.number("chunked-prefill-size", CHUNK_TOKENS, minimum=-1)
    lora = knobs.switch("enable-lora", False) or "lora-paths" in knobs.values
    rank = knobs.number("max-lora-rank", 0, minimum=1)
    return Shape(
        engine="sglang",
        tp=settings.tp,
        ranks=settings.ranks,
        tokens=chunk if chunk > 0 else knobs.number("max-prefill-tokens", PREFILL_TOKENS, minimum=1),
        seqs=settings.running,
        graphs=not knobs.switch("disable-cuda-graph", False),
        lora=Lora(knobs.number("max-loras-per-batch", LORAS, minimum=1), rank) if lora and rank else None,
    )


def _partition(text: str) -> tuple[int, ...]:
    if text and not re.fullmatch(r"\d{1,4}(,\d{1,4}){0,255}", text):
        raise DeclarationError(
            "knob-bad-value",
            f"{PARTITION} is {text[:40]!r}; it is layers a stage, such as 20,20,20",
            where=f"engine.env.{PARTITION}",
        )
    return tuple(map(int, text.split(","))) if text else ()


def _kv_dtype(endpoint: Endpoint, knobs: DeclaredKnobs) -> str:
    declared = endpoint.contract.kv_dtype
    dtype = DTYPES.get(declared, declared)
    if dtype not in KV_BYTES:
        raise DeclarationError(
            "kv-dtype-unknown",
            f"no law for an SGLang cache of {declared!r}; there is one for f16 (the model's own), bf16, fp8_e4m3 and "
            "fp8_e5m2",
            where="contract.kv_dtype",
            hint='the usual ones are "f16" and "fp8_e4m3"',
        )
    said = knobs.text("kv-cache-dtype").strip()
    if said and DTYPES.get(said, said) != dtype:
        raise DeclarationError(
            "kv-dtype-conflict",
            f"contract.kv_dtype says {declared!r}; knob {knobs.keys['kv-cache-dtype']} says {said!r}",
            where=f"engine.knobs.{knobs.keys['kv-cache-dtype']}",
            hint="take the knob out: the contract names the dtype",
        )
    return dtype


def boot_endpoint(endpoint: Endpoint, boot: Boot) -> Endpoint:
    """The declaration as it was at that boot."""
    knobs: dict[str, KnobValue] = {**endpoint.engine.knobs, **boot.knobs}
    contract = endpoint.contract.model_copy(update={"seqs": boot.seqs, "len": boot.len, "kv_dtype": boot.kv_dtype})
    engine = endpoint.engine.model_copy(update={"version": boot.engine_version, "knobs": knobs})
    return endpoint.model_copy(update={"contract": contract, "engine": engine})
