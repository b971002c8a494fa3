"""Predictions from bytes, flags and geometry: by a law or not at all, and never from the tokens that were printed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.ledger.blind import rest_gib
from archonctl.ledger.case import case_facts
from archonctl.ledger.check import check_case
from archonctl.ledger.predict import Prediction

LLAMA = {"layers": 32, "kv_heads": 8, "head_dim": 128}
V1 = "INFO [gpu_worker.py:298] Available KV cache memory: {} GiB"


def predicted(lines: list[str], **record: Any) -> Prediction:
    return check_case({"id": "x", "log_lines": lines, **record}, lines).prediction


def vllm(gib: float, **record: Any) -> Prediction:
    base: dict[str, Any] = {"engine": "vllm", "engine_version": "0.11.0", "model_config": LLAMA}
    return predicted([V1.format(gib)], **{**base, **record})


def test_bytes_by_the_geometry() -> None:
    found = vllm(10.0)
    assert (found.kv_tokens, found.basis) == (81_920, "bytes")
    assert found.low_tokens is not None
    assert found.high_tokens is not None
    assert found.low_tokens <= 81_920 <= found.high_tokens
    assert "10 GiB" in found.method


def test_printed_tokens_do_not_go_in() -> None:
    lie = [V1.format(10.0), "INFO [kv_cache_utils.py:1087] GPU KV cache size: 999,999 tokens"]
    assert predicted(lie, engine="vllm", engine_version="0.11.0", model_config=LLAMA).kv_tokens == 81_920


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [
        ({"tp": 2}, 163_840),
        ({"tensor-parallel-size": "2"}, 163_840),
        ({"--tensor_parallel_size": 2.0}, 163_840),
        ("--tensor-parallel-size 2 --enforce-eager", 163_840),
        (["-tp=1", "--tensor-parallel-size=2"], 163_840),
        ({"kv_cache_dtype": "fp8_e4m3"}, 163_840),
        ({"decode_context_parallel_size": 2}, 163_840),
        ({"tp": "several"}, 81_920),
        (None, 81_920),
    ],
)
def test_flags_in_any_spelling(flags: object, tokens: int) -> None:
    assert vllm(10.0, flags=flags).kv_tokens == tokens


def test_workers_that_are_named_tell_how_many_ranks_there_are() -> None:
    line = "(Worker_TP0 pid=241) INFO 12-11 00:06:53 [gpu_worker.py:359] Available KV cache memory: 10.00 GiB"
    case: dict[str, Any] = {"engine": "vllm", "engine_version": "0.12.0", "model_config": LLAMA}
    assert predicted([line], **case).kv_tokens == 163_840
    assert predicted([line], **case, gpu={"name": "H100", "count": 4}).kv_tokens == 327_680
    assert predicted([line], **case, flags={"tp": 1}).kv_tokens == 81_920


def test_a_model_of_no_known_geometry_is_unknown() -> None:
    found = vllm(10.0, model_config=None, model="private")
    assert found.kv_tokens is None
    assert "geometry" in found.reason


def test_a_public_model_by_name() -> None:
    assert vllm(10.0, model_config=None, model="meta-llama/Llama-3.1-8B-Instruct").kv_tokens == 81_920


def test_no_memory_is_unknown_with_both_sides_said() -> None:
    found = vllm(-2.14)
    assert found.kv_tokens is None
    assert "-2.14 GiB" in found.reason


def test_a_hybrid_needs_the_length_that_its_tokens_are_about() -> None:
    config = {"layers": 64, "full_attention_layers": 16, "kv_heads": 4, "head_dim": 256}
    case = {"model_config": config, "model": "Qwen3.8-27B", "engine_version": "0.32.0"}
    assert vllm(31.24, **case).kv_tokens is None
    assert vllm(31.24, **case, flags={"max_model_len": 8192}).kv_tokens == 314_187


def test_a_drafter_of_unknown_layers_is_unknown() -> None:
    assert vllm(10.0, flags={"speculative": "eagle3"}).kv_tokens is None
    assert vllm(10.0, flags={"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}).kv_tokens == 79_424


def test_a_refusal_that_states_its_need_needs_no_geometry() -> None:
    lines = [
        "ValueError: To serve at least one request with the model's max seq len (1048576), (7.89 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.0 GiB). Based on the available memory, "
        "the estimated maximum model length is 530432."
    ]
    found = predicted(lines, engine="vllm", model="private")
    assert found.kv_tokens == pytest.approx(530_432, rel=0.01)
    assert "as the engine states" in found.method


def test_the_default_space_of_a_cpu() -> None:
    found = predicted(["x"], engine="vllm", engine_version="0.11.0", gpu="CPU", model_config=LLAMA)
    assert (found.kv_tokens, found.basis) == (32_768, "blind")


def test_blind_from_card_and_weights_says_its_error() -> None:
    lines = ["INFO [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 7.7 seconds"]
    large = predicted(lines, engine="vllm", gpu={"name": "H100", "vram_gib": 79.18}, model_config=LLAMA)
    assert large.basis == "blind"
    assert "+-" in large.method
    assert large.kv_tokens == pytest.approx(51.38 * 8192, rel=0.05)
    small = predicted(lines, engine="vllm", gpu={"name": "RTX 4090", "vram_gib": 23.6}, model_config=LLAMA)
    assert small.kv_tokens is None


def test_sglang_pools() -> None:
    line = "KV Cache is allocated. #tokens: 81000, K size: 5.00 GB, V size: 5.00 GB"
    assert predicted([line], engine="sglang", model_config=LLAMA).kv_tokens == 81_919
    capped = predicted([line], engine="sglang", model_config=LLAMA, flags={"max_total_tokens": 20480})
    assert capped.kv_tokens == 20_480


def test_sglang_from_what_was_free() -> None:
    lines = [
        "[2026-02-26 16:31:00 TP0] Load weight begin. avail mem=78.00 GB",
        "[2026-02-26 16:41:18 TP0] Load weight end. elapsed=1.04 s, type=LlamaForCausalLM, dtype=torch.bfloat16, "
        "avail mem=62.00 GB, mem usage=16.00 GB.",
    ]
    found = predicted(lines, engine="sglang", model_config=LLAMA, flags={"mem_fraction_static": 0.9})
    assert found.kv_tokens == pytest.approx(54.2 * 8192, rel=0.001)


def test_llamacpp_cells_from_the_size_of_the_main_cache() -> None:
    line = (
        "llama_kv_cache: size = 4096.00 MiB ( 32768 cells,  32 layers,  4/1 seqs), "
        "K (f16): 2048.00 MiB, V (f16): 2048.00 MiB"
    )
    found = predicted([line], engine="llama.cpp", model_config=LLAMA)
    assert (found.kv_tokens, found.basis) == (32_768, "bytes")


def test_llamacpp_rounds_the_context_that_is_asked_for() -> None:
    found = predicted([], engine="llama.cpp", flags={"n_ctx": 10_000, "parallel": 3})
    assert (found.kv_tokens, found.basis) == (10_752, "blind")


def test_paged_pools_of_whole_blocks() -> None:
    line = "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (131456)."
    found = predicted([line], engine="tensorrt-llm", model_config=LLAMA, flags={"tokens_per_block": 64})
    assert found.kv_tokens is not None
    assert found.kv_tokens % 64 == 0
    assert found.kv_tokens == pytest.approx(131_456, rel=0.001)


def test_an_engine_without_a_law_is_unknown() -> None:
    assert "no KV law" in predicted(["hello"]).reason
    assert "cache_size" in predicted(["Insufficient VRAM for model and cache"], engine="exllamav2").reason


@pytest.mark.parametrize(
    ("flags", "tokens"),
    [({"cache_size": 32768}, 32768), ({"max_seq_len": 4000}, 4096), ({"cache_size": 8192, "max_seq_len": 4096}, 8192)],
)
def test_exllama_has_the_cache_that_it_is_asked_for_in_whole_pages(flags: dict[str, object], tokens: int) -> None:
    found = predicted(["Insufficient VRAM for model and cache"], engine="exllamav3", flags=flags)
    assert (found.kv_tokens, found.basis) == (tokens, "blind")


def test_mistral_rs_by_the_plain_law() -> None:
    qwen = {"num_hidden_layers": 28, "num_key_value_heads": 2, "head_dim": 128}
    where = "2025-03-19T15:41:09.819697Z  INFO mistralrs_core::paged_attention:"
    lines = [
        f"{where} Allocating 112 MB for PagedAttention KV cache per GPU",
        f"{where} Using PagedAttention with block size 32 and 128 GPU blocks: available context length is 4096 tokens",
    ]
    case = check_case({"id": "x", "engine": "", "model_config": qwen}, lines)
    assert case.engine_detected == "mistral.rs"
    assert case.observed_kv_tokens == case.prediction.kv_tokens == 4096
    f8 = [lines[0], "PagedAttention KV cache type is F8E4M3", lines[1]]
    assert predicted(f8, engine="mistral.rs", model_config=qwen).kv_tokens == 8192
    sliding = {**qwen, "sliding_window": 4096, "sliding_layers": 14}
    assert "windows" in predicted(lines, engine="mistral.rs", model_config=sliding).reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=10,
)
FLAGS = st.dictionaries(
    st.sampled_from(["tp", "pp", "max_model_len", "kv_cache_dtype", "speculative", "block_size", "dcp", "n_ctx"]), JSON
)
ENGINES = st.sampled_from(["vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm", "vllm.rs"])


@given(ENGINES, FLAGS | JSON, JSON, JSON, st.sampled_from([LLAMA, None, {"layers": 3}]))
def test_any_case_gives_a_prediction_or_a_reason(
    engine: str, flags: object, gpu: object, version: object, config: object
) -> None:
    record = {"engine": engine, "flags": flags, "gpu": gpu, "engine_version": version, "model_config": config}
    lines = [V1.format("5.00"), "KV Cache is allocated. #tokens: 81000, K size: 5.00 GB, V size: 5.00 GB"]
    found = check_case(record, lines).prediction
    assert found.kv_tokens is not None or found.reason
    case_facts(record)


LATENT = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}


@pytest.mark.parametrize(
    ("version", "row"),
    [("0.7.1", 576), ("0.7.3", 640), ("0.8.0", 576), ("0.19.1", 576)],
)
def test_a_latent_row_was_padded_for_a_while(version: str, row: int) -> None:
    found = vllm(10.0, engine_version=version, model_config=LATENT)
    assert found.kv_tokens == int(10 * 2**30 // (61 * row * 2 * 16)) * 16


@pytest.mark.parametrize(("version", "row"), [("0.11.0", 656), ("0.12.0", 1152), ("0.19.1", 1152), ("0.32.0", 1152)])
def test_latents_beside_an_indexer_were_packed_by_default_in_one_release(version: str, row: int) -> None:
    found = vllm(10.0, engine_version=version, model_config={**LATENT, "index_head_dim": 128})
    assert found.kv_tokens == int(10 * 2**30 // (61 * (row + 132) * 64)) * 64
    assert "block 64" in found.method


@pytest.mark.parametrize(
    ("flags", "line", "block"),
    [
        ({}, "", 16),
        ({"attention_backend": "FLASHMLA"}, "", 64),
        ({"attention_backend": "CUTLASS_MLA"}, "", 128),
        ({"attention_backend": "FLASHINFER_MLA"}, "", 32),
        ({"attention_backend": "FLASHMLA", "block_size": 128}, "", 128),
        ({}, "INFO [interface.py:489] Setting kv cache block size to 64 for DEEPSEEK_V32_INDEXER backend.", 64),
        ({}, "INFO [interface.py:489] Setting kv cache block size to 128 for FLASHMLA_MEGA_ATTN_DSV41 backend.", 128),
        ({}, "INFO [cuda.py:160] Forcing kv cache block size to 64 for FlashMLA backend.", 64),
    ],
)
def test_a_block_is_what_the_backend_takes(flags: dict[str, object], line: str, block: int) -> None:
    lines = [V1.format(10.0), line]
    found = predicted(lines, engine="vllm", engine_version="0.19.1", model_config=LATENT, flags=flags)
    assert f"block {block}," in found.method
    assert found.kv_tokens == int(10 * 2**30 // (61 * 1152 * block)) * block


@pytest.mark.parametrize(
    ("model", "line", "tokens"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-NVFP4", "", 163_840),
        ("RedHatAI/Llama-3.1-8B-Instruct-NVFP4", "", 81_920),
        ("someone/llama-nvfp4", "INFO [cache.py:247] Using fp8_e4m3 data type to store kv cache. It reduces", 163_840),
        ("someone/llama-nvfp4", "", None),
    ],
)
def test_an_nvfp4_checkpoint_may_ask_for_an_fp8_cache(model: str, line: str, tokens: int | None) -> None:
    found = predicted([V1.format(10.0), line], engine="vllm", engine_version="0.19.1", model_config=LLAMA, model=model)
    assert found.kv_tokens == tokens
    assert tokens or "81,920 tokens if not, 163,840 if so" in found.reason


ARGS = (
    "(APIServer pid=1) INFO [utils.py:253] non-default args: {'model_tag': '/m', 'tensor_parallel_size': 2, "
    "'kv_cache_dtype': 'fp8', 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2}}"
)


def test_a_log_says_what_was_asked_for_and_what_is_stated_wins() -> None:
    lines = [ARGS, V1.format(10.0)]
    base: dict[str, Any] = {"engine": "vllm", "engine_version": "0.19.1", "model_config": LLAMA}
    facts = case_facts({**base, "log_lines": lines})
    assert (facts.number("tp"), facts.word("kv_cache_dtype")) == (2, "fp8")
    assert facts.flags["speculative_config"] == {"method": "mtp", "num_speculative_tokens": 2}
    assert case_facts({**base, "log_lines": lines, "flags": {"tp": 4}}).number("tp") == 4
    config = "INFO [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: model='Qwen/Qwen3-8B', {}"
    config = config.format("dtype=torch.bfloat16, max_seq_len=40960, tensor_parallel_size=2, kv_cache_dtype=auto, ")
    assert predicted([config, V1.format(10.0)], engine="vllm").kv_tokens == 145_632
    boot = "[2026-05-12 20:19:11] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=2, kv_cache_dtype='auto')"
    pool = "[2026-05-12 20:19:43] KV Cache is allocated. #tokens: 618062, K size: 21.22 GB, V size: 21.22 GB"
    assert predicted([boot, pool], engine="sglang").kv_tokens == pytest.approx(618_062, rel=0.001)


@pytest.mark.parametrize("lines", [None, 5, [None, 3, "non-default args: {'tensor_parallel_size': "], [ARGS * 500]])
def test_whatever_the_lines_are_they_do_no_harm(lines: object) -> None:
    assert case_facts({"log_lines": lines}).number("pp") == 0


@pytest.mark.parametrize(("version", "tokens"), [("0.5.3", 107_327), ("0.5.4", 89_350), ("Sep 2026", 89_350)])
def test_a_pool_of_sglang_has_the_indexer_in_it_since_0_5_4(version: str, tokens: int) -> None:
    lines = ["KV Cache is allocated. #tokens: 1, KV size: 4.00 GB"]
    config = {**LATENT, "index_head_dim": 128}
    found = predicted(
        lines, engine="sglang", engine_version=version, model_config=config, flags={"kv_cache_dtype": "fp8_e4m3"}
    )
    assert found.kv_tokens == pytest.approx(tokens, rel=0.001)


@pytest.mark.parametrize(
    ("flags", "share"),
    [({}, 0.9), ({"kv_cache_free_gpu_mem_fraction": 0.5}, 0.5), ({"free_gpu_memory_fraction": 0.95}, 0.95)],
)
def test_tensorrt_llm_takes_a_share_of_what_is_free(flags: dict[str, object], share: float) -> None:
    line = "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.10 GiB, {}"
    case: dict[str, Any] = {"engine": "tensorrt-llm", "model_config": LLAMA}
    found = predicted([line.format("available: 70.00 GiB")], **case, flags=flags)
    assert found.kv_tokens == pytest.approx(70 * 2**30 * share / 131_072, rel=0.001)
    capped = predicted(
        [line.format("available: 70.00 GiB")], **case, flags={**flags, "max_tokens_in_paged_kv_cache": 4096}
    )
    assert capped.kv_tokens == 4096


GEMMA = {"layers": 60, "full_layers": 10, "full_kv_heads": 4, "full_head_dim": 512, "sliding_layers": 50}
GEMMA |= {"sliding_kv_heads": 16, "sliding_head_dim": 256, "sliding_window": 1024}


@pytest.mark.parametrize(("version", "tokens"), [("0.25.1", 280_494), ("0.26.0", 58_368)])
def test_windows_hold_a_second_batch_since_0_26(version: str, tokens: int) -> None:
    """The needs of both are in vllm issue 49878: 45.79 GiB a request, then 70.79 GiB of 49.0 GiB."""
    lines = [
        "INFO [gpu_worker.py:479] Initial free memory 93.88 GiB, reserved 49.0 GiB memory for KV Cache as specified"
    ]
    if version == "0.26.0":
        lines.append(
            "ValueError: To serve at least one request with the model's max seq len (262144), (70.79 GiB KV cache is "
            "needed, which is larger than the available KV cache memory (49.0 GiB). Based on the available memory, the "
            "estimated maximum model length is 58368."
        )
    flags = {"max_num_batched_tokens": 32768, "max_model_len": 262144}
    found = predicted(lines, engine="vllm", engine_version=version, model_config=GEMMA, flags=flags)
    assert found.kv_tokens == tokens


def test_a_layer_that_shares_rows_has_its_own_in_sglang() -> None:
    types = ["full_attention" if i % 6 == 5 else "sliding_attention" for i in range(42)]
    config = {"model_type": "gemma4_text", "num_hidden_layers": 42, "num_attention_heads": 8, "hidden_size": 2560}
    config |= {"num_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512, "num_kv_shared_layers": 18}
    config |= {"sliding_window": 512, "vocab_size": 262144, "layer_types": types}
    line = "SWAKVPool mem usage: 79.94 GB, swa size: 798276, full size: 997846"
    found = predicted([line], engine="sglang", model="google/gemma-4-E4B-it", model_config=config)
    assert found.kv_tokens == pytest.approx(997_846, rel=0.001)


LLAMA_8B = {
    "model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "hidden_size": 4096, "intermediate_size": 14_336, "vocab_size": 128_256, "max_position_embeddings": 131_072,
}  # fmt: skip


@pytest.mark.parametrize(("card", "length", "tokens"), [(23.58, 29_000, 23_648), (23.58, 20_000, 31_232)])
def test_blind_from_a_config_follows_the_batch_that_is_profiled(card: float, length: int, tokens: int) -> None:
    """https://github.com/vllm-project/vllm/issues/10517: 14.9888 GiB of weights, 2.89 and 3.81 left for the cache."""
    gpu = {"name": "RTX 3090", "vram_gib": card}
    flags = {"max_model_len": length, "gpu_memory_utilization": 0.9}
    facts = case_facts({"engine": "vllm", "model_config": LLAMA_8B, "gpu": gpu, "flags": flags})
    low, best, high = (card * 0.9 - 14.9888 - end for end in reversed(rest_gib(facts, card, (0, 6, 3))))
    seen = tokens * 131_072 / (1 << 30)
    assert low < seen < high
    assert best == pytest.approx(seen, rel=0.05)


