"""The catalogue of cards: every row whole and sourced, and names that mean one card."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.errors import DeclarationError
from archonctl.host.cards import CardModel, all_cards, find_card, find_pci_card, matching_cards, targets
from archonctl.host.load import read_profile


def names(name: str) -> list[str]:
    return [card.name for card in matching_cards(name)]


def test_there_are_many_cards_and_none_twice() -> None:
    assert len(all_cards()) >= 100
    assert len({card.name for card in all_cards()}) == len(all_cards())
    assert {card.maker for card in all_cards()} == {"nvidia", "amd", "intel"}


@pytest.mark.parametrize("card", all_cards(), ids=lambda card: card.name)
def test_every_row_is_whole(card: CardModel) -> None:
    assert re.match(r"https://\S+$", card.source)
    assert card.target in targets()
    assert 50e9 < card.bandwidth_bytes_s < 20e12
    assert all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{4}", pci) for pci in card.pci)
    assert (card.usable_mib is None) == (card.usable_basis is None)
    assert card.unified or card.memory_mib is not None
    if card.usable_mib is not None and card.memory_mib is not None:
        assert "https://" in card.usable_source
        assert 0.9 * card.memory_mib < card.usable_mib <= card.memory_mib
        reserve = replace(card, usable_mib=None).programs_mib
        assert reserve is not None
        assert reserve.contains(card.usable_mib), "the reserve of cards without a figure does not cover one that has it"
    assert card in matching_cards(card.name)
    assert all(card in matching_cards(alias) for alias in card.aliases)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("A10", "NVIDIA A10"),
        ("NVIDIA A10G", "NVIDIA A10G"),
        ("L4", "NVIDIA L4"),
        ("L40", "NVIDIA L40"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("H20", "NVIDIA H20"),
        ("H200", "NVIDIA H200"),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("H100 SXM5 80 GB", "NVIDIA H100 80GB HBM3"),
        ("A100-80G", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 D"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("RTX 4070 Ti SUPER", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("GB200", "NVIDIA GB200"),
        ("B200", "NVIDIA B200"),
        ("AMD Instinct MI300X OAM", "AMD Instinct MI300X"),
        ("MI 300X", "AMD Instinct MI300X"),
        ("AMD Radeon RX 7900 XT", "AMD Radeon RX 7900 XT"),
        ("Intel(R) Arc(TM) B580 Graphics", "Intel Arc B580"),
    ],
)
def test_the_longest_match_is_meant(name: str, card: str) -> None:
    assert names(name) == [card]


@pytest.mark.parametrize(
    "name",
    ["", "card 0", "A1000", "RTX 5090 Laptop GPU", "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "NVIDIA A10-4Q", "GTX 10"],
)
def test_what_is_no_card_of_the_catalogue_is_not_taken_for_one(name: str) -> None:
    assert names(name) == []


def test_memory_tells_cards_of_one_name_apart() -> None:
    assert find_card("A100") is None
    at_40, at_80 = find_card("A100", 40_536), find_card("A100", 81_920)
    assert (at_40 and at_40.name, at_80 and at_80.name) == ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB")
    assert find_card("A100", 24_000) is None


def test_a_pci_id_means_the_card_with_its_memory() -> None:
    card = find_pci_card("1002:744C", 24_560)
    assert card is not None
    assert card.name == "AMD Radeon RX 7900 XTX"
    assert find_pci_card("1002:744c") is None
    assert find_pci_card("dead:beef") is None


@given(st.text(max_size=300))
def test_any_text_means_some_cards_or_none(name: str) -> None:
    assert all(isinstance(card, CardModel) for card in matching_cards(name))


def test_what_a_card_can_run() -> None:
    def kernels(name: str) -> tuple[str, ...]:
        card = find_card(name)
        assert card is not None
        return card.kernels

    assert "fp8" not in kernels("T4")
    assert "marlin_int4" not in kernels("T4")
    assert "fp8" not in kernels("A10G")
    assert {"fp8", "marlin_int4"} <= set(kernels("L4"))
    assert "nvfp4" in kernels("B200")
    assert "mxfp4" in kernels("MI355X")


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("RTX 5090", (32_122, 32_122, 32_122)),
        ("L4", (22_339, 22_732, 22_855)),
        ("RX 9070 XT", (15_925, 16_367, 16_384)),
        ("Arc B580", (0, 12_288, 12_288)),
        ("Radeon 8060S", None),
    ],
    ids=["published", "nvidia-ecc", "amd", "intel", "shares-ram"],
)
def test_memory_that_is_not_published_is_the_nominal_less_a_reserve_with_ends(
    name: str, ends: tuple[int, int, int] | None
) -> None:
    card = find_card(name)
    assert card is not None
    size = card.programs_mib
    assert (size and (size.low, size.best, size.high)) == ends
    assert card.total_mib == (ends and ends[1])


def test_a_profile_says_whose_usable_memory_is_an_estimate(tmp_path: Path) -> None:
    said = read_profile(
        profile(tmp_path, '[[cards]]\nindex = 0\nname = "L4"\n[[cards]]\nindex = 1\nname = "B580"\n')
    ).notes
    assert "24,576 MiB less what its driver keeps is taken as 22,732 (22,339 to 22,855)" in said[0]
    assert "12,288 MiB is taken: what its driver keeps is not known" in said[1]
    assert read_profile(profile(tmp_path, '[[cards]]\nindex = 0\nname = "RTX 4090"\n')).notes == ()


def profile(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "host.toml"
    path.write_text(text)
    return path


def test_a_card_that_is_named_alone_gets_its_memory(tmp_path: Path) -> None:
    host = read_profile(profile(tmp_path, '[[cards]]\nindex = 0\nname = "RTX 4090"\n'))
    assert (host.cards[0].total_mib, host.cards[0].maker, host.cards[0].target) == (24_207, "nvidia", "8.9")
    assert read_profile(profile(tmp_path, '[[cards]]\nindex = 0\nname = "H100"\n')).cards[0].total_mib == 81_009


def test_a_stated_memory_stays(tmp_path: Path) -> None:
    host = read_profile(profile(tmp_path, '[[cards]]\nindex = 0\nname = "no such card"\ntotal_mib = 31856\n'))
    assert host.cards[0].total_mib == 31_856


@pytest.mark.parametrize(
    ("name", "code"), [("A100", "card-ambiguous"), ("Foo 3", "card-unknown"), ("Radeon 8060S", "card-unknown")]
)
def test_a_name_that_does_not_tell_the_memory_is_refused_at_its_line(tmp_path: Path, name: str, code: str) -> None:
    path = profile(tmp_path, f'[[cards]]\nindex = 0\nname = "{name}"\n')
    with pytest.raises(DeclarationError) as caught:
        read_profile(path)
    assert (caught.value.code, caught.value.where) == (code, f"{path}:3")


def test_a_card_that_is_no_table_is_refused_as_ever(tmp_path: Path) -> None:
    for text in ("cards = 3\n", "cards = [3]\n", "[[cards]]\nindex = 0\nname = 7\n"):
        with pytest.raises(DeclarationError):
            read_profile(profile(tmp_path, text))
