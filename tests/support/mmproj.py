"""A multimodal projector with random weights that llama-server loads: LLaVA's, of a few MiB (tools/mtmd/clip.cpp)."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy

WIDTH, FEED_FORWARD, LAYERS, IMAGE, PATCH = 256, 1024, 2, 224, 14


def write_mmproj(path: Path, hidden: int) -> Path:
    """Write it for a language model of this width."""
    out = gguf.GGUFWriter(str(path), "clip")
    out.add_bool("clip.has_vision_encoder", True)
    out.add_string("clip.projector_type", "mlp")
    out.add_bool("clip.use_gelu", True)
    figures = {"image_size": IMAGE, "patch_size": PATCH, "embedding_length": WIDTH, "feed_forward_length": FEED_FORWARD}
    figures |= {"block_count": LAYERS, "attention.head_count": 4, "projection_dim": WIDTH}
    for name, value in figures.items():
        out.add_uint32(f"clip.vision.{name}", value)
    out.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    out.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    out.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    numbers = numpy.random.default_rng(0)

    def tensor(name: str, *dims: int, wide: bool = False) -> None:
        values = numbers.standard_normal(dims) * 0.02
        out.add_tensor(name, values.astype(numpy.float32 if wide else numpy.float16))

    def linear(name: str, rows: int, columns: int) -> None:
        tensor(f"{name}.weight", rows, columns)
        tensor(f"{name}.bias", rows, wide=True)

    def norm(name: str) -> None:
        tensor(f"{name}.weight", WIDTH, wide=True)
        tensor(f"{name}.bias", WIDTH, wide=True)

    tensor("v.class_embd", WIDTH, wide=True)
    tensor("v.patch_embd.weight", WIDTH, 3, PATCH, PATCH)
    tensor("v.position_embd.weight", (IMAGE // PATCH) ** 2 + 1, WIDTH)
    norm("v.pre_ln")
    for index in range(LAYERS):
        block = f"v.blk.{index}"
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            linear(f"{block}.{name}", WIDTH, WIDTH)
        norm(f"{block}.ln1")
        norm(f"{block}.ln2")
        linear(f"{block}.ffn_up", FEED_FORWARD, WIDTH)
        linear(f"{block}.ffn_down", WIDTH, FEED_FORWARD)
    linear("mm.0", hidden, WIDTH)
    linear("mm.2", hidden, hidden)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path
