"""From a declaration to the settings that decide vLLM's cache.

Knobs are honoured where they are declared; what is not declared is derived from the contract or takes vLLM's default,
and is written on the command line, so that the engine runs what was planned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from archonctl.deployment.schema import Endpoint
from archonctl.engines.beside import Lora
from archonctl.engines.declared import DeclaredKnobs
from archonctl.engines.vllm.drafts import Drafts, drafts_of
from archonctl.engines.vllm.layers import KV_BYTES
from archonctl.engines.vllm.rules import NEWEST, Rules, rules_for, version_of
from archonctl.errors import DeclarationError

ALIASES: Mapping[str, str] = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "dcp": "decode-context-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "dp": "data-parallel-size",
}
"""Short spellings of vllm/engine/arg_utils.py (0.32.0)."""

UTILISATION = 0.90
UTILISATION_SINCE_020 = 0.92
"""CacheConfig.gpu_memory_utilization (vllm/config/cache.py): 0.9 up to 0.19.1, 0.92 from 0.20.0."""
BATCHED_TOKENS = 2048
"""max_num_batched_tokens of a server on cards below 70 GiB, and for each rank on CPUs (vllm/engine/arg_utils.py)."""
CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
PARTITION = "VLLM_PP_LAYER_PARTITION"
ESTIMATE = "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS"
BACKEND = "VLLM_ATTENTION_BACKEND"
"""How the backend was asked for before there was --attention-backend (vllm/envs.py up to 0.13)."""
MODEL_DTYPE = frozenset({"auto", "f16", "bf16", "fp16", "float16", "bfloat16", "half"})
"""Contract dtypes that mean a cache in the model's own 16-bit dtype (``--kv-cache-dtype auto``)."""

