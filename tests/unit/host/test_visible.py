"""Cards that an engine is given by its variables, as the drivers' runtimes read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.host.profile import Card, Host
from archonctl.host.visible import visible_environment, visible_host


def host(*makers: str) -> Host:
    cards = tuple(Card(index=i, name=f"{maker} {i}", total_mib=1000, maker=maker) for i, maker in enumerate(makers))  # type: ignore[arg-type]
    return Host(cards=cards)


ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


@pytest.mark.parametrize(
    ("makers", "environ", "seen"),
    [
        (("nvidia",) * 3, {}, [0, 1, 2]),
        (("nvidia",) * 3, {"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        (("nvidia",) * 3, {"CUDA_VISIBLE_DEVICES": " 1 "}, [1]),
        (("nvidia",) * 3, {"CUDA_VISIBLE_DEVICES": ""}, []),
        (("nvidia",) * 3, {"CUDA_VISIBLE_DEVICES": "-1"}, []),
        (("nvidia",) * 3, {"CUDA_VISIBLE_DEVICES": "0,2,-1,1"}, [0, 2]),
        (("nvidia",) * 3, {"CUDA_VISIBLE_DEVICES": "99999999999999999999"}, []),
        (("nvidia",) * 3, {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, [0, 1, 2]),
        (("nvidia",) * 3, {"HIP_VISIBLE_DEVICES": "0"}, [0, 1, 2]),
        (("amd",) * 3, {"HIP_VISIBLE_DEVICES": "1"}, [1]),
        (("amd",) * 3, {"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        (("amd",) * 3, {"ROCR_VISIBLE_DEVICES": "1,2", "HIP_VISIBLE_DEVICES": "1"}, [2]),
        (("nvidia", "amd", "amd"), {"HIP_VISIBLE_DEVICES": "1"}, [2]),
        (("nvidia", "amd", "nvidia"), {"CUDA_VISIBLE_DEVICES": "1"}, [2]),
        (("intel", "intel"), {"ZE_AFFINITY_MASK": "1"}, [1]),
        (("", ""), {"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ((), {"CUDA_VISIBLE_DEVICES": "1"}, []),
    ],
)
def test_the_cards_are_those_that_the_runtime_shows(
    makers: tuple[str, ...], environ: dict[str, str], seen: list[int]
) -> None:
    assert [card.index for card in visible_host(host(*makers), environ | ORDER).cards] == seen


def test_what_cannot_be_told_apart_and_what_is_hidden_is_said() -> None:
    hidden = visible_host(host("nvidia", "nvidia"), {"CUDA_VISIBLE_DEVICES": "1"} | ORDER)
    assert hidden.notes == ("of 2 cards engine.env shows 1 to the engine: 1",)
    named = visible_host(host("nvidia", "nvidia"), {"CUDA_VISIBLE_DEVICES": "MIG-1/2/3"})
    assert "cannot be told apart" in named.notes[-1]
    unlike = visible_host(host("nvidia", "nvidia"), {"CUDA_VISIBLE_DEVICES": "1"})
    assert "CUDA_DEVICE_ORDER" in unlike.notes[-1]


@given(st.lists(st.sampled_from(["nvidia", "amd", "intel"]), min_size=1, max_size=8), st.data())
def test_what_is_written_shows_exactly_the_chosen_cards(makers: list[str], data: st.DataObject) -> None:
    on = host(*makers)
    maker = data.draw(st.sampled_from(makers))
    alike = [card for card in on.cards if card.maker == maker]
    chosen = data.draw(st.lists(st.sampled_from(alike), min_size=1, unique_by=lambda card: card.index))
    seen = visible_host(on, visible_environment(chosen, on)).cards
    assert {card.index for card in seen} == {card.index for card in chosen}
