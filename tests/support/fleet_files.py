"""Files of a simulated fleet: host profiles, declarations, and a model of Llama 3.1 8B's shape that takes no disk."""

from __future__ import annotations

import json
import struct
from pathlib import Path

CONFIG = Path(__file__).parents[1] / "golden" / "configs" / "llama-3.1-8b.json"
WEIGHT_BYTES = 16_060_522_496
"""The parameters of that model in bf16."""


def write_model(folder: Path) -> Path:
    """config.json as published, and one sparse file of weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(json.loads(CONFIG.read_text())["config"]))
    rows = WEIGHT_BYTES // 2 // 4096
    tensor = {"dtype": "BF16", "shape": [rows, 4096], "data_offsets": [0, rows * 8192]}
    header = json.dumps({"model.layers.0.mlp.down_proj.weight": tensor}).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + rows * 8192)
    return folder


def declaration(
    model: Path, *, port: int, seqs: int = 4, length: int = 32_768, tp: int = 1, share: float | None = None
) -> str:
    """vLLM with a bf16 cache; ``share`` of each card in place of its own default."""
    knobs = [f"tensor-parallel-size = {tp}"] if tp > 1 else []
    knobs += [f"gpu-memory-utilization = {share}"] if share is not None else []
    return "\n".join(
        [
            f'contract = {{ seqs = {seqs}, len = {length}, kv_dtype = "bf16" }}',
            f'service = {{ listen = "127.0.0.1:{port}" }}',
            f'model = {{ path = "{model}" }}',
            "[engine]",
            'kind = "vllm"',
            'version = "0.32.0"',
            f'image = "registry.example/vllm@sha256:{"0" * 64}"',
            "[engine.knobs]",
            *knobs,
            "",
        ]
    )


def profile(name: str, cards: int, *, ram_mib: int = 500_000, card_mib: int = 81_559) -> str:
    """A host as it was gathered."""
    lines = [f'name = "{name}"', 'source = "sysfs"', f"ram_mib = {ram_mib}"]
    for index in range(cards):
        lines += ["[[cards]]", f"index = {index}", 'name = "NVIDIA H100"', 'maker = "nvidia"', 'target = "9.0"']
        lines += [f"total_mib = {card_mib}", f'pci = "0000:{sum(name.encode()) % 200:02x}:{index:02x}.0"']
    return "\n".join([*lines, ""])
