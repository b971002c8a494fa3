"""A geometry and its row are one value in two forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.catalogue import load_catalogue
from archonctl.catalogue.layers import geometry_of, row_of
from archonctl.catalogue.schema import GeometryRow
from archonctl.errors import ModelError
from archonctl.model.geometry import Geometry, Layer, Recurrent
from archonctl.model.gguf import read_gguf

STATE = Recurrent(24_576, 524_288, 4, 128, 4096, 16, 32, "gated_delta_net", 4)
ONE = {
    "full": Layer(0, "full", 8, 128, 64, 1024, 512, 0),
    "sliding": Layer(0, "sliding", 4, 256, 256, 1024, 1024, 512),
    "chunked": Layer(0, "chunked", 8, 128, 128, 1024, 1024, 8192),
    "mla": Layer(0, "mla", 1, 576, 512, 576, 0, 0),
    "recurrent": Layer(0, "recurrent"),
    "none": Layer(0, "none"),
}


def there_and_back(geometry: Geometry) -> Geometry:
    row = GeometryRow.model_validate(dict(row_of(geometry, "test")))
    return geometry_of(row, geometry.name, geometry.trained_context)


@given(kinds=st.lists(st.sampled_from(sorted(ONE)), min_size=1, max_size=60), times=st.integers(1, 4))
def test_any_mixture_of_layers_comes_back_as_it_was(kinds: list[str], times: int) -> None:
    layers = tuple(replace(ONE[kind], index=i) for i, kind in enumerate(kinds * times))
    state = STATE if "recurrent" in kinds else None
    geometry = Geometry("x", "n", layers, 4096, 32, 1000, 8192, 8, 2, 1, state, 1, 2, 128)
    assert there_and_back(geometry) == geometry
    pattern = row_of(geometry, "test")["pattern"]
    assert isinstance(pattern, str)
    assert len(pattern) <= len(kinds)


def test_every_shipped_model_comes_back_as_it_was() -> None:
    for model in load_catalogue(environ={"HOME": "/nonexistent"}).models:
        assert there_and_back(model.geometry) == model.geometry


@pytest.mark.parametrize("arch", ["llama", "qwen3moe", "gemma3", "gpt-oss", "deepseek2", "qwen3next"])
def test_what_was_read_of_a_file_comes_back_as_it_was(arch: str, tiny_gguf: object) -> None:
    path = tiny_gguf(arch)  # type: ignore[operator]
    geometry = read_gguf(path).require_geometry()
    assert there_and_back(geometry) == geometry


def test_layers_of_one_kind_and_two_shapes_are_refused() -> None:
    layers = (ONE["full"], replace(ONE["full"], index=1, kv_heads=4, k_width=512, v_width=256))
    with pytest.raises(ModelError) as caught:
        row_of(Geometry("deci", "n", layers, 4096, 32, 1000, 8192), "somewhere")
    assert caught.value.code == "catalogue-uneven-layers"
