"""The second context of speculative decoding: a draft model's, or that of the model's own multi-token layers.

Read from llama.cpp b11434: ``common_base_params_to_speculative`` and ``common_speculative_init_result`` in
common/speculative.cpp (same context, slots and batches as the model, cache dtypes of its own), ``need_n_rs_seq`` in
common/common.h, ``llm_arch_supports_rs_rollback`` in src/llama-arch.cpp, ``create_memory`` in src/llama-model.cpp.
Both contexts were compared with boot logs (tests/integration/engines); the states kept for drafted tokens were not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from archonctl.engines.llamacpp import memory
from archonctl.engines.llamacpp.declared import DeclaredKnobs
from archonctl.engines.llamacpp.kv import ROW_BLOCKS, KvAllocation, KvSettings, allocate
from archonctl.memory.interval import Interval
from archonctl.model.geometry import Geometry, ModelFacts

DEFAULT_DRAFTED = 3
"""``--spec-draft-n-max``."""
MTP = "draft-mtp"
_KEEP_STATES = frozenset({MTP, "draft-eagle3", "draft-dflash", "draft-dspark"})
_ROLL_BACK = frozenset(
    {"kimi-k3", "qwen35", "qwen35moe", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe", "bailingmoe3"}
)
"""Architectures that keep a state for each drafted token, so that a rejected one can be taken back."""
_OF_ITS_OWN = frozenset({"draft-eagle3", "draft-dflash", "draft-dspark"})


@dataclass(frozen=True, slots=True)
class Speculation:
    """What is declared of it. ``types`` are those of ``--spec-type``; ``gpu_layers`` None: as many as there are."""

    model: str = ""
    types: frozenset[str] = frozenset()
    drafted: int = DEFAULT_DRAFTED
    type_k: str = "f16"
    type_v: str = "f16"
    gpu_layers: int | None = None
    placed_by_hand: bool = False
    """Devices or overrides of its own: only the engine knows which card holds what of it."""

    @property
    def unclear(self) -> str:
        """Which kind of drafting has no law here; "" for none."""
        return ", ".join(sorted(self.types & _OF_ITS_OWN))

    def states(self, architecture: str) -> int:
        """Recurrent states that a sequence keeps beside its own."""
        return self.drafted if self.types & _KEEP_STATES and architecture in _ROLL_BACK else 0


@dataclass(frozen=True, slots=True)
class Draft:
    """``weights`` in bytes, 0 where the layers are part of the model; ``compute`` None where no law covers it."""

    model: ModelFacts | None
    geometry: Geometry
    settings: KvSettings
    kv: KvAllocation
    weights: int
    compute: Interval | None
    gpu_layers: int | None
    placed_by_hand: bool


def speculation_of(knobs: DeclaredKnobs) -> Speculation:
    """Raises DeclarationError ``knob-bad-value``."""
    layers = knobs.text("spec-draft-ngl").strip()
    types = {word.strip() for word in knobs.text("spec-type").split(",")} - {"", "none"}
    return Speculation(
        model=knobs.text("spec-draft-model"),
        types=frozenset(types),
        drafted=knobs.number("spec-draft-n-max", DEFAULT_DRAFTED),
        type_k=knobs.word("spec-draft-type-k", tuple(ROW_BLOCKS), "f16"),
        type_v=knobs.word("spec-draft-type-v", tuple(ROW_BLOCKS), "f16"),
        gpu_layers=int(layers) if layers.isdigit() else None,
        placed_by_hand=any(
            knobs.text(f"spec-draft-{name}") for name in ("device", "override-tensor", "cpu-moe", "n-cpu-moe")
        ),
    )


def draft_of(
    said: Speculation, model: ModelFacts | None, geometry: Geometry | None, settings: KvSettings, n_ctx: int
) -> Draft | None:
    """The draft context beside a main one of ``n_ctx`` tokens; None where there is none, or none that has a law."""
    if said.unclear or model is None or geometry is None:
        return None
    beside: ModelFacts | None = None
    if said.model:
        beside = model.draft
        if beside is None or beside.geometry is None or MTP in said.types:
            return None
        own = beside.geometry
    elif MTP in said.types and geometry.nextn_layers:
        own = replace(geometry, layers=geometry.layers[-geometry.nextn_layers :], nextn_layers=0, recurrent=None)
    else:
        return None
    at = replace(settings, n_ctx=n_ctx, type_k=said.type_k, type_v=said.type_v, slot_cap=0, kept_states=0)
    kv = allocate(own, at)
    compute = memory.estimated_compute(beside or model, own, at, kv)
    size = beside.weight_bytes if beside else 0
    return Draft(beside, own, at, kv, size, compute, said.gpu_layers, said.placed_by_hand)