def test_blind_from_a_config_is_narrower_than_without_one() -> None:
    lines = ["INFO [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 7.7 seconds"]
    flags = {"max_num_seqs": 8, "max_num_batched_tokens": 2048}
    stated: dict[str, Any] = {"engine": "vllm", "engine_version": "0.11.0", "flags": flags}
    large = {"name": "H100", "vram_gib": 79.18}
    named = predicted(lines, gpu=large, model_config=LLAMA_8B, **stated)
    plain = predicted(lines, gpu=large, model_config=LLAMA, **stated)
    assert named.basis == plain.basis == "blind"
    for each in (named, plain):
        assert (each.low_tokens or 0) < (each.kv_tokens or 0) < (each.high_tokens or 0)
    assert (named.kv_tokens or 0) > (plain.kv_tokens or 0)
    assert named.high_tokens - named.low_tokens < (plain.high_tokens or 0) - (plain.low_tokens or 0)  # type: ignore[operator]


MIMO = {"num_hidden_layers": 48, "num_key_value_heads": 4, "swa_num_key_value_heads": 8, "head_dim": 192}
MIMO |= {"v_head_dim": 128, "swa_head_dim": 192, "swa_v_head_dim": 128, "sliding_window": 128}


def test_layers_by_a_list_are_counted() -> None:
    pattern = [0] + [int(i % 6 != 5) for i in range(1, 48)]
    found = case_facts({"model_config": {**MIMO, "hybrid_layer_pattern": pattern}}).geometry
    assert found is not None
    kinds = {(layer.attention, layer.kv_heads, layer.k_width, layer.v_width): n for layer, n in found.kinds}
    assert kinds == {("full", 4, 768, 512): 9, ("sliding", 8, 1536, 1024): 39}
    types = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 4
    mixed = case_facts({"model_config": {"layer_types": types, "num_key_value_heads": 2, "head_dim": 64}}).geometry
    assert mixed is not None
    assert sorted(n for _, n in mixed.kinds) == [4, 12]
    assert (
        "which layers slide" in case_facts({"model_config": {**MIMO, "hybrid_layer_pattern": [0, 1]}}).geometry_reason
    )
