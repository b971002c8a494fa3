"""Entries from a hub: what its headers say, pinned to the commit, appended to a file that somebody wrote by hand."""

from __future__ import annotations

import json
import os
import stat
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archonctl.catalogue import load_catalogue
from archonctl.catalogue.add import look_up
from archonctl.catalogue.entry import Entry
from archonctl.catalogue.write import add_entry, entry_text
from archonctl.errors import ArchonError, DeclarationError, HostRefusal, ModelError, UsageError
from archonctl.model.demo_gguf import write_tiny_gguf
from support.hub_server import COMMIT, Hub, serving
from support.raw_safetensors import llama_config, write_safetensors

NOBODY = {"HOME": "/nonexistent"}
WEIGHTS = {
    "model.embed_tokens.weight": ("BF16", (512, 4096)),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", (4096, 4096)),
    "lm_head.weight": ("BF16", (512, 4096)),
}
Look = Callable[..., Entry]


def repository(hub: Hub, root: Path, name: str, config: object, weights: object = WEIGHTS) -> Path:
    folder = hub.repos[name] = root / name
    folder.mkdir(parents=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if weights is not None:
        write_safetensors(folder / "model.safetensors", weights)  # type: ignore[arg-type]
    return folder


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Checkpoints of several kinds, and a repository of GGUF files."""
    made, root = Hub(), tmp_path / "repos"
    config = {**llama_config(), "max_position_embeddings": 4096, "vocab_size": 512}
    repository(made, root, "org/Llama-Tiny", config)
    repository(made, root, "org/no-weights", config, None)
    repository(made, root, "org/no-context", {k: v for k, v in config.items() if k != "max_position_embeddings"})
    repository(made, root, "org/strange", {**config, "model_type": "strange"})
    packed = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}
    scales = {
        "model.layers.0.self_attn.q_proj.qweight": ("I32", (4096, 512)),
        "model.layers.0.self_attn.q_proj.scales": ("F16", (32, 4096)),
        "model.layers.0.self_attn.q_proj.qzeros": ("I32", (32, 512)),
    }
    repository(made, root, "org/tiny-AWQ", {**config, **packed}, {**WEIGHTS, **scales})
    folder = repository(made, root, "org/Tiny-GGUF", None, None)
    for quant in ("Q4_K_M", "Q8_0"):
        write_tiny_gguf(folder / f"tiny-{quant}.gguf", "qwen3moe")
    with serving(made):
        yield made


@pytest.fixture
def look(hub: Hub, tmp_path: Path) -> Look:
    """``look_up`` against that hub."""
    environ = {"HF_ENDPOINT": hub.url, "HOME": str(tmp_path)}

    def ask(address: str, name: str = "", extra: tuple[Path, ...] = ()) -> Entry:
        return look_up(address, name, load_catalogue(extra, NOBODY), environ)

    return ask


def test_a_checkpoint_is_an_entry_that_loads_as_what_it_says(look: Look, tmp_path: Path) -> None:
    entry = look("hf:org/Llama-Tiny")
    path = tmp_path / "deep" / "models.toml"
    add_entry(path, entry)
    model = load_catalogue([path], NOBODY).find("llama-tiny")
    quant = model.quants[0]
    assert (model.repo, model.trained_context, model.geometry.vocab) == ("org/Llama-Tiny", 4096, 512)
    assert (quant.name, quant.engines, quant.revision) == ("BF16", ("vllm", "sglang"), COMMIT)
    assert model.params_total == 2 * 512 * 4096 + 4096 * 4096
    assert quant.bytes == (tmp_path / "repos" / "org" / "Llama-Tiny" / "model.safetensors").stat().st_size
    assert COMMIT in model.source
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_one_file_of_several_is_taken_by_name(look: Look, tmp_path: Path) -> None:
    entry = look("hf:org/Tiny-GGUF@main/tiny-Q8_0.gguf")
    path = tmp_path / "models.toml"
    add_entry(path, entry)
    model = load_catalogue([path], NOBODY).find("tiny")
    quant = model.quants[0]
    assert (quant.engines, quant.file, quant.revision) == (("llamacpp",), "tiny-Q8_0.gguf", COMMIT)
    assert model.geometry.experts > 0
    assert model.params_active < model.params_total


def test_several_files_and_none_named_is_refused_with_one_of_them(look: Look) -> None:
    with pytest.raises(ModelError, match="GGUF models") as caught:
        look("hf:org/Tiny-GGUF")
    assert caught.value.code == "model-is-directory"


def test_scales_of_packed_weights_are_no_parameters(look: Look) -> None:
    entry = look("hf:org/tiny-AWQ")
    assert entry.quant == "AWQ"
    parameters = entry.row["parameters"]
    assert isinstance(parameters, dict)
    # 4096 x 4096 in BF16 of the same layer, and 4096 x 4096 (and their zero points) packed
    assert parameters["attention"] == pytest.approx(2 * 4096 * 4096, rel=0.02)


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("hf:org/no-weights", "catalogue-cannot-know"),
        ("hf:org/no-context", "catalogue-cannot-know"),
        ("hf:org/strange", "model-architecture-unknown"),
        ("hf:org/absent", "model-missing"),
        ("org/Llama-Tiny", "model-remote-address"),
        ("hf:org/../etc", "model-remote-address"),
        ("https://example.org/model.gguf", "model-remote-address"),
    ],
)
def test_what_cannot_be_known_is_refused(address: str, code: str, look: Look) -> None:
    with pytest.raises(ArchonError) as caught:
        look(address)
    assert caught.value.code == code


def test_a_name_that_is_none_is_refused(look: Look) -> None:
    with pytest.raises(UsageError) as caught:
        look("hf:org/Llama-Tiny", "no name/at all")
    assert caught.value.code == "catalogue-name"


def test_a_quant_is_added_to_a_known_model_of_the_same_layers_alone(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    add_entry(path, look("hf:org/Llama-Tiny", "mine"))
    quant = look("hf:org/tiny-AWQ", "mine", (path,))
    assert (quant.is_new, set(quant.row)) == (False, {"name", "quant"})
    other = tmp_path / "other.toml"
    add_entry(other, quant)
    model = load_catalogue([path, other], NOBODY).find("mine")
    assert [each.name for each in model.quants] == ["BF16", "AWQ"]
    with pytest.raises(ModelError) as caught:
        look("hf:org/Llama-Tiny", "qwen3-14b")
    assert caught.value.code == "catalogue-other-model"


HAND = '# my models\n\n[[model]]  # the one\nname = "qwen3-14b"   # shipped\ntrained_context = 131_072\n'


def test_what_somebody_wrote_stays_byte_by_byte(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(HAND.rstrip("\n"), "utf-8")
    path.chmod(0o640)
    entry = look("hf:org/Llama-Tiny")
    add_entry(path, entry)
    assert path.read_text("utf-8") == HAND + entry_text(entry)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir() if "archonctl-" in each.name] == []
    assert tomllib.loads(path.read_text("utf-8"))["model"][1]["name"] == "llama-tiny"


def test_a_quant_goes_below_its_model_and_before_the_next(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    add_entry(path, look("hf:org/Llama-Tiny", "mine"))
    before = path.read_text("utf-8")
    path.write_text(before + "\n# the other one\n" + HAND, "utf-8")
    quant = look("hf:org/tiny-AWQ", "mine", (path,))
    add_entry(path, quant)
    models = tomllib.loads(path.read_text("utf-8"))["model"]
    assert [[each["name"] for each in model.get("quant", [])] for model in models] == [["BF16", "AWQ"], []]
    assert path.read_text("utf-8").startswith(before)
    assert path.read_text("utf-8").endswith("\n# the other one\n" + HAND)
    with pytest.raises(DeclarationError) as caught:
        add_entry(path, quant)
    assert caught.value.code == "catalogue-duplicate"


def test_a_file_in_a_form_that_takes_no_more_is_left_alone(look: Look, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    text = 'model = [ { name = "qwen3-14b" } ]\n'
    path.write_text(text, "utf-8")
    entry = Entry("qwen3-14b", {"name": "qwen3-14b", "quant": [{"name": "Q6_K", "bytes": 12}]}, "Q6_K", is_new=False)
    with pytest.raises(DeclarationError) as caught:
        add_entry(path, entry)
    assert caught.value.code == "catalogue-duplicate"
    with pytest.raises(DeclarationError) as caught:
        add_entry(path, look("hf:org/Llama-Tiny"))
    assert path.read_text("utf-8") == text


def test_a_link_stays_a_link(look: Look, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    target, link = tmp_path / "dotfiles" / "models.toml", tmp_path / "models.toml"
    target.write_text(HAND, "utf-8")
    link.symlink_to(target)
    add_entry(link, look("hf:org/Llama-Tiny"))
    assert link.is_symlink()
    assert "llama-tiny" in target.read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (HAND + "[[model", "declaration-invalid-toml"),
        (HAND + "colour = 1\n", "declaration-unknown-key"),
        ('[[model]]\nname = "Llama-Tiny"\n', "catalogue-duplicate"),
    ],
)
def test_a_file_that_is_wrong_or_has_it_is_left_alone(text: str, code: str, look: Look, tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(DeclarationError) as caught:
        add_entry(path, look("hf:org/Llama-Tiny"))
    assert caught.value.code == code
    assert path.read_text("utf-8") == text


def test_a_place_that_takes_no_file_is_told(look: Look, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(HostRefusal) as caught:
        add_entry(tmp_path / "file" / "models.toml", look("hf:org/Llama-Tiny"))
    assert caught.value.code == "catalogue-not-written"


def test_many_writers_lose_no_entry(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    entries = [Entry(f"qwen3-{i}", {"name": f"qwen3-{i}"}, "Q8_0", is_new=True) for i in range(12)]
    threads = [threading.Thread(target=add_entry, args=(path, entry)) for entry in entries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {row["name"] for row in tomllib.loads(path.read_text("utf-8"))["model"]}
    assert names == {entry.name for entry in entries}
    assert os.listdir(tmp_path) == ["models.toml"]  # noqa: PTH208