_NO_LAW = ("hf-overrides",)
"""Knobs that add or change layers with a cache: with one of them the pool is unknown."""
_UNMODELLED = (
    "speculative-config",
    "kv-transfer-config",
    "kv-offloading-size",
    "cpu-offload-params",
    "offload-group-size",
    "enable-expert-parallel",
    "data-parallel-size",
    "hf-overrides",
    "rope-scaling",
    "enable-dbo",
    "calculate-kv-scales",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The declaration as vLLM will understand it. Sizes in tokens, bytes or shares, as named.

    ``kv_memory_bytes``, ``blocks_override``, ``block_tokens`` and ``mamba_block_tokens`` are 0 where nothing is said.
    ``cpu_space_gib`` is 0 where the CPU backend is meant and its space is not set; ``keys`` as in ``DeclaredKnobs``.
    """

    rules: Rules
    cpu: bool
    cpu_space_gib: int
    tp: int
    pp: int
    context_shards: int
    partition: tuple[int, ...]
    max_model_len: int
    max_num_seqs: int
    batched_tokens: int
    utilisation: float
    kv_memory_bytes: int
    blocks_override: int
    block_tokens: int
    backend: str
    kv_dtype: str
    model_bytes: int
    prefix_caching: bool | None
    mamba_mode: str
    ssm_bytes: int
    async_scheduling: bool
    drafts: Drafts
    hybrid_manager: bool
    lora: Lora | None
    """Slots of adapters; defaults are those of vllm/config/lora.py (0.32.0)."""
    offload_gib: float
    """--cpu-offload-gb: GiB of a rank's layers that stay in RAM."""
    graphs: bool
    """False with --enforce-eager."""
    graphs_counted: bool | None
    """What VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS says; None where it says nothing."""
    images: bool
    """False with --language-model-only, or where --limit-mm-per-prompt allows none of any kind."""
    keys: Mapping[str, str]
    extras: tuple[str, ...]
    """Declared knobs that move memory or tokens in ways that no law here covers."""
    no_law: tuple[str, ...]
    """Those of them with which not even the pool can be worked out."""

    @property
    def ranks(self) -> int:
        """Cards that hold a part of the model."""
        return self.tp * self.pp

    def declares(self, name: str) -> bool:
        """True if the knob is written down, rather than derived."""
        return name in self.keys


def settings_of(endpoint: Endpoint) -> Settings:
    """The settings of one declaration.

    Raises DeclarationError: ``knob-twice``, ``knob-bad-value``, ``kv-dtype-unknown``, ``kv-dtype-conflict``.
    """
    knobs = DeclaredKnobs(endpoint.engine.knobs, ALIASES)
    rules = rules_for(version_of(endpoint.engine.version) or NEWEST)
    drafts = drafts_of(knobs.text("speculative-config"))
    cpu = CPU_SPACE in endpoint.engine.env or "cpu" in endpoint.engine.version.lower()
    tp = knobs.number("tensor-parallel-size", 1, minimum=1)
    pp = knobs.number("pipeline-parallel-size", 1, minimum=1)
    prefill, shared = knobs.number("prefill-context-parallel-size", 1, minimum=1), rules.prefill_shards
    batched = BATCHED_TOKENS * (tp * pp if cpu else 1)
    seqs = knobs.number("max-num-seqs", endpoint.contract.seqs, minimum=1)
    ssm = knobs.word("mamba-ssm-cache-dtype", ("auto", "float32", "float16", "bfloat16"), "auto")
    return Settings(
        rules=rules,
        cpu=cpu,
        cpu_space_gib=_cpu_space(endpoint.engine.env),
        tp=tp,
        pp=pp,
        context_shards=knobs.number("decode-context-parallel-size", 1, minimum=1) * (prefill if shared else 1),
        partition=_partition(endpoint.engine.env),
        max_model_len=knobs.number("max-model-len", endpoint.contract.len, minimum=1),
        max_num_seqs=seqs,
        batched_tokens=knobs.number("max-num-batched-tokens", max(batched, seqs), minimum=1),
        utilisation=_utilisation(knobs, rules),
        kv_memory_bytes=knobs.number("kv-cache-memory-bytes", 0, minimum=1),
        blocks_override=knobs.number("num-gpu-blocks-override", 0, minimum=1),
        block_tokens=knobs.number("block-size", 0, minimum=1),
        backend=knobs.text("attention-backend").strip() or endpoint.engine.env.get(BACKEND, "").strip(),
        kv_dtype=_kv_dtype(endpoint, knobs),
        model_bytes=4 if knobs.text("dtype").strip() in ("float32", "float") else 2,
        prefix_caching=_either(knobs, "enable-prefix-caching", "no-enable-prefix-caching"),
        mamba_mode=knobs.word("mamba-cache-mode", ("none", "all", "align", ""), ""),
        ssm_bytes={"auto": 0, "float32": 4}.get(ssm, 2),
        async_scheduling=_either(knobs, "async-scheduling", "no-async-scheduling") is not False and drafts.overlaps,
        drafts=drafts,
        hybrid_manager=not knobs.switch("disable-hybrid-kv-cache-manager", False),
        lora=_lora(knobs),
        offload_gib=knobs.decimal("cpu-offload-gb", zero=True),
        graphs=not knobs.switch("enforce-eager", False),
        graphs_counted={"0": False, "1": True}.get(endpoint.engine.env.get(ESTIMATE, "").strip()),
        images=not knobs.switch("language-model-only", False) and not _no_media(knobs.text("limit-mm-per-prompt")),
        keys=knobs.keys,
        extras=tuple(knobs.keys[name] for name in _UNMODELLED if knobs.text(name) not in ("", "False", "0", "1")),
        no_law=(
            *(knobs.keys[name] for name in _NO_LAW if knobs.text(name)),
            *(knobs.keys[name] for name in ("mamba-cache-mode",) if knobs.text(name).strip() == "all"),
            *(knobs.keys[name] for name in ("speculative-config",) if not drafts.known),
        ),
    )


def _either(knobs: DeclaredKnobs, positive: str, negative: str) -> bool | None:
    """A switch with two spellings; None where neither is declared."""
    if positive in knobs.values and negative in knobs.values:
        raise DeclarationError(
            "knob-twice",
            f"knobs {knobs.keys[positive]!r} and {knobs.keys[negative]!r} set the same switch",
            where=f"engine.knobs.{knobs.keys[negative]}",
            hint="keep one of them",
        )
    if positive in knobs.values:
        return knobs.switch(positive, True)
    return not knobs.switch(negative, True) if negative in knobs.values else None


def _utilisation(knobs: DeclaredKnobs, rules: Rules) -> float:
    share = knobs.decimal("gpu-memory-utilization")
    if share > 1:
        raise DeclarationError(
            "knob-bad-value",
            f"gpu-memory-utilization is {share:g}; it is a share of the card, above 0 and at most 1",
            where=f"engine.knobs.{knobs.keys['gpu-memory-utilization']}",
        )
    return share or (UTILISATION_SINCE_020 if rules.version >= (0, 20) else UTILISATION)


def _no_media(limits: str) -> bool:
    """True where a limit is named for images, and every limit is 0."""
    counts = dict(re.findall(r"(image|video|audio)\W{0,4}[:=]\s*(\d+)", limits))
    return "image" in counts and set(counts.values()) == {"0"}


def _lora(knobs: DeclaredKnobs) -> Lora | None:
    if not knobs.switch("enable-lora", False):
        return None
    return Lora(knobs.number("max-loras", 1, minimum=1), knobs.number("max-lora-rank", 16, minimum=1))


def _kv_dtype(endpoint: Endpoint, knobs: DeclaredKnobs) -> str:
    """The contract's dtype as ``--kv-cache-dtype`` has it."""
    declared = endpoint.contract.kv_dtype
    dtype = "auto" if declared in MODEL_DTYPE else declared
    if dtype not in KV_BYTES:
        raise DeclarationError(
            "kv-dtype-unknown",
            f"no law for a vLLM cache of {declared!r}; there is one for f16 (the model's own), "
            f"{', '.join(sorted(KV_BYTES.keys() - MODEL_DTYPE))}",
            where="contract.kv_dtype",
            hint='the usual ones are "f16" and "fp8"',
        )
    said = knobs.text("kv-cache-dtype").strip()
    if said and ("auto" if said in MODEL_DTYPE else said) != dtype:
        raise DeclarationError(
            "kv-dtype-conflict",
            f"contract.kv_dtype says {declared!r}; knob {knobs.keys['kv-cache-dtype']} says {said!r}",
            where=f"engine.knobs.{knobs.keys['kv-cache-dtype']}",
            hint="take the knob out: the contract names the dtype",
        )
    return dtype


def _cpu_space(env: Mapping[str, str]) -> int:
    text = env.get(CPU_SPACE, "").strip()
    if text and not re.fullmatch(r"\d{1,6}", text):
        raise DeclarationError(
            "knob-bad-value",
            f"{CPU_SPACE} is {text[:40]!r}; it is a whole number of GiB",
            where=f"engine.env.{CPU_SPACE}",
        )
    return int(text or 0)


def _partition(env: Mapping[str, str]) -> tuple[int, ...]:
    text = env.get(PARTITION, "").strip()
    if text and not re.fullmatch(r"\d{1,4}(,\d{1,4}){0,255}", text):
        raise DeclarationError(
            "knob-bad-value",
            f"{PARTITION} is {text[:40]!r}; it is layers a stage, such as 20,20,20",
            where=f"engine.env.{PARTITION}",
        )
    return tuple(map(int, text.split(","))) if text else ()
