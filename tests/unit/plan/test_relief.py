"""From what an engine writes when memory runs out to what gives it back: line, class, amount, page, lever."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

from archonctl.cli.relief_text import question_of
from archonctl.deployment.load import load_endpoint
from archonctl.engines.change import changed
from archonctl.errors import UsageError
from archonctl.host.load import load_host
from archonctl.memory.demand import MemoryClass
from archonctl.memory.interval import MIB
from archonctl.observe.amounts import amount_in
from archonctl.observe.failures import Failure, Line, classify
from archonctl.observe.relief import question, reliefs
from archonctl.plan.load import load_model
from archonctl.plan.relief import Question, Relief, relieve, runbook_of
from archonctl.plan.trial import Trial

AMOUNTS: list[dict[str, Any]] = tomllib.loads(
    files("archonctl.observe").joinpath("amounts.toml").read_text(encoding="utf-8")
)["amount"]


@pytest.mark.parametrize("row", AMOUNTS, ids=lambda row: row["id"])
def test_an_amount_is_read_from_its_own_example(row: dict[str, Any]) -> None:
    found = amount_in(row["example"])
    assert found is not None
    assert row["source"]
    assert found.bytes == pytest.approx(row["by_bytes"], abs=1)
    assert (found.card, found.at_most) == (row.get("card"), row.get("whole", False))


@pytest.mark.parametrize(
    "text", ["", "SHORT BY 1.2.3 MiB", "Tried to allocate 0 GiB. GPU 0 has", "SHORT BY 9999999999999 TiB"]
)
def test_what_is_no_amount_is_none(text: str) -> None:
    assert amount_in(text) is None


def asked_for(engine: str, *lines: str) -> Question:
    """The question that the lines of one event come to."""
    found = list(classify(Line(0.0, "engine", text, "a", engine) for text in lines))
    assert len(found) == 1
    return question(found)


VLLM = """
[contract]
seqs = 1
len = {length}
[engine]
kind = "vllm"
version = "0.32.0"
[model]
path = {model}
[host]
profile = {host}
"""
CONFIG = """{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36,
"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
"max_position_embeddings": 262144, "torch_dtype": "bfloat16"}"""
HOST = 'name = "h"\nram_mib = 65536\n[[cards]]\nindex = 0\nname = "H100"\ntotal_mib = 81559\n'


def vllm(folder: Path, length: int) -> Path:
    """A declaration of vLLM on one card."""
    (folder / "config.json").write_text(CONFIG)
    (folder / "host.toml").write_text(HOST)
    path = folder / "v.toml"
    texts = {"model": json.dumps(str(folder)), "host": json.dumps(str(folder / "host.toml"))}
    path.write_text(VLLM.format(length=length, **texts))
    return path


def answered(repository: Path, name: str | Path, asked: Question) -> tuple[Trial, Relief]:
    path = repository / "env" / f"{name}.toml" if isinstance(name, str) else name
    loaded = load_endpoint(path, {}, {})
    with loaded.placing():
        trial = Trial(loaded.name, loaded.endpoint, load_host(loaded), load_model(loaded.endpoint))
    return trial, relieve(trial, asked)


def test_a_radiance_budget_that_is_short_names_the_pair_and_in_the_later_era_the_host_pool(repository: Path) -> None:
    asked = asked_for("radiance", "  SHORT BY           512.00 MiB")
    assert asked == Question("kv_cache", 512 * MIB)
    _, pair = answered(repository, "archon-pair", asked)
    assert [way.text for way in pair.ways[:2]] == [
        "lower vram-weights-mib to 25,088",
        "lower vram-kv-mib to 4,608",
    ]
    trial, later = answered(repository, "archon", asked)
    assert later.text == "kv_cache on card ? short by 512 MiB"
    assert later.ways[0].text.startswith("raise host-pool-mib to ")
    assert later.ways[0].gives_bytes >= 2 * 512 * MIB, "512 MiB on each of two cards"
    assert any(way.text.startswith("lower contract.len to ") for way in later.ways)
    for way in later.ways:
        assert trial.plan(way.set).forecast.kv_tokens is not None


def test_a_radiance_host_pool_that_is_full_wants_more_of_it(repository: Path) -> None:
    line = "DID NOT FIT 96 x blk.*.ffn_experts (4.10 GiB): the host pool is full and no --weights-disk-tier was given"
    _, found = answered(repository, "archon", asked_for("radiance", line))
    assert found.text == "offload in the engine's host pool short by 4,199 MiB"
    (way,) = found.ways
    assert way.text == "raise host-pool-mib to 49,792"  # 45,568 and 66 steps of 64: the first above 4,198.4


def test_a_vllm_cache_that_is_too_small_is_answered_by_the_share_of_the_card_or_by_shorter_conversations(
    repository: Path, tmp_path: Path
) -> None:
    line = (
        "ValueError: To serve at least one request with the model's max seq len (262144), (36.0 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (30.0 GiB). Based on the available memory, ..."
    )
    asked = asked_for("vllm", line)
    assert asked == Question("kv_cache", 6 << 30, pool=True)
    trial, found = answered(repository, vllm(tmp_path, 262_144), asked)
    texts = [way.text for way in found.ways]
    assert texts == ["set contract.kv_dtype to fp8", "lower contract.len to 218,448"]
    shorter = changed(trial.endpoint, found.ways[1].set).contract
    assert shorter.len * 36 * 2 * 8 * 128 * 2 <= 30 << 30


def test_a_traceback_of_vllm_comes_to_fewer_batched_tokens(repository: Path, tmp_path: Path) -> None:
    asked = asked_for(
        "vllm",
        '  File "/v/gpu_model_runner.py", line 6140, in profile_run',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of "
        "79.19 GiB of which 32.00 MiB is free.",
    )
    assert asked == Question("activation", 32 * MIB, 0)
    _, found = answered(repository, vllm(tmp_path, 32_768), asked)
    way = found.ways[0]
    assert way.text.startswith("lower max-num-batched-tokens to ")
    assert way.gives_bytes >= 32 * MIB
    assert found.runbook == "ran-out-of-activation"


def test_the_figure_of_an_event_may_stand_in_any_of_its_lines() -> None:
    lines = (
        "0.01.739.634 E ggml_aligned_malloc: insufficient memory (attempted to allocate 16384.00 MB)",
        "0.01.747.028 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 17179869184",
        "E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
    )
    assert asked_for("llamacpp", *lines) == Question("kv_cache", 17_179_869_184, at_most=True)


def test_a_kernel_that_kills_is_about_ram_and_the_largest_shortage_is_asked_for() -> None:
    one = Failure(1.0, "a", "unknown", "kernel", "x", "kernel-oom")
    assert question([one]) == Question("unknown", scope="host")
    two = [Failure(1.0, "a", "kv_cache", "engine", "x", "r", short_bytes=n) for n in (5, 9, 7)]
    assert question(two).short_bytes == 9
    assert reliefs([replace(one, endpoint=""), replace(one, endpoint="gone")], []) == (
        *[each for each in reliefs([replace(one, endpoint="gone")], []) if each.relief is None],
    )


def test_a_card_that_the_plan_does_not_have_is_said(repository: Path) -> None:
    _, found = answered(repository, "archon", Question("kv_cache", MIB, card=9))
    assert found.notes[0] == "the plan has no card 9, only 0, 1"
    assert not answered(repository, "archon", Question("kv_cache", MIB, card=1))[1].notes


def test_what_the_law_loses_sight_of_is_not_given_back(repository: Path) -> None:
    """At other batched tokens the boot says nothing any more: the demands are unknown then, and not gone."""
    _, found = answered(repository, "archon", Question("activation"))
    assert not [way for way in found.ways if "max-num-batched-tokens" in way.text]
    assert any("explain ran-out-of-activation" in note for note in found.notes)


@pytest.mark.parametrize("cls", get_args(MemoryClass))
def test_every_class_has_a_page_and_levers_that_stay_within_the_law(repository: Path, cls: MemoryClass) -> None:
    assert (repository / "runbooks" / f"{runbook_of(cls)}.md").is_file()
    for name in ("archon", "archon-pair"):
        trial, found = answered(repository, name, Question(cls))
        for way in found.ways:
            assert way.gives_bytes >= found.sought_bytes > 0
            assert way.costs or way.quality
            trial.plan(way.set)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kv_cache", Question("kv_cache")),
        ("kv_cache=512@0", Question("kv_cache", 512 * MIB, 0, scope="device")),
        ("unknown=1@host", Question("unknown", MIB, scope="host")),
        ("pool=3", Question("kv_cache", 3 * MIB, pool=True)),
    ],
)
def test_a_question_is_a_class_with_what_is_known(text: str, found: Question) -> None:
    assert question_of(text) == found


@pytest.mark.parametrize(
    "text", ["", "vram", "kv_cache=", "kv_cache=-1", "kv_cache@x", "pool@0", "kv_cache=1@0 x", "=1"]
)
def test_a_question_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="class of memory"):
        question_of(text)
