"""The traps of real boot logs, one test each."""

from __future__ import annotations

import io
import json

import pytest

from archonctl.ledger import BootLedger, LedgerReader, read_ledger
from archonctl.ledger.refusal import refusal

KV = "GPU KV cache size: 178,880 tokens"
LLAMA_SIZE = (
    "llama_kv_cache: size =   32.00 MiB ( 16384 cells,   4 layers,  2/2 seqs), "
    "K (f16):   16.00 MiB, V (f16):   16.00 MiB"
)


def read(*lines: str, engine: str | None = None) -> BootLedger:
    return read_ledger(lines, engine)


def best(ledger: BootLedger, name: str) -> float | None:
    value = ledger.get(name)
    return None if value is None else value.best


class TestCarriers:
    @pytest.mark.parametrize(
        "line",
        [
            KV,
            f"INFO 01-30 03:18:12 kv_cache_utils.py:395] {KV}",
            f"(EngineCore_0 pid=5839) INFO 08-20 18:04:22 [kv_cache_utils.py:716] {KV}",
            f"\x1b[1;36m(EngineCore_DP0 pid=1)\x1b[0;0m INFO 08-31 14:45:45 [kv_cache_utils.py:716] {KV}",
            f"[1;36m(VllmWorker rank=1 pid=219)[0;0m INFO 08-31 14:45:44 [v1/core/kv_cache_utils.py:716] {KV}",
            f"(RayWorkerWrapper pid=304431) (EngineCore_DP0 pid=3) INFO 07-25 02:40:06 [kv_cache_utils.py:716] {KV}",
            f"(RayWorkerWrapper pid=1, ip=10.0.0.2) INFO 07-25 02:40:06 [kv_cache_utils.py:716] {KV}",
            f"vllm-1  | INFO 07-25 02:40:06 [kv_cache_utils.py:716] {KV}",
            f"2026-01-21T09:10:09.962695Z INFO 07-25 02:40:06 [kv_cache_utils.py:716] {KV}",
            f"2026-04-19 09:37:48.123 | (EngineCore pid=207) INFO 04-19 09:37:48 [kv_cache_utils.py:829] {KV}",
            f"Sep 11 00:42:50 host vllm[3110]: INFO 09-11 00:42:50 [kv_cache_utils.py:716] {KV}",
            f"2026-09-11T00:42:50+0200 host vllm[3110]: INFO 09-11 00:42:50 [kv_cache_utils.py:716] {KV}",
            f'level=INFO name=vllm.v1.core.kv_cache_utils msg="{KV}"',
            f'time=2026-01-01T00:00:00Z level=INFO msg="{KV}" pid=7',
            json.dumps({"level": "info", "message": KV}),
            json.dumps({"MESSAGE": list(f"INFO 07-25 02:40:06 [x.py:1] {KV}".encode()), "_PID": "1"}),
            json.dumps({"log": f"INFO 07-25 02:40:06 [x.py:1] {KV}\n", "stream": "stderr"}),
            json.dumps({"log": json.dumps({"msg": KV})}),
            f"   {KV}   ",
            f"{KV}\r\n",
        ],
    )
    def test_a_line_is_read_out_of_whatever_carries_it(self, line: str) -> None:
        for engine in (None, "vllm"):
            ledger = read(line, engine=engine)
            assert ledger.engine == "vllm"
            assert best(ledger, "kv_tokens") == 178880

    @pytest.mark.parametrize(
        "line",
        [
            f"0.08.032.922 I {LLAMA_SIZE}",
            f"[47161] 0.14.912.338 I {LLAMA_SIZE}",
            f"[llama Info]: {LLAMA_SIZE}",
            f"docker-llama-1 | 0.08.032.922 I {LLAMA_SIZE}",
            json.dumps({"type": "log", "time": 1057, "level": "info", "msg": LLAMA_SIZE + "\n"}),
        ],
    )
    def test_llama_lines_too(self, line: str) -> None:
        assert best(read(line), "kv_tokens") == 32768

    @pytest.mark.parametrize(
        "line",
        [
            f"Received request cmpl-1: prompt: '{KV}', params: SamplingParams(n=1)",
            f'logger.info("{KV}")',
            f"user said: {KV}",
            json.dumps({"message": f"prompt was {KV}"}),
        ],
    )
    def test_a_ledger_line_quoted_inside_another_message_is_no_evidence(self, line: str) -> None:
        assert best(read(line, engine="vllm"), "kv_tokens") is None

    def test_what_is_printed_once_the_engine_serves_changes_no_capacity(self) -> None:
        ledger = read(KV, "INFO: Application startup complete.", "GPU KV cache size: 9,999,999 tokens", engine="vllm")
        assert best(ledger, "kv_tokens") == 178880
        assert ledger.ready_line == 2


