"""Boots of a real vLLM on a CPU that show its cache law: each kind of attention under several sets of flags.

The logs lie in ``tests/golden/boots/vllm_kv.jsonl.gz``; ``scripts/collect-boots vllm-kv PATH/vllm`` makes them again.
"""

from __future__ import annotations

from support.boots import BootCase

_EAGER = ("--enforce-eager", "--load-format", "dummy")
_TWO_RANKS = "--tensor-parallel-size 2"
_TWO_STAGES = "--pipeline-parallel-size 2"


def _case(name: str, arch: str, flags: str, space_gib: int = 1, **geometry: int) -> BootCase:
    env = {"VLLM_CPU_KVCACHE_SPACE": f"{space_gib}"} if space_gib else {}
    if "parallel-size" in flags:
        env["VLLM_CPU_OMP_THREADS_BIND"] = "0|1"  # else a rank wants a NUMA node of its own
    return BootCase(f"vllm-kv-{name}", "vllm", arch, (*flags.split(), *_EAGER), geometry, env)


CASES: tuple[BootCase, ...] = (
    _case("hybrid", "qwen3next", "--max-model-len 32768", layers=8),
    _case("latent-wide-blocks", "deepseek2", "--max-model-len 20000 --block-size 64", layers=5),
    _case("latent-override", "deepseek2", "--max-model-len 8192 --num-gpu-blocks-override 1000"),
    _case("latent-bytes", "deepseek2", "--max-model-len 10000 --kv-cache-memory-bytes 500000000", 0, layers=3),
    _case("latent-too-small", "deepseek2", "--max-model-len 262144", layers=12),
    _case("latent-two-ranks", "deepseek2", f"--max-model-len 32768 {_TWO_RANKS}"),
    _case("sliding-large-batch", "gemma3", "--max-model-len 32768 --max-num-batched-tokens 8192", layers=6),
    _case("sliding-unmanaged", "gemma3", "--max-model-len 32768 --disable-hybrid-kv-cache-manager", layers=6),
    _case("sliding-blocks-32", "gemma3", "--max-model-len 9999 --block-size 32", layers=14, window=300),
    _case("sliding-too-small", "gemma3", "--max-model-len 262144", layers=30, kv_heads=4, head_dim=256),
    _case("sliding-two-ranks", "gemma3", f"--max-model-len 32768 {_TWO_RANKS}", layers=6),
    _case("sliding-two-stages", "gemma3", f"--max-model-len 32768 {_TWO_STAGES}", layers=12),
    _case("dense-two-stages-uneven", "qwen3", f"--max-model-len 8192 {_TWO_STAGES}", layers=5),
    _case("fp8-e5m2", "llama", "--max-model-len 30000 --kv-cache-dtype fp8_e5m2", layers=7),
    _case("fp8-two-ranks", "qwen3", f"--max-model-len 8192 --kv-cache-dtype fp8 {_TWO_RANKS}"),
    _case("fp8-override", "qwen3", "--max-model-len 8192 --kv-cache-dtype fp8 --num-gpu-blocks-override 77"),
    _case("hybrid-no-prefix-caching", "qwen3next", "--max-model-len 32768 --no-enable-prefix-caching", layers=8),
    _case("hybrid-fp8", "qwen3next", "--max-model-len 32768 --kv-cache-dtype fp8", layers=8),
    _case("hybrid-uneven", "qwen3next", "--max-model-len 20000 --block-size 64", layers=6),
    _case("hybrid-two-ranks", "qwen3next", f"--max-model-len 32768 {_TWO_RANKS}", layers=8),
    _case("hybrid-too-small", "qwen3next", "--max-model-len 262144", layers=32, kv_heads=4, head_dim=256),
)
