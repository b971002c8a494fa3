"""The table of public models agrees with the config.json that their makers publish, and what has no law is refused."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from archonctl.errors import ModelError
from archonctl.model.geometry import Geometry
from archonctl.model.hf_config import hf_geometry
from archonctl.model.inline import describe, known_model

GOLDEN = Path(__file__).parents[2] / "golden" / "public_configs.json"
CONFIGS: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text("utf-8"))["configs"]
ROWS: list[dict[str, Any]] = tomllib.loads(files("archonctl.model").joinpath("known_models.toml").read_text("utf-8"))[
    "model"
]
NO_LAW = {
    "MiniMaxAI/MiniMax-M3": "minimax_m3",
    "XiaomiMiMo/MiMo-V2-Flash": "mimo_v2_flash",
    "deepseek-ai/DeepSeek-V4-Flash": "deepseek_v4",
    "stepfun-ai/Step-3.7-Flash": "step3p7",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": "nemotron-nas",
}


def kept(geometry: Geometry) -> tuple[Counter[tuple[object, ...]], object, int]:
    """What decides a cache: how many layers of each kind there are, the state, the indexer."""
    kinds = Counter(
        (layer.attention, 1 if layer.attention == "mla" else layer.kv_heads, layer.k_width, layer.v_width, layer.window)
        for layer in geometry.serving
        if layer.attention != "none"
    )
    state = geometry.recurrent
    return kinds, state and (state.conv_elements, state.ssm_elements, state.ssm_element_bytes), geometry.indexer_dim


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["match"][:40])
def test_every_row_names_the_published_config(row: dict[str, Any]) -> None:
    assert re.match(r"https://huggingface\.co/[\w-]+/[\w.-]+/blob/main/config\.json\b", row["source"])
    assert re.match(r"https://\S+$|transformers [\d.]+, \w+Config ", row.get("checked", "https://x"))


def test_nearly_all_rows_were_compared_with_another_copy() -> None:
    assert sum("checked" in row for row in ROWS) >= 0.8 * len(ROWS)


@pytest.mark.parametrize("name", [name for name in CONFIGS if known_model(name)])
def test_a_row_is_the_geometry_of_the_published_config(name: str) -> None:
    assert kept(describe(None, name).geometry) == kept(hf_geometry(CONFIGS[name]))


CATALOGUE = {
    found["model"]: found["config"]
    for found in (json.loads(path.read_text("utf-8")) for path in (GOLDEN.parent / "configs").glob("*.json"))
}


@pytest.mark.parametrize("name", sorted(name for name in CATALOGUE if known_model(name)))
def test_a_row_is_the_geometry_of_the_config_of_the_catalogue(name: str) -> None:
    assert kept(describe(None, name).geometry)[::2] == kept(hf_geometry(CATALOGUE[name]))[::2]


def test_nearly_every_model_of_the_catalogue_is_known_by_its_name() -> None:
    assert len([name for name in CATALOGUE if known_model(name)]) >= len(CATALOGUE) - 5
    assert not any(known_model(name) for name in ("zai-org/GLM-5.2", "zai-org/GLM-5.3-Flash"))


def test_the_published_configs_cover_every_kind_of_attention_of_the_table() -> None:
    named = [name for name in CONFIGS if known_model(name)]
    assert len(named) >= 20
    kinds = {layer.attention for name in named for layer in hf_geometry(CONFIGS[name]).layers}
    assert kinds >= {"full", "sliding", "mla", "recurrent"}


@pytest.mark.parametrize(("name", "kind"), NO_LAW.items())
def test_a_published_model_without_a_law_is_refused_by_its_name(name: str, kind: str) -> None:
    with pytest.raises(ModelError, match=re.escape(repr(kind))) as caught:
        hf_geometry(CONFIGS[name])
    assert caught.value.code == "model-architecture-unknown"


@pytest.mark.parametrize(
    ("name", "said"),
    [("zai-org/GLM-5.2", "take the indexer of another"), ("nvidia/GLM-5.2-NVFP4", "deepseek_sparse_attention")],
)
def test_a_kind_of_attention_that_no_law_covers_is_refused_by_its_name(name: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        hf_geometry(CONFIGS[name])
