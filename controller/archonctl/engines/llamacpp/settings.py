"""From a declaration to the settings that decide llama-server's memory.

Knobs are honoured where they are declared; what is not declared is derived **from the contract**, so that the
contract holds by construction. Only the two dozen knobs that matter for capacity are known here: the whole table
(``knobs.toml``) is read when a command line is rendered, not for a plan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from archonctl.deployment.schema import Endpoint
from archonctl.engines.llamacpp.declared import DeclaredKnobs
from archonctl.engines.llamacpp.draft import Speculation, speculation_of
from archonctl.engines.llamacpp.kv import DEFAULT_BATCH, DEFAULT_UBATCH, ROW_BLOCKS, KvSettings, pad
from archonctl.errors import DeclarationError
from archonctl.model.geometry import ModelFacts

AUTO_SLOTS = 4
"""What ``--parallel -1`` becomes, with a unified cache (tools/server/server.cpp, b11434)."""
DEFAULT_CACHE_RAM_MIB = 8192
DEFAULT_CHECKPOINTS = 32

_CONTEXT_OVERRIDE = re.compile(r"(?:^|,)[\w.-]+\.context_length=int:(\d+)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The declaration as llama-server will understand it.

    ``keys`` maps canonical knob names to the spelling in the declaration, for messages and levers.
    ``slots_auto`` is True for ``parallel = -1``. ``cache_ram_mib`` -1 means without limit.
    """

    kv: KvSettings
    keys: Mapping[str, str]
    flash_attn: str
    slots_auto: bool
    cache_ram_mib: int
    checkpoints: int
    rope_scaling: str
    rope_scale: float
    yarn_orig_ctx: int
    context_override: int
    offload: bool | None
    """True if offloading to cards is asked for, False if it is ruled out, None where llama-server decides."""
    extras: tuple[str, ...]
    """Declared knobs that take memory which no law here covers."""
    projector_offload: bool = True
    """Whether a multimodal projector is put on a card."""
    speculation: Speculation = field(default_factory=Speculation)

    def declares(self, name: str) -> bool:
        """True if the knob is written down, rather than derived from the contract."""
        return name in self.keys


def settings_of(endpoint: Endpoint) -> Settings:
    """The settings of one declaration.

    Raises DeclarationError: ``knob-in-environment``, ``knob-twice``, ``knob-bad-value``, ``kv-dtype-unknown``,
    ``kv-dtype-conflict``.
    """
    _check_environment(endpoint.engine.env)
    knobs = DeclaredKnobs(endpoint.engine.knobs)
    auto = knobs.number("parallel", 1, minimum=-1) == -1
    flash_attn = knobs.word("flash-attn", ("on", "off", "auto"), "auto")
    type_k, type_v = _cache_types(endpoint, knobs)
    overridden = _CONTEXT_OVERRIDE.search(knobs.text("override-kv"))
    return Settings(
        kv=KvSettings(
            n_ctx=_context(endpoint, knobs),
            n_seq_max=_slots(endpoint, knobs),
            kv_unified=_unified(knobs),
            type_k=type_k,
            type_v=type_v,
            n_batch=knobs.number("batch-size", DEFAULT_BATCH, minimum=1),
            n_ubatch=knobs.number("ubatch-size", DEFAULT_UBATCH),
            swa_full=knobs.switch("swa-full", False),
            flash_attn=flash_attn != "off",
            fit=knobs.word("fit", ("on", "off"), "on") == "on",
            slot_cap=knobs.number("kv-unified-per-slot", 0),
        ),
        keys=knobs.keys,
        flash_attn=flash_attn,
        slots_auto=auto,
        cache_ram_mib=knobs.number("cache-ram", DEFAULT_CACHE_RAM_MIB, minimum=-1),
        checkpoints=knobs.number("ctx-checkpoints", DEFAULT_CHECKPOINTS),
        rope_scaling=knobs.word("rope-scaling", ("none", "linear", "yarn"), ""),
        rope_scale=_rope_scale(knobs),
        yarn_orig_ctx=knobs.number("yarn-orig-ctx", 0),
        context_override=int(overridden[1]) if overridden else 0,
        offload=_offload(knobs),
        extras=tuple(knobs.keys[name] for name in _UNMODELLED if knobs.text(name) not in ("", "none", "False")),
        projector_offload=knobs.switch("mmproj-offload", not knobs.switch("no-mmproj-offload", False)),
        speculation=speculation_of(knobs),
    )


def _check_environment(env: Mapping[str, str]) -> None:
    """llama-server takes every flag from a variable as well; one declared there would be a knob that no plan sees."""
    for variable in env:
        if variable.startswith("LLAMA_ARG_") or variable == "LLAMA_API_KEY":
            name = variable.removeprefix("LLAMA_ARG_").lower().replace("_", "-")
            instead = "set service.api_key_file" if "API_KEY" in variable else f"set it under engine.knobs ({name}?)"
            raise DeclarationError(
                "knob-in-environment",
                f"{variable} in engine.env is a flag of llama-server in disguise: it would escape plan and gate",
                where=f"engine.env.{variable}",
                hint=instead,
            )


_UNMODELLED = (
    "spec-default",
    "lora",
    "lora-scaled",
    "control-vector",
    "embedding",
    "rerank",
)


