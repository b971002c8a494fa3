"""The law against vLLM's own planner: random caches, to the block, the token and the words of a refusal.

``tests/golden/vllm/kv_cases.jsonl.gz`` holds what ``get_kv_cache_configs`` of vLLM 0.32.0 said of each seed;
``scripts/collect-vllm-kv`` asks it again. With ARCHON_TEST_VLLM an integration test asks it about seeds of today.
"""

from __future__ import annotations

from support.kv_cases import difference, random_case, read_cases

CASES = read_cases()


def test_what_was_asked_covers_every_kind_and_every_refusal() -> None:
    kinds = {tuple(sorted(set(random_case(seed)["kinds"]))) for seed, _ in CASES}
    assert kinds >= {("full",), ("mla",), ("full", "sliding"), ("chunked", "full"), ("full", "mamba"), ("mamba", "mla")}
    said = " ".join(str(answer.get("refused", "")) for _, answer in CASES)
    for words in ("No available memory", "To serve at least one request", "estimated maximum", "Failed to promote"):
        assert words in said
    assert sum("refused" not in answer for _, answer in CASES) > 1500


def test_blocks_tokens_concurrency_and_refusals_are_those_of_vllm() -> None:
    differing = [(seed, found) for seed, answer in CASES if (found := difference(random_case(seed), answer))]
    assert not differing, differing[:3]
