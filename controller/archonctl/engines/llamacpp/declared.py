"""The knobs that decide capacity in llama-server, under any spelling that it knows."""

from __future__ import annotations

from collections.abc import Mapping

from archonctl.deployment.schema import KnobValue
from archonctl.engines import declared as knobs

ALIASES: Mapping[str, str] = {
    "c": "ctx-size",
    "np": "parallel",
    "kvu": "kv-unified",
    "no-kvu": "no-kv-unified",
    "ctk": "cache-type-k",
    "ctv": "cache-type-v",
    "b": "batch-size",
    "ub": "ubatch-size",
    "fa": "flash-attn",
    "ngl": "gpu-layers",
    "n-gpu-layers": "gpu-layers",
    "dev": "device",
    "sm": "split-mode",
    "ts": "tensor-split",
    "mg": "main-gpu",
    "ot": "override-tensor",
    "cmoe": "cpu-moe",
    "ncmoe": "n-cpu-moe",
    "ncffn": "n-cpu-ffn",
    "kvo": "kv-offload",
    "nkvo": "no-kv-offload",
    "fitt": "fit-target",
    "fitc": "fit-ctx",
    "cram": "cache-ram",
    "ctxcp": "ctx-checkpoints",
    "swa-checkpoints": "ctx-checkpoints",
    "md": "spec-draft-model",
    "model-draft": "spec-draft-model",
    "mm": "mmproj",
    "ctkd": "spec-draft-type-k",
    "cache-type-k-draft": "spec-draft-type-k",
    "ctvd": "spec-draft-type-v",
    "cache-type-v-draft": "spec-draft-type-v",
    "ngld": "spec-draft-ngl",
    "gpu-layers-draft": "spec-draft-ngl",
    "n-gpu-layers-draft": "spec-draft-ngl",
    "devd": "spec-draft-device",
    "device-draft": "spec-draft-device",
    "otd": "spec-draft-override-tensor",
    "override-tensor-draft": "spec-draft-override-tensor",
    "cmoed": "spec-draft-cpu-moe",
    "cpu-moe-draft": "spec-draft-cpu-moe",
    "ncmoed": "spec-draft-n-cpu-moe",
    "spec-draft-ncmoe": "spec-draft-n-cpu-moe",
    "n-cpu-moe-draft": "spec-draft-n-cpu-moe",
    "embeddings": "embedding",
    "reranking": "rerank",
}
"""Other spellings of the knobs that decide capacity in llama-server b11434 (a test holds them to the table)."""


class DeclaredKnobs(knobs.DeclaredKnobs):
    """Declared knobs of llama-server."""

    def __init__(self, declared: Mapping[str, KnobValue]) -> None:
        super().__init__(declared, ALIASES)
