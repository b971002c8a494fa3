"""vLLM's own cache planner, asked about layers that are given as plain figures. Runs under the Python of a vLLM.

A case a line on stdin, an answer a line on stdout (both JSON; ``kv_cases`` makes the one and compares the other).
Nothing here computes: specs are built and ``vllm.v1.core.kv_cache_utils`` is called.
"""

import json
import os
import sys
from types import SimpleNamespace

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import torch
import vllm.v1.core.kv_cache_utils as planner
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.kv_cache_layout import KVCacheLayout

DTYPES = {1: torch.int8, 2: torch.bfloat16, 4: torch.float32}


def spec(kind, block, speculated, row):
    """One layer's spec. ``row``: heads, head size, bytes an element, window, state bytes, padded page bytes."""
    heads, size, width, window, state, padded = row
    attention = {"block_size": block, "num_kv_heads": heads, "head_size": size, "dtype": DTYPES.get(width)}
    if kind == "full":
        return specs.FullAttentionSpec(**attention)
    if kind == "mla":
        return specs.MLAAttentionSpec(**attention)
    if kind == "sliding":
        return specs.SlidingWindowSpec(**attention, sliding_window=window)
    if kind == "chunked":
        return specs.ChunkedLocalAttentionSpec(**attention, attention_chunk_size=window)
    return specs.MambaSpec(
        block_size=block,
        shapes=((state,),),
        dtypes=(torch.int8,),
        page_size_padded=padded or None,
        num_speculative_blocks=speculated,
    )


def config(case):
    """What the planner reads of a VllmConfig."""
    cache = SimpleNamespace(
        get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBNHC,
        num_gpu_blocks_override=case["override"] or None,
        prefix_cache_retention_interval=None,
        mamba_cache_mode=case["mode"],
        enable_prefix_caching=case["mode"] == "align",
        block_size=case["block"],
    )
    return SimpleNamespace(
        cache_config=cache,
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=not case["manager"]),
        model_config=SimpleNamespace(max_model_len=case["len"], original_max_model_len=case["len"]),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=case["dcp"], tensor_parallel_size=1, pipeline_parallel_size=len(case["memory"])
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        max_in_flight_tokens=case["in_flight"],
        num_prefill_lookahead_tokens=case["retained"] + 1 if case["retained"] else 0,
    )


def answer(case):
    """The planner's figures, or its refusal."""
    workers = [{} for _ in case["memory"]]
    for at, (which, stage) in enumerate(case["layers"]):
        row = case["rows"][which]
        workers[stage][f"layers.{at}"] = spec(case["kinds"][which], case["block"], case["spec_tokens"], row)
    setup = config(case)
    try:
        made = planner.get_kv_cache_configs(setup, workers, case["memory"])
        tokens, concurrency = planner.get_kv_cache_capacity(setup, made[0])
    except (ValueError, NotImplementedError, AssertionError) as err:
        return {"refused": str(err) or type(err).__name__}
    return {
        "blocks": made[0].num_blocks,
        "sizes": [planner._pool_bytes_per_block(setup, each.kv_cache_groups) for each in made],
        "groups": sorted([len(g.layer_names), g.kv_cache_spec.block_size] for g in made[0].kv_cache_groups),
        "tokens": tokens,
        "concurrency": f"{concurrency:.2f}",
    }


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