class TestVllm:
    def test_the_least_rank_binds(self) -> None:
        lines = [
            f"(EngineCore_DP0 pid=1) INFO GPU KV cache size: {n} tokens" for n in ("549,232", "548,352", "548,528")
        ]
        assert best(read(*lines), "kv_tokens") == 548352

    def test_available_memory_may_be_negative_and_refuses(self) -> None:
        ledger = read(
            "(EngineCore_0 pid=1) INFO 08-20 18:04:22 [gpu_worker.py:276] Available KV cache memory: -24.42 GiB",
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "(EngineCore_0 pid=1) ERROR 08-20 18:04:22 [core.py:700] EngineCore failed to start.",
        )
        available = ledger.get("available_gib")
        assert available is not None
        assert available.low < -24.42 < available.high
        assert best(ledger, "kv_tokens") is None
        cause = refusal(ledger)
        assert cause is not None
        assert cause.code == "kv-too-small"
        assert "kv_tokens" in ledger.missing

    def test_one_line_and_two_line_forms_agree(self) -> None:
        two = read("GPU KV cache size: 314,187 tokens", "Maximum concurrency for 8,192 tokens per request: 38.35x")
        one = read("GPU KV cache size: 314,187 tokens, Maximum concurrency for 8,192 tokens per request: 38.35x")
        assert {k: v.value for k, v in one.figures.items()} == {k: v.value for k, v in two.figures.items()}
        assert (
            best(
                read("CPU KV cache size: 524,288 tokens, Maximum concurrency for 8,192 tokens per request: 64.00x"),
                "kv_tokens",
            )
            == 524288
        )

    def test_blocks_become_tokens_by_sixteen_or_by_the_size_that_is_printed(self) -> None:
        assert best(read("INFO x.py:1] # GPU blocks: 1381"), "kv_tokens") == 22096
        assert best(read("# cuda blocks: 100, # CPU blocks: 2048"), "kv_tokens") == 1600
        assert (
            best(read("Forcing kv cache block size to 64 for FlashMLA backend.", "# GPU blocks: 10"), "kv_tokens")
            == 640
        )

    def test_an_override_while_graphs_are_profiled_is_not_the_pool(self) -> None:
        ledger = read("Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512", engine="vllm")
        assert best(ledger, "kv_tokens") is None

    def test_reserved_memory_stands_in_for_available_memory(self) -> None:
        ledger = read(
            "Initial free memory 90.12 GiB, reserved 8.00 GiB memory for KV Cache as specified by kv_cache_memory_bytes"
        )
        assert best(ledger, "reserved_gib") == 8.0
        assert best(ledger, "available_gib") is None

    def test_a_multiplier_is_told_and_not_applied_again(self) -> None:
        ledger = read(
            "Multiplying the GPU KV cache size by the dcp_world_size 2.", "GPU KV cache size: 1,723,584 tokens"
        )
        assert best(ledger, "dcp") == 2
        assert best(ledger, "kv_tokens") == 1723584

    def test_tokens_of_a_hybrid_before_the_change_of_meaning_are_told_apart(self) -> None:
        old = read("GPU KV cache size: 67,728 tokens", "Maximum concurrency for 180,000 tokens per request: 1.06x")
        assert old.facts["kv_tokens_meaning"] == "blocks"
        served = old.get("concurrent_tokens")
        assert served is not None
        assert served.low <= 190_800 <= served.high
        new = read(
            "vLLM API server version 0.21.0",
            "GPU KV cache size: 622,408 tokens",
            "Maximum concurrency for 262,144 tokens per request: 2.37x",
        )
        assert new.facts["kv_tokens_meaning"] == "concurrency x length"
        assert new.engine_version == "0.21.0"

    def test_a_source_line_hints_at_the_version(self) -> None:
        assert (
            read(f"(EngineCore pid=1) INFO 06-01 09:47:57 [kv_cache_utils.py:1733] {KV}").facts["version_hint"]
            == "0.21"
        )

    def test_a_wrapped_refusal_is_read_whole(self) -> None:
        for broken in (
            [
                "To serve at least one request with the model's max seq len (100000), (4.26 GiB KV cach",
                "e is needed, which is larger than the available KV cache memory (4.25 GiB). Based on",
            ],
            [
                "ValueError: To serve at least one request with the model's max seq len (100000),",
                "4.26 GiB KV cache is needed, which is larger than the available KV cache memory (4.25 GiB).",
            ],
            [
                "(EngineCore pid=1) ERROR 01-01 00:00:00 [core.py:1] ValueError: To serve at least "
                "one request with the models's max seq len (100000), (4.26 GiB KV cache is needed,",
                "(EngineCore pid=1) ERROR 01-01 00:00:00 [core.py:1] which is larger than the "
                "available KV cache memory (4.25 GiB).",
            ],
        ):
            ledger = read(*broken)
            assert (best(ledger, "needed_gib"), best(ledger, "available_gib")) == (4.26, 4.25), broken
            assert ledger.has("kv-too-small")

    def test_a_held_message_swallows_no_message_of_its_own(self) -> None:
        ledger = read("ValueError: To serve at least one request with the model's max seq len (196608),", KV)
        assert best(ledger, "kv_tokens") == 178880
        assert best(ledger, "needed_gib") is None

    def test_figures_printed_short_are_as_exact_as_the_engine_rounds_them(self) -> None:
        value = read("Available KV cache memory: 22.5 GiB").get("available_gib")
        assert value is not None
        assert value.high - value.low == pytest.approx(0.01)

    def test_a_second_boot_replaces_the_first(self) -> None:
        boot = "(APIServer pid=1) INFO 11-30 06:05:52 [api_server.py:1] vLLM API server version 0.11.0"
        ledger = read(boot, "GPU KV cache size: 100,000 tokens", "EngineCore failed to start.", boot, KV)
        assert best(ledger, "kv_tokens") == 178880
        assert ledger.boots == 2
        assert refusal(ledger) is None


