"""Sizes of quants: exact where a file is published, and estimates that the published files bear out."""

from __future__ import annotations

import pytest

from archonctl.catalogue import Catalogue, CatalogueModel, Quant, load_catalogue
from archonctl.catalogue.quants import law_bytes, quant_laws

SHIPPED: Catalogue = load_catalogue(environ={"HOME": "/nonexistent"})
ALL = [(model, quant) for model in SHIPPED.models for quant in model.quants]
PUBLISHED = [(model, quant) for model, quant in ALL if quant.bytes is not None]


def named(pairs: list[tuple[CatalogueModel, Quant]]) -> list[str]:
    return [f"{model.name}-{quant.name}" for model, quant in pairs]


def test_enough_sizes_are_published_to_hold_the_law_against() -> None:
    assert len(PUBLISHED) >= 30
    assert {quant.name for _, quant in PUBLISHED} >= {"Q8_0", "Q4_K_M", "Q3_K_M", "MXFP4_MOE"}
    assert sum(bool(quant.sha256) for _, quant in ALL) >= 25


@pytest.mark.parametrize(("model", "quant"), PUBLISHED, ids=named(PUBLISHED))
def test_the_law_comes_as_near_to_a_published_file_as_it_says(model: CatalogueModel, quant: Quant) -> None:
    law = quant_laws()[quant.name]
    estimate = sum(part.bytes for part in law_bytes(law, model.parameters, 0))
    spread = law.spread_experts if model.geometry.experts else law.spread
    assert quant.bytes is not None
    assert abs(quant.bytes / estimate - 1) <= spread
    assert quant.size.is_exact
    assert quant.bytes_source.startswith(f"huggingface.co/{quant.repo}/blob/{quant.revision or 'main'}/")


def test_an_estimate_is_an_interval_that_says_by_which_law() -> None:
    quant = next(each for each in SHIPPED.find("qwen3-14b").quants if each.name == "FP8")
    assert quant.bytes is None
    assert quant.size.low < quant.size.best < quant.size.high
    assert quant.bytes_source.startswith("estimated: ")
    # docs of the fit example: about 13 GiB of linear layers, and embedding and output in 16 bits
    assert 15.0 < quant.size.best / 2**30 < 15.5


@pytest.mark.parametrize(("model", "quant"), ALL, ids=named(ALL))
def test_the_classes_add_up_to_the_size(model: CatalogueModel, quant: Quant) -> None:
    facts = model.facts(quant)
    assert facts.weight_bytes == facts.file_bytes == round(quant.size.best)
    assert facts.format == ("gguf" if quant.engines == ("llamacpp",) else "safetensors")
    assert {part.cls for part in facts.tensor_bytes} >= set(model.parameters)


def test_the_encoder_of_pictures_is_in_a_checkpoint_and_not_in_a_gguf() -> None:
    model = SHIPPED.find("gemma-3-4b")
    sizes = {quant.name: quant.size.best for quant in model.quants}
    text = sum(model.parameters.values())
    assert sizes["BF16"] == pytest.approx(2 * (text + 417_000_000))
    assert sizes["Q4_K_M"] < text


def test_quants_of_one_model_have_names_of_their_own() -> None:
    for model in SHIPPED.models:
        assert len({quant.name for quant in model.quants}) == len(model.quants)


def test_every_law_has_a_source_and_a_spread() -> None:
    for law in quant_laws().values():
        assert law.source
        assert 0 < law.spread <= law.spread_experts < 0.2


def test_rows_that_make_no_whole_blocks_take_larger_types() -> None:
    """29,568 is no multiple of 256: the published Q4_K_M of Qwen2.5-72B has 47.4 GB, where Llama 3.3 70B has 42.5."""
    sizes = {
        name: next(quant.size for quant in SHIPPED.find(name).quants if quant.name == "Q4_K_M")
        for name in ("qwen2.5-72b", "llama-3.3-70b")
    }
    assert sizes["qwen2.5-72b"].best == pytest.approx(47.42e9, rel=0.01)
    assert sizes["llama-3.3-70b"].best == pytest.approx(42.52e9, rel=0.01)
