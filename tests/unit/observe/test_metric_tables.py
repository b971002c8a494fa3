"""The tables that the exporter, the rules and the dashboard go by."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from archonctl.deployment.schema import EngineKind
from archonctl.observe.catalogue import Kind, Look, engine_samples, metrics
from archonctl.observe.samples import normalised
from archonctl.observe.values import sample

FOLDER = Path(__file__).parents[3] / "controller/archonctl/observe"
UNITS = ("_bytes", "_tokens", "_seconds", "_ratio", "_total", "_info")
WITHOUT_UNIT = {
    "archon_look_up",
    "archon_contract_seqs",
    "archon_verdict",
    "archon_release_runs",
    "archon_predictions",
    "archon_capacity_known",
    "archon_capacity_free_known",
    "archon_unit_state",
    "archon_unit_refusal",
    "archon_engine_requests_running",
    "archon_engine_requests_waiting",
}
"""States and counts of things, which have none."""


@pytest.mark.parametrize("row", tomllib.loads((FOLDER / "metrics.toml").read_text())["metric"], ids=lambda r: r["name"])
def test_a_metric_says_what_it_is(row: dict[str, object]) -> None:
    assert set(row) <= {"name", "kind", "labels", "from", "help", "absent"}
    name = str(row["name"])
    assert re.fullmatch(r"archon_[a-z]+(_[a-z]+)*", name)
    assert row["kind"] in get_args(Kind)
    assert row["from"] in get_args(Look)
    assert (row["kind"] == "counter") is name.endswith("_total")
    assert (row["kind"] == "info") is name.endswith("_info")
    assert name.endswith(UNITS) or name in WITHOUT_UNIT
    assert str(row["help"]).endswith(".")
    assert isinstance(row["labels"], list)
    assert all(re.fullmatch(r"[a-z_]+", label) for label in row["labels"])


def test_no_metric_is_listed_twice() -> None:
    rows = tomllib.loads((FOLDER / "metrics.toml").read_text())["metric"]
    assert len(rows) == len(metrics())


@pytest.mark.parametrize(
    "row", tomllib.loads((FOLDER / "samples.toml").read_text())["sample"], ids=lambda r: f"{r['engine']}-{r['metric']}"
)
def test_an_engines_sample_fills_a_metric_that_engines_fill(row: dict[str, object]) -> None:
    assert set(row) <= {"metric", "engine", "names", "add", "source"}
    found = metrics()[str(row["metric"])]
    assert (found.look, found.labels) == ("engine", ("endpoint",))
    assert row["engine"] in get_args(EngineKind)
    assert row["names"]
    assert row["source"]


def test_every_engine_tells_who_runs_and_who_waits() -> None:
    for engine in get_args(EngineKind):
        told = {row.metric for row in engine_samples(engine)}
        assert {"archon_engine_requests_running", "archon_engine_requests_waiting"} <= told


def test_what_an_engine_does_not_state_is_absent_and_never_zero() -> None:
    assert normalised("vllm", "") == {}
    assert normalised("llamacpp", "llamacpp:prompt_tokens_cached_total 5\n") == {
        "archon_engine_prefix_hits_tokens_total": 5
    }, "the tokens asked for are the sum of two counters, and one of them is not there"


def test_the_engines_names_become_ours() -> None:
    text = """\
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_preemptions_total{engine="0",model_name="m"} 7.0
"""
    assert normalised("vllm", text) == {
        "archon_engine_requests_running": 3,
        "archon_engine_kv_usage_ratio": 0.25,
        "archon_engine_preemptions_total": 7,
    }
    text = "llamacpp:prompt_tokens_total 30\nllamacpp:prompt_tokens_cached_total 10\nllamacpp:requests_deferred 4\n"
    assert normalised("llamacpp", text) == {
        "archon_engine_prompt_tokens_total": 30,
        "archon_engine_prefix_hits_tokens_total": 10,
        "archon_engine_prefix_queries_tokens_total": 40,
        "archon_engine_requests_waiting": 4,
    }


def test_the_share_of_replicas_is_their_mean_and_more_than_all_is_none() -> None:
    text = 'vllm:kv_cache_usage_perc{engine="0"} 0.9\nvllm:kv_cache_usage_perc{engine="1"} 0.5\n'
    assert normalised("vllm", text) == {"archon_engine_kv_usage_ratio": pytest.approx(0.7)}
    assert normalised("vllm", 'vllm:kv_cache_usage_perc{engine="0"} 37\n') == {}


def test_a_sample_has_the_labels_of_its_metric() -> None:
    with pytest.raises(ValueError, match="archon_verdict"):
        sample("archon_verdict", "x", value=1)
    with pytest.raises(KeyError):
        sample("archon_nothing", value=1)