class TestLlama:
    DRY = (
        "llama_context: n_seq_max             = 2",
        "llama_kv_cache:        CPU KV buffer size =     0.00 MiB",
        LLAMA_SIZE.replace("16384 cells", "99999 cells"),
        "sched_reserve:        CPU compute buffer size =     9.39 MiB",
    )
    REAL = (
        "llama_context: n_seq_max             = 2",
        "llama_context: n_ctx                 = 32768",
        "llama_kv_cache:        CPU KV buffer size =    32.00 MiB",
        LLAMA_SIZE,
        "sched_reserve:        CPU compute buffer size =     9.39 MiB",
    )
    DRAFT = (
        "llama_context: n_seq_max             = 2",
        "llama_kv_cache:        CPU KV buffer size =     8.00 MiB",
        LLAMA_SIZE.replace("32.00", "8.00").replace("4 layers", "1 layers"),
        "sched_reserve:        CPU compute buffer size =     3.00 MiB",
    )

    def test_cells_count_once_a_stream(self) -> None:
        assert best(read(LLAMA_SIZE), "kv_tokens") == 32768
        assert best(read(LLAMA_SIZE.replace("2/2 seqs", "4/1 seqs")), "kv_tokens") == 16384
        assert best(read(LLAMA_SIZE.replace("2/2 seqs", " 1 seqs")), "kv_tokens") == 16384

    def test_a_dry_run_is_no_allocation(self) -> None:
        ledger = read(*self.DRY, *self.REAL)
        assert best(ledger, "cells") == 16384
        assert best(ledger, "kv_mib") == 32.0
        assert best(ledger, "draft_kv_mib") is None

    def test_a_dry_run_alone_is_no_evidence_of_tokens(self) -> None:
        assert best(read(*self.DRY), "kv_tokens") is None

    def test_a_draft_context_adds_and_replaces_nothing(self) -> None:
        ledger = read(*self.REAL, *self.DRAFT)
        assert best(ledger, "kv_mib") == 32.0
        assert best(ledger, "draft_kv_mib") == 8.0
        assert best(ledger, "draft_compute_mib") == 3.0

    def test_buffers_are_never_added_to_the_size_line(self) -> None:
        assert best(read(*self.REAL), "kv_mib") == 32.0

    def test_two_caches_of_a_sliding_window_model_are_summed_and_told_apart(self) -> None:
        ledger = read(
            "llama_kv_cache_iswa: creating non-SWA KV cache, size = 8192 cells",
            "llama_kv_cache: size =  102.00 MiB (  8192 cells,  12 layers,  1/1 seqs), K (q8_0):   "
            "51.00 MiB, V (q8_0):   51.00 MiB",
            "llama_kv_cache_iswa: creating     SWA KV cache, size = 256 cells",
            "llama_kv_cache: size =    3.19 MiB (   256 cells,  12 layers,  1/1 seqs), K (q8_0):    "
            "1.59 MiB, V (q8_0):    1.59 MiB",
        )
        assert best(ledger, "kv_tokens") == 8192
        assert (best(ledger, "kv_mib"), best(ledger, "swa_kv_mib")) == (102.0, 3.19)
        assert best(ledger, "kv_total_mib") == pytest.approx(105.19)

    def test_default_verbosity_gives_slots_but_no_tokens(self) -> None:
        ledger = read(
            "0.00.207.197 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 262144, kv_unified = 'true'"
        )
        assert (best(ledger, "n_slots"), best(ledger, "n_ctx_slot")) == (4, 262144)
        assert best(ledger, "kv_tokens") is None
        assert set(ledger.missing) == {"kv_tokens", "kv_mib"}

    def test_a_failed_allocation_that_was_overcome_is_a_warning(self) -> None:
        oom = (
            "1.06.520.077 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 51748.72 MiB on "
            "device 1: cudaMalloc failed: out of memory",
            "1.06.520.086 E graph_reserve: failed to allocate compute buffers",
        )
        slots = "1.07.304.130 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 50176, kv_unified = 'false'"
        lost = refusal(read(*oom))
        assert lost is not None
        assert lost.code == "out-of-memory"
        survived = read(*oom, slots)
        assert refusal(survived) is None
        assert survived.has("out-of-memory")

    def test_layers_left_on_the_cpu_are_told(self) -> None:
        assert read("load_tensors: offloaded 18/33 layers to GPU").has("partial-offload")
        assert read("load_tensors: offloaded 0/33 layers to GPU").has("cpu-fallback")
        assert not read("load_tensors: offloaded 33/33 layers to GPU").remarks

    def test_device_buffers_count_apart_from_host_buffers(self) -> None:
        ledger = read(
            "load_tensors:   CPU_Mapped model buffer size =   682.03 MiB",
            "load_tensors:      Vulkan0 model buffer size = 18163.06 MiB",
            "sched_reserve:    Vulkan0 compute buffer size =   568.18 MiB",
            "sched_reserve: Vulkan_Host compute buffer size =    20.00 MiB",
        )
        assert best(ledger, "model_mib") == 18163.06
        assert best(ledger, "compute_mib") == 568.18
        assert best(ledger, "compute_host_mib") == 20.0

    def test_a_restart_reports_the_last_boot(self) -> None:
        loading = "0.00.005.048 I srv    load_model: loading model 'a.gguf'"
        ledger = read(loading, *self.REAL, loading, *self.DRAFT)
        assert ledger.boots == 2
        assert best(ledger, "kv_mib") == 8.0

    def test_what_is_said_before_the_model_loads_belongs_to_that_boot(self) -> None:
        loading = "0.00.005.048 I srv    load_model: loading model 'a.gguf'"
        ledger = read(loading, *self.REAL, "warning: no usable GPU found, --gpu-layers option will be ignored", loading)
        assert ledger.has("cpu-fallback")
        assert not ledger.figures

    def test_a_shortened_context_is_told(self) -> None:
        ledger = read(
            "common_params_fit_impl: context size reduced from 131072 to 20224 -> need 13964 MiB less memory in total"
        )
        assert ledger.has("context-reduced-by-fit")
        assert (best(ledger, "n_ctx_from"), best(ledger, "n_ctx_to")) == (131072, 20224)


