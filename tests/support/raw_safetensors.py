"""Safetensors files and Hugging Face folders with true headers; their data is a hole, so that none takes space."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "I32": 4, "U8": 1}
Tensor = tuple[str, Sequence[int]]


def write_raw(path: Path, header: bytes, data_bytes: int, length: int | None = None) -> Path:
    """A file with any header, true or not, and a hole of ``data_bytes`` after it."""
    with path.open("wb") as file:
        file.write((len(header) if length is None else length).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + data_bytes)
    return path


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    """A file with these tensors (dtype and shape), one after the other."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return write_raw(path, json.dumps(header).encode(), end)


def llama_config(**more: object) -> dict[str, object]:
    """The config.json of Llama 3 8B, as far as it decides memory."""
    return {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
        **more,
    }


def llama_tensors(layers: int = 32) -> dict[str, Tensor]:
    """The tensors of Llama 3 8B."""
    found: dict[str, Tensor] = {"model.embed_tokens.weight": ("BF16", (128256, 4096))}
    for i in range(layers):
        head = f"model.layers.{i}"
        found |= {f"{head}.self_attn.{each}_proj.weight": ("BF16", (4096, 4096)) for each in "qo"}
        found |= {f"{head}.self_attn.{each}_proj.weight": ("BF16", (1024, 4096)) for each in "kv"}
        found |= {f"{head}.mlp.{each}_proj.weight": ("BF16", (14336, 4096)) for each in ("gate", "up", "down")}
        found |= {f"{head}.{each}_layernorm.weight": ("BF16", (4096,)) for each in ("input", "post_attention")}
    return {**found, "model.norm.weight": ("BF16", (4096,)), "lm_head.weight": ("BF16", (128256, 4096))}


def write_folder(folder: Path, config: Mapping[str, object], tensors: Mapping[str, Tensor], files: int = 1) -> Path:
    """A folder with config.json and the tensors in ``files`` files, with an index where there is more than one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if files == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    index: dict[str, str] = {}
    for number in range(files):
        name = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        mine = dict(list(tensors.items())[number::files])
        write_safetensors(folder / name, mine)
        index |= dict.fromkeys(mine, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder
