"""How engines said it before: forms of log lines from 2023 on, each as a piece of a real boot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from archonctl.ledger import read_ledger
from archonctl.ledger.refusal import refusal


@dataclass(frozen=True)
class Piece:
    """Lines, whose they are, the figures in them, and the code of the refusal if there is one."""

    engine: str
    lines: tuple[str, ...]
    figures: Mapping[str, float]
    code: str = ""


PIECES = {
    "mid2025 unified kv_size": Piece(
        "llamacpp",
        (
            "llama_context: n_seq_max     = 1",
            "llama_context: n_ctx         = 4096",
            "llama_context: n_ctx_per_seq = 4096",
            (
                "llama_kv_cache_unified: kv_size = 4096, type_k = 'f16', type_v = 'f16', n_layer = 28, can_"
                "shift = 1, padding = 32"
            ),
            "llama_kv_cache_unified:      ROCm0 KV buffer size =   448.00 MiB",
            "llama_kv_cache_unified: KV self size  =  448.00 MiB, K (f16):  224.00 MiB, V (f16):  224.00 MiB",
            "llama_context:      ROCm0 compute buffer size =   298.75 MiB",
            "llama_context:  ROCm_Host compute buffer size =    10.01 MiB",
            "/x/ggml-cuda.cu:75: ROCm error",
            "ggml_cuda_compute_forward: RMS_NORM failed",
            "ROCm error: invalid device function",
        ),
        {"kv_tokens": 4096, "kv_mib": 448, "compute_mib": 298.75},
        "device-error",
    ),
    "apr2025 init": Piece(
        "llamacpp",
        (
            "0.00.339 I llama_context: n_seq_max     = 1",
            "0.00.349.099 I llama_context: n_ctx         = 512",
            (
                "0.00.349.143 I init: kv_size = 512, offload = 1, type_k = 'f16', type_v = 'f16', n_layer ="
                " 12, can_shift = 1"
            ),
            "0.00.349.451 I init:      CUDA0 KV buffer size =     9.00 MiB",
            ("0.00.349.464 I llama_context: KV self size  =    9.00 MiB, K (f16):    4.50 MiB, V (f16):    4.50 MiB"),
            "0.00.354.039 I llama_context:      CUDA0 compute buffer size =    16.00 MiB",
        ),
        {"kv_tokens": 512, "kv_mib": 9, "compute_mib": 16},
    ),
    "kv_self ctx": Piece(
        "llamacpp",
        (
            (
                "0.00.263.342 I init: kv_size = 2048, offload = 1, type_k = 'f16', type_v = 'f16', n_layer "
                "= 24, can_shift = 1"
            ),
            "0.00.386.696 I init:        CPU KV buffer size =   384.00 MiB",
            (
                "0.00.386.717 I llama_context_kv_self: KV self size  =  384.00 MiB, K (f16):  192.00 MiB, V"
                " (f16):  192.00 MiB"
            ),
            "0.00.389.545 I reserve:        CPU compute buffer size =   102.25 MiB",
        ),
        {"kv_tokens": 2048, "kv_mib": 384},
    ),
    "2023": Piece(
        "llamacpp",
        (
            "llama_new_context_with_model: n_ctx      = 512",
            "llama_new_context_with_model: kv self size  =  256.00 MB",
            "llama_new_context_with_model: compute buffer total size = 76.63 MB",
        ),
        {"kv_mib": 256, "n_ctx": 512, "compute_mib": 76.63},
    ),
    "2023 llm_load": Piece(
        "llamacpp",
        (
            "llm_load_tensors: ggml ctx size =    0.12 MiB",
            "llm_load_tensors: offloading 32 repeating layers to GPU",
            "llm_load_tensors: offloaded 35/35 layers to GPU",
            "llm_load_tensors: VRAM used: 4807.05 MiB",
            ("llama_new_context_with_model: KV self size  = 1024.00 MiB, K (f16):  512.00 MiB, V (f16):  512.00 MiB"),
            "llama_kv_cache_init: VRAM kv self = 1024.00 MB",
        ),
        {"kv_mib": 1024, "offloaded_layers": 35},
    ),
    "2024 main": Piece(
        "llamacpp",
        (
            "build: 3912 (edc26566) with cc",
            "llm_load_tensors: offloaded 33/33 layers to GPU",
            "llm_load_tensors:        CPU buffer size =   281.81 MiB",
            "llm_load_tensors:      CUDA0 buffer size =  4156.00 MiB",
            "llama_new_context_with_model: n_ctx      = 8192",
            "llama_kv_cache_init:      CUDA0 KV buffer size =  1024.00 MiB",
            ("llama_new_context_with_model: KV self size  = 1024.00 MiB, K (f16):  512.00 MiB, V (f16):  512.00 MiB"),
            "llama_new_context_with_model:      CUDA0 compute buffer size =   560.00 MiB",
            "srv          init: initializing slots, n_slots = 1",
            "slot         init: id  0 | task -1 | new slot n_ctx_slot = 8192",
            "main: model loaded",
            "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
        ),
        {
            "kv_mib": 1024,
            "n_slots": 1,
            "n_ctx_slot": 8192,
            "model_mib": 4156,
            "model_host_mib": 281.81,
            "kv_tokens": 8192,
        },
    ),
    "2024 ini": Piece(
        "llamacpp",
        (
            'INFO [                    main] build info | tid="1" timestamp=17 build=3259 commit="edc"',
            "llama_kv_cache_init:      Metal KV buffer size =   512.00 MiB",
            ("llama_new_context_with_model: KV self size  =  512.00 MiB, K (f16):  256.00 MiB, V (f16):  256.00 MiB"),
            'INFO [                    init] initializing slots | tid="1" timestamp=17 n_slots=4',
            'INFO [                    init] new slot | tid="1" timestamp=17 id_slot=0 n_ctx_slot=2048',
            'INFO [                    main] model loaded | tid="1" timestamp=17',
        ),
        {"kv_mib": 512, "n_slots": 4, "n_ctx_slot": 2048},
    ),
    "iswa unified": Piece(
        "llamacpp",
        (
            "llama_kv_cache_unified_iswa: creating non-SWA KV cache, size = 240128 cells",
            "llama_kv_cache_unified:      CUDA0 KV buffer size =  1000.00 MiB",
            (
                "llama_kv_cache_unified: size = 1000.00 MiB (240128 cells,   8 layers,  1 seqs), K (f16):  "
                "500.00 MiB, V (f16):  500.00 MiB"
            ),
            "llama_kv_cache_unified_iswa: creating     SWA KV cache, size = 4608 cells",
            (
                "llama_kv_cache_unified: size =  72.00 MiB (  4608 cells,  24 layers,  1 seqs), K (f16):   "
                "36.00 MiB, V (f16):   36.00 MiB"
            ),
        ),
        {"kv_tokens": 240128, "kv_total_mib": 1072, "swa_cells": 4608},
    ),
    "vllm v0": Piece(
        "vllm",
        (
            "INFO 09-05 06:05:52 gpu_executor.py:122] # GPU blocks: 8348, # CPU blocks: 2048",
            "INFO 09-05 06:05:52 gpu_executor.py:126] Maximum concurrency for 8192 tokens per request: 16.30x",
        ),
        {"kv_tokens": 133568, "max_concurrency": 16.3},
    ),
    "vllm rocm": Piece(
        "vllm",
        ("INFO 09-05 06:05:52 executor_base.py:111] # rocm blocks: 8348, # CPU blocks: 2048",),
        {"kv_tokens": 133568},
    ),
    "hpu": Piece(
        "vllm",
        ("INFO 07-02 10:00:00 habana_executor.py:2] # HPU blocks: 4570, # CPU blocks: 256",),
        {"kv_tokens": 584960},
    ),
    "graph": Piece(
        "vllm",
        (
            "INFO 09-05 06:05:52 [gpu_model_runner.py:3] Graph capturing finished in 16 secs, took 0.67 GiB",
            "INFO 09-05 06:05:52 [gpu_worker.py:3] Available KV cache memory: 4.67 GiB",
        ),
        {"cuda_graph_gib": 0.67, "available_gib": 4.67},
    ),
    "v0 len": Piece(
        "vllm",
        (
            (
                "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens t"
                "hat can be stored in KV cache (81536). Try increasing"
            ),
        ),
        {"kv_tokens": 81536},
        "kv-too-small",
    ),
    "sgl swa": Piece(
        "sglang",
        (
            (
                "[2026-01-31 13:50:39 TP0] Use sliding window memory pool. full_layer_tokens=375360, swa_la"
                "yer_tokens=300288"
            ),
            ("[2026-01-31 13:50:39 TP0] KV Cache is allocated. #tokens: 300288, K size: 8.38 GB, V size: 5.59 GB"),
            ("[2026-01-31 13:50:39 TP0] KV Cache is allocated. #tokens: 375360, K size: 1.38 GB, V size: 0.59 GB"),
            "[2026-01-31 13:50:40 TP0] SWAKVPool mem usage: 15.94 GB, swa size: 300288, full size: 375360",
            "[2026-01-31 13:50:40 TP0] Memory pool end. avail mem=20.14 GB",
            (
                "[2026-01-31 13:50:41 TP0] max_total_num_tokens=375360, chunked_prefill_size=8192, max_pref"
                "ill_tokens=16384, max_running_requests=2048, context_len=262144, available_gpu_mem=17.22 G"
                "B"
            ),
        ),
        {"kv_tokens": 300288, "context_len": 262144, "available_gpu_mem": 17.22},
    ),
    "sgl dtype": Piece(
        "sglang",
        (
            (
                "[2026-07-15 13:14:54] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1669816, K si"
                "ze: 76.44 GB, V size: 76.44 GB"
            ),
        ),
        {"kv_tokens": 1669816},
    ),
    "sgl float": Piece(
        "sglang",
        ("[2025-07-15 13:14:54 DP0 TP0] KV Cache is allocated. #tokens: 1669816, KV size: 76.44 GB",),
        {"kv_tokens": 1669816, "kv_gib": 76.44},
    ),
    "trt": Piece(
        "tensorrt_llm",
        (
            (
                "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 65 [window size=2051], tokens per b"
                "lock=32, primary blocks=116617, secondary blocks=0"
            ),
            "[TensorRT-LLM][INFO] Number of tokens per block: 32.",
            ("[TensorRT-LLM][INFO] [MemUsageChange] Allocated 78.30 GiB for max tokens in paged KV cache (3731744)."),
        ),
        {"kv_tokens": 3731744, "kv_gib": 78.3, "block_size": 32, "gpu_blocks": 116617},
    ),
    "trt rank": Piece(
        "tensorrt_llm",
        (
            "[04/10/2025-08:58:29] [TRT-LLM] [I] Estimated max tokens in KV cache : 82464",
            (
                "[1744275509] [TensorRT-LLM][INFO] [MemUsageChange] Allocated 10.07 GiB for max tokens in p"
                "aged KV cache (82464)."
            ),
        ),
        {"kv_tokens": 82464},
    ),
    "trt tritontime": Piece(
        "tensorrt_llm",
        (
            (
                "I0410 16:58:08.485508 1 x.cc:849] [TensorRT-LLM][INFO] Allocated 10.07 GiB for max tokens "
                "in paged KV cache (82464)."
            ),
        ),
        {"kv_tokens": 82464},
    ),
    "ollama": Piece(
        "ollama",
        (
            (
                "time=2025-05-01T10:00:00.000+02:00 level=INFO source=server.go:139 msg=offload library=cud"
                'a layers.requested=-1 layers.model=49 layers.offload=0 layers.split="" memory.available="['
                '7.8 GiB]" memory.gpu_overhead="0 B" memory.required.full="9.7 GiB" memory.required.partial'
                '="0 B" memory.required.kv="1.5 GiB" memory.required.allocations="[0 B]" memory.weights.tot'
                'al="7.9 GiB"'
            ),
        ),
        {"required_kv_mib": 1536, "offload": 0},
    ),
    "ik": Piece(
        "llamacpp",
        (
            "llama_kv_cache_init:      CUDA0 KV buffer size =  1166.65 MiB",
            ("llama_new_context_with_model: KV self size  = 1166.62 MiB, c^KV (q8_0): 1166.62 MiB, kv^T: not used"),
            (
                'INFO [                    init] new slot | tid="137362671300608" timestamp=1742136993 id_s'
                "lot=0 n_ctx_slot=32768"
            ),
        ),
        {"kv_mib": 1166.62, "n_ctx_slot": 32768},
    ),
    "router": Piece(
        "llamacpp",
        (
            (
                "[47161] 0.14.912.338 I llama_kv_cache: size = 4096.00 MiB (131072 cells,   8 layers,  1/1 "
                "seqs), K (f16): 2048.00 MiB, V (f16): 2048.00 MiB"
            ),
        ),
        {"kv_tokens": 131072},
    ),
    "kimi": Piece(
        "vllm",
        (
            (
                "(EngineCore_DP0 pid=2) ERROR 11-06 12:00:00 [core.py:790] ValueError: No available memory "
                "for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine"
                "."
            ),
        ),
        {},
        "kv-too-small",
    ),
}


@pytest.mark.parametrize("name", PIECES)
def test_an_older_form_is_read(name: str) -> None:
    piece = PIECES[name]
    ledger = read_ledger(piece.lines)
    cause = refusal(ledger)
    read = {figure: ledger.figures[figure].value.best for figure in piece.figures if figure in ledger.figures}
    assert ledger.engine == piece.engine
    assert read == piece.figures
    assert (cause.code if cause else "") == piece.code