class TestRadiance:
    BOOT = (
        "I model: Qwen3.8-Flash-Next  arch=qwen3_8_next  quant=fp8-iq4r  48 layers  262144 ctx",
        "I[0] VRAM budget, per card:",
        "  card total            31.11 GiB",
        "  --gpu-headroom-mib    96.00 MiB",
        "  experts               25.00 GiB (83%)",
        "  kv cache               5.00 GiB (17%), 100% backing of the 3 x 200000 worst case: 3.0 full-length sessions",
        "  vram_kv             5120.00 MiB",
        "I[0] kv: the pool backs 93% of the worst case (3 sequences all at 200000 tokens), 2.8 full-length sessions.",
        "I[1] kv: the pool backs 92% of the worst case (3 sequences all at 200000 tokens), 2.8 full-length sessions.",
    )
    GROUPS = (
        "I[0] kv: KV layer bundles of 2 groups",
        "  attn  full 12 layers  block 4 tok  page 26.00 KiB  139087 blocks = 3.45 GiB  (556348 tokens)",
        "  bkey  full 12 layers  block 4 tok  page 3.25 KiB  139090 blocks = 0.43 GiB  (556360 tokens)",
        "  conv  state 54.00 MiB 6 slots = 324.00 MiB",
    )
    SETTLE = (
        "I card {card} settled at {free} free against 209.19 MiB "
        "(the 96.00 MiB --gpu-headroom-mib and 113.19 MiB kept for the static region)"
    )

    def test_sessions_give_tokens_as_wide_as_their_rounding(self) -> None:
        value = read(*self.BOOT).get("kv_tokens")
        assert value is not None
        assert value.low <= 556_348 <= value.high <= 600_000
        assert not value.is_exact

    def test_paged_groups_share_one_axis(self) -> None:
        assert best(read(*self.BOOT, *self.GROUPS), "kv_tokens") == 556348

    def test_the_budget_table_is_read_row_by_row(self) -> None:
        ledger = read(*self.BOOT)
        assert best(ledger, "card_total_gib") == 31.11
        assert best(ledger, "headroom_mib") == 96.0
        assert best(ledger, "vram_kv_mib") == 5120.0

    def test_the_later_form_names_pool_tokens_and_sessions(self) -> None:
        ledger = read("I kv: 4.20 GiB of cache a card, 556,348 tokens, 2.8 sessions of 200,000", engine="radiance")
        assert (best(ledger, "kv_tokens"), best(ledger, "kv_gib"), best(ledger, "sessions")) == (556348, 4.2, 2.8)

    def test_the_tightest_card_settles(self) -> None:
        ledger = read(self.SETTLE.format(card=0, free="2.01 GiB"), self.SETTLE.format(card=1, free="1.98 GiB"))
        free = ledger.get("free_gib")
        assert free is not None
        assert free.low == pytest.approx(1.975)
        assert best(ledger, "floor_mib") == 209.19
        assert not ledger.has("headroom-short")
        assert read(self.SETTLE.format(card=0, free="150.00 MiB")).has("headroom-short")

    @pytest.mark.parametrize(
        ("line", "code", "severity"),
        [
            ("E unknown option '--vram-kv-mib'", "unknown-argument", "refusal"),
            ("E --host-pool-mib needs an argument", "argument-invalid", "refusal"),
            ("E[0] DID NOT FIT 96 x blk.*.ffn (4.10 GiB): the host pool is full", "host-pool-full", "refusal"),
            ("  SHORT BY 512.00 MiB", "budget-short", "refusal"),
            ("E --tp 2 needs 2 devices of one architecture", "devices-too-few", "refusal"),
            ("radiance: fatal: no device", "engine-start-failed", "refusal"),
            ("E cannot create /data/kvcache", "cache-tier-off", "warning"),
            (
                "W kv group 'attn' holds 180000 tokens but the context limit is 200000: ONE request "
                "longer than 180000 tokens",
                "request-never-fits",
                "warning",
            ),
        ],
    )
    def test_trouble_has_a_name(self, line: str, code: str, severity: str) -> None:
        remarks = read(line, engine="radiance").remarks
        assert [(r.code, r.severity) for r in remarks] == [(code, severity)]

    def test_a_folder_that_some_other_line_cannot_create_is_no_tier(self) -> None:
        assert not read("I cannot create /data/kvcache", engine="radiance").remarks