def _slots(endpoint: Endpoint, knobs: DeclaredKnobs) -> int:
    slots = knobs.number("parallel", endpoint.contract.seqs, minimum=-1)
    if slots == 0:
        raise DeclarationError(
            "knob-bad-value",
            "knob parallel is 0; --parallel takes a number of slots from 1, or -1 for auto",
            where=f"engine.knobs.{knobs.keys['parallel']}",
        )
    return AUTO_SLOTS if slots == -1 else slots


def _unified(knobs: DeclaredKnobs) -> bool:
    """``parallel = -1`` makes the cache unified whatever else is said (tools/server/server.cpp)."""
    if "kv-unified" in knobs.values and "no-kv-unified" in knobs.values:
        raise DeclarationError(
            "knob-twice",
            f"knobs {knobs.keys['kv-unified']!r} and {knobs.keys['no-kv-unified']!r} set the same switch",
            where=f"engine.knobs.{knobs.keys['no-kv-unified']}",
            hint="keep one of them",
        )
    asked = knobs.switch("kv-unified", not knobs.switch("no-kv-unified", True))
    return asked or knobs.number("parallel", 1, minimum=-1) == -1


def _context(endpoint: Endpoint, knobs: DeclaredKnobs) -> int:
    if "ctx-size" in knobs.values:
        cap = knobs.number("kv-unified-per-slot", 0)
        if knobs.number("ctx-size", 0) == 0 and cap and "fit-ctx" in knobs.values:
            return _slots(endpoint, knobs) * cap  # tools/server/server.cpp ``ctx_pool_auto_sized``
        return knobs.number("ctx-size", 0)
    return contract_context(endpoint, _slots(endpoint, knobs), _unified(knobs))


def contract_context(endpoint: Endpoint, slots: int, unified: bool) -> int:
    """The smallest --ctx-size (tokens) that funds the contract and its margin for ``slots`` slots.

    Every stream is rounded up to 256 cells, so the figure is what the engine will report, unchanged.
    """
    contract = endpoint.contract
    if unified:
        return pad(contract.tokens_with_margin)
    return slots * pad(math.ceil(contract.tokens_with_margin / contract.seqs))


def _cache_types(endpoint: Endpoint, knobs: DeclaredKnobs) -> tuple[str, str]:
    declared = endpoint.contract.kv_dtype
    k, _, v = declared.partition("/")
    sides = {"K": ("cache-type-k", k), "V": ("cache-type-v", v or k)}
    for side, (name, dtype) in sides.items():
        if dtype not in ROW_BLOCKS:
            near = "q8_0" if re.search("8", dtype) else "q4_0" if re.search("4", dtype) else "f16"
            raise DeclarationError(
                "kv-dtype-unknown",
                f"llama.cpp has no KV dtype {dtype!r}; it knows {', '.join(ROW_BLOCKS)}",
                where="contract.kv_dtype",
                hint=f'the nearest is "{near}"; K and V may differ, as in "q8_0/f16"',
            )
        if name in knobs.values and str(knobs.values[name]) != dtype:
            raise DeclarationError(
                "kv-dtype-conflict",
                f"contract.kv_dtype says {declared!r}, so {side} is {dtype}; "
                f"knob {knobs.keys[name]} says {knobs.values[name]!r}",
                where=f"engine.knobs.{knobs.keys[name]}",
                hint="take the knob out: the contract names the dtype",
            )
    return k, v or k


def _rope_scale(knobs: DeclaredKnobs) -> float:
    """The factor by which positions are stretched: --rope-scale N, or 1/--rope-freq-scale; 0 if neither is said."""
    if "rope-scale" in knobs.values:
        return knobs.decimal("rope-scale")
    inverse = knobs.decimal("rope-freq-scale")
    return 1 / inverse if inverse else 0.0


def _offload(knobs: DeclaredKnobs) -> bool | None:
    layers = knobs.text("gpu-layers").strip()
    if layers == "0" or knobs.text("device").strip() == "none":
        return False
    return None if layers in ("", "auto", "-1") else True


def adapted(settings: Settings, model: ModelFacts | None) -> Settings:
    """The same settings as this model changes them: the slot cap that YaRN gives, and states kept for drafting.

    llama-server caps a slot at the trained context; only YaRN with a factor of its own moves that cap
    (``llama_init_from_model`` in src/llama-context.cpp), linear scaling does not.
    """
    if model is None or model.geometry is None:
        return settings
    if states := settings.speculation.states(model.geometry.architecture):
        settings = replace(settings, kv=replace(settings.kv, kept_states=states))
    head, metadata = f"{model.geometry.architecture}.rope.scaling", model.metadata or {}
    scaling = settings.rope_scaling or metadata.get(f"{head}.type", "")
    if scaling != "yarn" or settings.rope_scale in (0.0, metadata.get(f"{head}.factor")):
        return settings
    original = settings.yarn_orig_ctx or metadata.get(f"{head}.original_context_length", 0)
    base = original if isinstance(original, int) and original > 0 else trained_context(settings, model)
    return replace(settings, kv=replace(settings.kv, stretched_context=int(base * settings.rope_scale)))


def trained_context(settings: Settings, model: ModelFacts | None) -> int:
    """The trained context in tokens, as the server will see it; 0 where it is unknown."""
    if settings.context_override:
        return settings.context_override
    return model.geometry.trained_context if model and model.geometry else 0
