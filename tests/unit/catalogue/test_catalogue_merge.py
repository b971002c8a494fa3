"""Catalogues of users over the shipped one, and everything that can be wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.catalogue import Catalogue, load_catalogue
from archonctl.errors import DeclarationError, UsageError

NOBODY = {"HOME": "/nonexistent"}
OWN = """
[[model]]
name = "own-7b"
repo = "me/own-7b"
trained_context = 8_192
[model.geometry]
architecture = "llama"
layers = 32
pattern = "F"
hidden = 4096
heads = 32
vocab = 32_000
full = { kv_heads = 8, head_dim = 128 }
[model.parameters]
embedding = 131_072_000
attention = 1_342_177_280
dense_ffn = 5_637_144_576
output = 131_072_000
[[model.quant]]
name = "Q4_K_XL"
engines = ["llamacpp"]
bytes = 4_500_000_000
"""


def over(tmp_path: Path, text: str, name: str = "mine.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def loaded(tmp_path: Path, text: str) -> Catalogue:
    return load_catalogue([over(tmp_path, text)], NOBODY)


def test_a_model_of_ones_own_comes_after_the_shipped_ones(tmp_path: Path) -> None:
    catalogue = loaded(tmp_path, OWN)
    model = catalogue.find("OWN-7B")
    assert catalogue.models[-1] is model
    assert model.origin.endswith("mine.toml")
    assert (model.params_total, model.quants[0].bytes) == (7_241_465_856, 4_500_000_000)
    assert model.facts(model.quants[0]).weight_bytes == 4_500_000_000
    assert len(catalogue.models) == len(load_catalogue(environ=NOBODY).models) + 1


def test_a_field_of_a_shipped_model_is_changed_and_the_rest_stays(tmp_path: Path) -> None:
    before = load_catalogue(environ=NOBODY).find("qwen3-14b")
    after = loaded(tmp_path, '[[model]]\nname = "Qwen3-14B"\ntrained_context = 131_072\naliases = ["q14"]\n').find(
        "q14"
    )
    assert (after.name, after.trained_context, after.geometry.trained_context) == ("qwen3-14b", 131_072, 131_072)
    assert (after.parameters, after.quants) == (before.parameters, before.quants)


def test_quants_are_merged_by_name_and_new_ones_come_last(tmp_path: Path) -> None:
    text = (
        '[[model]]\nname = "qwen3-14b"\n[[model.quant]]\nname = "FP8"\nbytes = 16_400_000_000\n'
        '[[model.quant]]\nname = "Q6_K"\nrepo = "me/x"\nbytes = 12_121_937_248\n'
    )
    model = loaded(tmp_path, text).find("qwen3-14b")
    assert [quant.name for quant in model.quants] == ["BF16", "FP8", "Q8_0", "Q4_K_M", "AWQ", "Q6_K"]
    fp8 = model.quants[1]
    assert (fp8.bytes, fp8.repo, fp8.engines) == (16_400_000_000, "Qwen/Qwen3-14B-FP8", ("vllm", "sglang"))
    assert model.quants[-1].engines == ("llamacpp",)


def test_a_table_is_merged_key_by_key(tmp_path: Path) -> None:
    text = '[[model]]\nname = "qwen3-14b"\n[model.geometry]\nvocab = 152_064\n[model.parameters]\nother = 500_000\n'
    model = loaded(tmp_path, text).find("qwen3-14b")
    assert (model.parameters["other"], model.parameters["embedding"]) == (500_000, 777_912_320)
    assert (model.geometry.vocab, model.geometry.hidden, len(model.geometry.layers)) == (152_064, 5120, 40)


def test_the_later_file_says_more(tmp_path: Path) -> None:
    first = over(tmp_path, OWN, "first.toml")
    second = over(tmp_path, '[[model]]\nname = "own-7b"\ntrained_context = 4_096\n', "second.toml")
    model = load_catalogue([first, second], NOBODY).find("own-7b")
    assert model.trained_context == 4_096
    assert model.origin.endswith("second.toml")


@pytest.mark.parametrize("variable", ["HOME", "XDG_CONFIG_HOME"])
def test_the_users_own_catalogue_is_found(variable: str, tmp_path: Path) -> None:
    folder = tmp_path / ".config" if variable == "HOME" else tmp_path
    (folder / "archonctl").mkdir(parents=True)
    (folder / "archonctl" / "models.toml").write_text(OWN, "utf-8")
    assert load_catalogue(environ={variable: str(tmp_path)}).find("me/own-7b").name == "own-7b"


def test_a_catalogue_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        load_catalogue([tmp_path / "absent.toml"], NOBODY)
    assert caught.value.code == "declaration-not-found"


def test_a_wrong_name_is_told_with_those_that_are_near() -> None:
    with pytest.raises(UsageError) as caught:
        load_catalogue(environ=NOBODY).find("qwen3-14")
    assert caught.value.code == "model-unknown"
    assert "qwen3-14b" in caught.value.hint


QUANT = '[[model]]\nname = "qwen3-14b"\n[[model.quant]]\nname = "Q4_K_M"\n'
HOSTILE = {
    "half written": (OWN[: OWN.index("[model.parameters]") + 12], "declaration-invalid-toml", 14),
    "cut between two tables": (OWN[: OWN.index("[model.parameters]")], "catalogue-incomplete", 2),
    "empty": ("", "declaration-empty", 0),
    "an unknown key": (OWN.replace("heads = 32", "heads = 32\nhead = 1"), "declaration-unknown-key", 12),
    "an unknown table": ("[models]\n", "declaration-unknown-key", 1),
    "negative bytes": (QUANT + "bytes = -1\n", "declaration-out-of-range", 5),
    "no bytes at all": (QUANT + "bytes = 0\n", "declaration-out-of-range", 5),
    "bytes of a galaxy": (QUANT + "bytes = 99_999_999_999_999_999\n", "declaration-out-of-range", 5),
    "bytes that are gibibytes": (QUANT + "bytes = 8\n", "catalogue-contradicts", 1),
    "bytes of another model": (QUANT + "bytes = 400_000_000_000\n", "catalogue-contradicts", 1),
    "bytes in words": (QUANT + 'bytes = "8 GiB"\n', "declaration-wrong-type", 5),
    "a digest that is none": (QUANT + 'sha256 = ["abc"]\n', "declaration-bad-value", 5),
    "one model twice": (OWN + '[[model]]\nname = "Own-7B"\n', "catalogue-duplicate", 23),
    "one quant twice": (OWN + '[[model.quant]]\nname = "q4_k_xl"\n', "catalogue-duplicate", 23),
    "a quant without size and law": (OWN.replace("bytes = 4_500_000_000\n", ""), "catalogue-incomplete", 2),
    "a new model with a name alone": ('[[model]]\nname = "new"\n', "catalogue-incomplete", 1),
    "a million layers": (OWN.replace("layers = 32", "layers = 1_000_000"), "declaration-out-of-range", 8),
    "layers nobody describes": (OWN.replace('pattern = "F"', 'pattern = "FS"'), "catalogue-incomplete", 2),
    "layers of no kind": (OWN.replace('pattern = "F"', 'pattern = "X"'), "declaration-bad-value", 9),
    "more experts used than there are": (
        OWN.replace("heads = 32", "heads = 32\nexperts_used = 8"),
        "catalogue-contradicts",
        2,
    ),
    "a geometry in part": (OWN.replace("hidden = 4096\n", ""), "catalogue-incomplete", 2),
    "an engine that is none": (OWN.replace('"llamacpp"', '"llama"'), "declaration-bad-value", 21),
    "a name with a path in it": (OWN.replace('"own-7b"', '"../own"'), "declaration-bad-value", 3),
    "a repository with a path in it": (OWN.replace('"me/own-7b"', '"../../etc"'), "declaration-bad-value", 4),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_wrong_is_told_once_with_its_line(case: str, tmp_path: Path) -> None:
    text, code, line = HOSTILE[case]
    with pytest.raises(DeclarationError) as caught:
        loaded(tmp_path, text)
    assert caught.value.code == code
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600
    assert caught.value.where == str(tmp_path / "mine.toml") + (f":{line}" if line else "")