class TestOthers:
    def test_target_and_draft_pools_of_one_rank_are_told_apart(self) -> None:
        ledger = read(
            "[2026-10-02 00:39:41 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: "
            "295950, K size: 4.52 GB, V size: 4.52 GB",
            "[2026-10-02 00:39:41 TP1] KV Cache is allocated. dtype: torch.bfloat16, #tokens: "
            "295900, K size: 4.51 GB, V size: 4.51 GB",
            "[2026-10-02 00:39:42 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: "
            "295950, K size: 3.39 GB, V size: 3.39 GB",
        )
        assert best(ledger, "kv_tokens") == 295900
        assert best(ledger, "k_gib") == 4.52
        assert best(ledger, "draft_k_gib") == 3.39

    def test_of_two_pools_the_smaller_binds_and_the_larger_bounds(self) -> None:
        value = read(
            "KV Cache is allocated. #tokens: 29664, K size: 1.00 GB, V size: 1.00 GB",
            "KV Cache is allocated. #tokens: 37081, K size: 0.59 GB, V size: 0.59 GB",
            "SWAKVPool mem usage: 3.18 GB, swa size: 29664, full size: 37081",
        ).get("kv_tokens")
        assert value is not None
        assert (value.low, value.best, value.high) == (29664, 29664, 37081)

    def test_an_sglang_log_without_tokens_in_the_pool_line(self) -> None:
        ledger = read(
            "[2025-02-04 05:29:17 TP0] KV Cache is allocated. K size: 2.82 GB, V size: 2.82 GB.",
            "[2025-02-04 05:29:20 TP0] max_total_num_tokens=105531, chunked_prefill_size=2048, "
            "max_prefill_tokens=16384, max_running_requests=2049, context_len=131072",
        )
        assert (best(ledger, "kv_tokens"), best(ledger, "k_gib"), best(ledger, "context_len")) == (105531, 2.82, 131072)

    def test_the_last_allocation_of_tensorrt_llm_counts(self) -> None:
        ledger = read(
            "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache (8192).",
            "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 26.91 GiB for max tokens in paged KV cache (220480).",
        )
        assert best(ledger, "kv_tokens") == 220480

    def test_tokens_without_memory_are_no_capacity(self) -> None:
        ledger = read(
            "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.00 GiB for max tokens in paged KV cache (3958272)."
        )
        assert best(ledger, "kv_tokens") is None
        assert ledger.has("capacity-not-real")

    def test_ollama_sums_devices_and_keeps_the_last_layout(self) -> None:
        def layout(cuda: str, cpu: str) -> list[str]:
            head = "time=2025-10-22T02:17:58.181Z level=DEBUG source=device.go:217 "
            return [
                f'{head}msg="kv cache" device=CUDA0 size="{cuda} GiB"',
                f'{head}msg="kv cache" device=CPU size="{cpu} GiB"',
                f'{head}msg="total memory" size="33.5 GiB"',
            ]

        ledger = read(*layout("9.0", "9.0"), *layout("1.9", "1.1"))
        assert ledger.engine == "ollama"
        assert best(ledger, "kv_mib") == pytest.approx(3072)
        assert best(ledger, "kv_cpu_mib") == pytest.approx(1126.4)


