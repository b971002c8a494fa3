"""The declared manifest: every figure with its source, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from radiance_cases import ENV, declared, manifest

from archonctl.errors import DeclarationError
from archonctl.model.manifest import read_manifest

SHIPPED = ENV / "models" / "qwen3.8-next-flash.toml"
TEXT = SHIPPED.read_text(encoding="utf-8")


def refused(tmp_path: Path, text: str) -> DeclarationError:
    path = tmp_path / "model.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DeclarationError) as err:
        read_manifest(path)
    return err.value


def test_the_shipped_manifest_has_the_measured_figures() -> None:
    found = manifest()
    assert found.paged.page_tokens == 4
    assert {group.name: dict(group.kib_per_page) for group in found.paged.group} == {
        "kv_attn": {"fp8": 26.0, "bf16": 52.0},
        "kv_qsa_bkey": {"fp8": 3.25, "bf16": 3.25},
    }
    assert found.state.mib_per_sequence == 110
    assert found.checkpoints.slots * found.checkpoints.mib_per_slot == 448
    assert found.host.ngram_table_mib == 48_824
    assert found.activation.arena_mib == 896
    assert found.context.trained is None, "the trained length is not public"


def test_it_names_the_same_file_as_the_declarations() -> None:
    for name in ("archon", "archon-pair"):
        model = declared(name).model
        assert (model.bytes, model.sha256) == (manifest().file.bytes, manifest().file.sha256)


def test_a_manifest_gives_facts_without_a_geometry_and_says_why() -> None:
    facts = read_manifest(SHIPPED)
    assert facts.format == "manifest"
    assert facts.geometry is None
    assert "not public" in facts.geometry_reason
    assert facts.file_bytes == 121_969_901_568


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("slots = 8", "slotz = 8", "slotz"),
        ("size = 2560", 'size = "wide"', "hidden.size"),
        ("mib_per_sequence = 110", "mib_per_sequence = inf", "mib_per_sequence"),
        ("mib_per_sequence = 110", "mib_per_sequence = -1", "mib_per_sequence"),
        ("page_tokens = 4", "page_tokens = 0", "page_tokens"),
        ("bytes = 121_969_901_568", "bytes = 1.5", "file.bytes"),
        ('sha256 = "0af5', 'sha256 = "0AF5', "file.sha256"),
        ("[state]", "[[state]]", "state"),
    ],
)
def test_a_mistake_is_named_by_key_and_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = TEXT.replace(old, new, 1)
    assert text != TEXT
    error = refused(tmp_path, text)
    assert said in str(error)
    assert f"model.toml:{text[: text.index(new)].count(chr(10)) + 1}" in str(error)


def test_a_figure_without_a_source_is_refused(tmp_path: Path) -> None:
    for line in [line for line in TEXT.splitlines() if line.startswith("source = ")]:
        assert "source" in str(refused(tmp_path, TEXT.replace(line, "", 1)))
        assert "source" in str(refused(tmp_path, TEXT.replace(line, 'source = ""', 1)))


def test_groups_must_price_the_same_dtypes(tmp_path: Path) -> None:
    error = refused(tmp_path, TEXT.replace("{ fp8 = 3.25, bf16 = 3.25 }", "{ fp8 = 3.25 }", 1))
    assert error.code == "manifest-contradicts"
    error = refused(tmp_path, TEXT.replace("{ bf16 = 6.50 }", "{ f16 = 6.50 }", 1))
    assert error.code == "manifest-contradicts"


@pytest.mark.parametrize("text", ["", "\0", "[file", "x = 1", "[" * 5000, "a = " + "9" * 5000, "\ud800"])
def test_whatever_is_no_manifest_ends_in_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DeclarationError):
        read_manifest(path)


def test_the_model_file_named_by_mistake_is_not_read_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.rad"
    with path.open("wb") as file:
        file.truncate(8 * 2**30)
    with pytest.raises(DeclarationError) as err:
        read_manifest(path)
    assert err.value.code == "declaration-too-large"


@pytest.mark.parametrize("end", [0.25, 0.5, 0.9])
def test_a_half_written_manifest_is_refused(tmp_path: Path, end: float) -> None:
    refused(tmp_path, TEXT[: int(len(TEXT) * end)])


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as err:
        read_manifest(tmp_path / "none.toml")
    assert "none.toml" in err.value.where
