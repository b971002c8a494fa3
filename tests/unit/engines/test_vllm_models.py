"""Layers of real architectures: what vLLM's own model classes and planner made of a config, against the law here.

``tests/golden/vllm/models.jsonl``: small configs of public architectures, built on the "meta" device by vLLM 0.32.0
through ``engines/vllm/ask_planner.py`` (8 GiB, blocks of 16, 32,768 tokens, 2,048 a batch).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archonctl.engines.vllm.groups import form_groups
from archonctl.engines.vllm.kv import KvSettings, block_bytes, plan_kv
from archonctl.engines.vllm.layers import RankSettings, rank_buckets
from archonctl.engines.vllm.rules import NEWEST, aligned_states, latents, rules_for, states_kept
from archonctl.errors import DeclarationError
from archonctl.model.hf_folder import read_hf_folder

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "vllm" / "models.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
UNKNOWN = {"falcon", "falcon-h1", "gpt2", "mimo-v2", "minicpm3"}
"""Architectures that no law covers here: said, never guessed."""


def name_of(case: dict[str, Any]) -> str:
    return f"{case['name']}-tp{case['tp']}-pp{case['pp']}-{case['kv_dtype']}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_model_has_the_cache_that_vllm_gives_it(case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(case["config"]))
    geometry = read_hf_folder(tmp_path, ["config.json"]).geometry
    if case["name"] in UNKNOWN and geometry is None:
        return
    assert geometry is not None
    rules = rules_for(NEWEST)
    rank = RankSettings(
        tp=case["tp"], pp=case["pp"], kv_dtype=case["kv_dtype"], mla=latents(rules, geometry.architecture)
    )
    if case["name"] in UNKNOWN:
        with pytest.raises(DeclarationError, match="kv-heads-unknown"):
            rank_buckets(geometry, rank)
        return
    kind = geometry.recurrent.kind if geometry.recurrent else ""
    aligned = aligned_states(rules, None, "", geometry)
    settings = KvSettings(
        32_768, in_flight_tokens=2048 * max(2, case["pp"]), mamba_states=states_kept(rules, aligned, kind)
    )
    groups = form_groups(rank_buckets(geometry, rank), stages=case["pp"])
    plan, said = plan_kv(groups, 8 << 30, settings), case["answer"]
    assert (len(groups), max(block_bytes(groups)), plan.blocks) == (said["groups"], said["block_bytes"], said["blocks"])
    assert (plan.kv_tokens, round(plan.max_concurrency, 2)) == (said["tokens"], said["concurrency"])