class TestUnknown:
    @pytest.mark.parametrize("lines", [[], [""], ["hello"], ["\x00\x01\x02"], ["Traceback (most recent call last):"]])
    def test_nothing_is_no_evidence(self, lines: list[str]) -> None:
        ledger = read(*lines)
        assert ledger.engine == "unknown"
        assert not ledger.figures
        assert ledger.lines_read == len(lines)

    def test_a_remark_that_any_engine_may_make_tells_no_engine(self) -> None:
        ledger = read("OSError: [Errno 98] Address already in use")
        assert ledger.engine == "unknown"
        assert ledger.has("port-in-use")

    def test_two_engines_in_one_log_are_told_by_the_larger_part(self) -> None:
        reader = LedgerReader()
        for line in (KV, LLAMA_SIZE):
            reader.feed(line)
        assert reader.detected() == "unknown"
        reader.feed("Maximum concurrency for 8,192 tokens per request: 3.00x")
        assert reader.detected() == "vllm"


class TestFollowing:
    def test_feed_says_what_a_line_changed(self) -> None:
        reader = LedgerReader("llamacpp")
        assert reader.feed("nothing of interest\n") is None
        change = reader.feed(LLAMA_SIZE.encode())
        assert change is not None
        assert change.figures["kv_tokens"].value.best == 32768
        assert change.figures["kv_tokens"].line_no == 2
        again = reader.feed("0.00.239.622 I srv  llama_server: model loaded")
        assert again is not None
        assert again.ready
        assert not again.figures

    def test_line_by_line_and_in_blocks_come_to_the_same(self) -> None:
        lines = [
            *TestRadiance.BOOT,
            *TestRadiance.GROUPS,
            "noise",
            *TestLlama.DRY,
            *TestLlama.REAL,
            KV,
            "",
            "x" * 300_000,
        ]
        for engine in (None, "radiance", "llamacpp", "vllm"):
            reader = LedgerReader(engine)
            for line in lines:
                reader.feed(line)
            by_line = reader.result()
            text = "\n".join(lines).encode()
            assert read_ledger(lines, engine) == by_line
            assert read_ledger(io.BytesIO(text), engine) == by_line
            assert read_ledger(io.StringIO(text.decode()), engine) == by_line

    def test_a_log_far_into_which_an_engine_boots_is_still_read(self) -> None:
        noise = b"".join(b"request %d took %d ms\n" % (n, n * 7 % 1000) for n in range(900_000))
        ledger = read_ledger(
            io.BytesIO(
                noise + b"GPU KV cache size: 178,880 tokens\nMaximum concurrency for 8,192 tokens per request: 21.84x\n"
            )
        )
        assert ledger.engine == "vllm"
        assert ledger.figures["kv_tokens"].line_no == 900_001
        assert ledger.lines_read == 900_002


class TestVariants:
    """Forms that other versions and other people's pastes have."""

    @pytest.mark.parametrize(
        ("line", "name", "value"),
        [
            (
                "# (Worker_TP0 pid=1) INFO 12-11 00:06:53 [gpu_worker.py:359] Available KV cache memory: 52.36 GiB",
                "available_gib",
                52.36,
            ),
            ("> `Available KV cache memory: 2.95 GiB`", "available_gib", 2.95),
            ("(EngineCore pid=258) INFO gpu_worker.py:440 Available KV cache memory: 0.56 GiB", "available_gib", 0.56),
            ("Model loading took 2.8871 GiB          (predicted 2.87)", "weights_gib", 2.8871),
            ("  maximum model length is 112896.", "estimated_max_model_len", 112896),
            ("KV Cache is allocated. dtype: torch.bfloat16, #tokens: 600000", "kv_tokens", 600000),
            ("[full] KV Cache is allocated. #tokens: 38141, K size: 2.33 GB, V size: 2.33 GB", "k_gib", 2.33),
            (
                "max_total_num_tokens=350257, ... max_running_requests=12, context_len=262144",
                "max_running_requests",
                12,
            ),
            ("Load weight end. ... mem usage=20.14 GB          <- weights", "weights_gib", 20.14),
            (
                "Load weight end. elapsed=60s, type=X, quant=fp8, avail mem=80.00 GB, mem usage=20.00 GB.",
                "load_seconds",
                60,
            ),
            (
                "Capture cuda graph end. Time elapsed: 18.07 s. mem usage=0.11 GB. avail mem=0.83 GB.",
                "cuda_graph_gib",
                0.11,
            ),
            (
                "0.00.263.342 I init: kv_size = 2048, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = "
                "24, can_shift = 1",
                "kv_size",
                2048,
            ),
            (
                "0.00.386.717 I llama_context_kv_self: KV self size  =  384.00 MiB, K (f16):  192.00 MiB, V "
                "(f16):  192.00 MiB",
                "kv_mib",
                384,
            ),
            ("llama_new_context_with_model: kv self size  =  256.00 MB", "kv_mib", 256),
            ("llama_new_context_with_model: compute buffer total size = 76.63 MB", "compute_mib", 76.63),
            ("0.00.389.545 I reserve:        CPU compute buffer size =   102.25 MiB", "compute_mib", 102.25),
            ("llama_kv_cache: size =  512.00 MiB (32768 cells,  4 layers)", "kv_mib", 512),
            (
                "llama_kv_cache: size = 1792.00 MiB (262144 cells,   8 layers,  1/1 seqs), K (turbo3):  896.00 "
                "MiB, V (turbo3):  896.00 MiB",
                "kv_tokens",
                262144,
            ),
            (
                "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 31.84 "
                "GiB, available: 17.83 GiB",
                "available_gib",
                17.83,
            ),
            ("[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219", "gpu_blocks", 8219),
            (
                'time=2025-12-01T20:28:54.084Z level=INFO source=memory.go:356 msg="offload to cuda" '
                'layers.requested=-1 layers.model=33 layers.offload=33 layers.split="" memory.available="[23.3 '
                'GiB]" memory.gpu_overhead="0 B" memory.required.full="6.5 GiB" memory.required.partial="6.5 '
                'GiB" memory.required.kv="1.0 GiB" memory.required.allocations="[6.5 GiB]" '
                'memory.weights.total="4.9 GiB" memory.weights.repeating="4.5 GiB"',
                "kv_mib",
                1024,
            ),
        ],
    )
    def test_a_variant_is_read(self, line: str, name: str, value: float) -> None:
        assert best(read(line), name) == pytest.approx(value)

    def test_a_refusal_wrapped_over_four_lines_is_read_whole(self) -> None:
        ledger = read(
            "ValueError: To serve at least one request with the model's max seq len",
            "  (131072), 8.18 GiB KV cache is needed, which is larger than the available",
            "  KV cache memory (7.04 GiB). Based on the available memory, the estimated",
            "  maximum model length is 112896.",
        )
        names = ("max_model_len", "needed_gib", "available_gib", "estimated_max_model_len")
        assert [best(ledger, name) for name in names] == [131072, 8.18, 7.04, 112896]

    def test_a_window_that_tensorrt_llm_reduced_is_told(self) -> None:
        ledger = read(
            "[TensorRT-LLM][WARNING] maxAttentionWindow and maxSequenceLen are too large for at least one sequence "
            "to fit in kvCache. they are reduced to 5185"
        )
        assert ledger.has("context-reduced-by-fit")
        assert best(ledger, "n_ctx_to") == 5185

    def test_a_boot_in_which_the_first_sequence_of_lines_is_shared_with_another_engine(self) -> None:
        ledger = read(
            "Mamba Cache is allocated. max_mamba_cache_size: 97",
            "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.56 GiB for max tokens in paged KV cache (12800).",
        )
        assert ledger.engine == "tensorrt_llm"


class TestStops:
    BOOT = ("vLLM API server version 0.32.0", KV, "Application startup complete.")
    STOP = "[shutdown] API server: shutdown triggered"
    DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."

    def test_what_an_engine_cries_while_it_is_stopped_is_no_crash(self) -> None:
        assert refusal(read(*self.BOOT, self.STOP, self.DEAD)) is None

    def test_an_engine_that_dies_and_then_stops_is_one(self) -> None:
        cause = refusal(read(*self.BOOT, self.DEAD, self.STOP))
        assert cause is not None
        assert cause.code == "engine-crashed"

    def test_a_start_after_a_stop_is_a_boot_of_its_own(self) -> None:
        ledger = read(*self.BOOT, self.STOP, self.DEAD, "GPU KV cache size: 9,216 tokens", engine="vllm")
        assert ledger.boots == 2
        assert best(ledger, "kv_tokens") == 9216
        assert not ledger.ready_line
