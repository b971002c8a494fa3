"""NVIDIA cards through an NVML of our own: what it says is read, and what makes no sense is refused."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import archonctl.host.nvidia
from archonctl.host.detect import detect_host
from archonctl.host.profile import Host

MIB = 1 << 20


class NVMLError(Exception):
    """As pynvml names it."""


@dataclass
class FakeNvml:
    """The functions of pynvml that are used. ``cards``: figures in bytes, or an error for the card."""

    cards: list[Mapping[str, Any] | str] = field(default_factory=list)
    has_v2: bool = True
    fails: str = ""
    is_sliced: bool = False
    slices: Mapping[int, int] = field(default_factory=dict)
    """Places that are taken, and the card of ``cards`` that lies there."""
    is_shut: bool = False
    nvmlMemory_v2 = 33554472  # noqa: N815
    NVMLError = NVMLError

    def nvmlInit(self) -> None:  # noqa: N802
        if self.fails:
            raise NVMLError(self.fails)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_shut = True

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.82.07"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if isinstance(card := self.cards[index], str):
            raise NVMLError(card)
        return index

    def _card(self, handle: int) -> Mapping[str, Any]:
        card = self.cards[handle]
        assert not isinstance(card, str)
        return card

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return str(self._card(handle).get("name", "NVIDIA H200"))

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int | None = None) -> SimpleNamespace:  # noqa: N802
        card = self._card(handle)
        if "total" not in card or (version is not None and not self.has_v2):
            raise NVMLError("Not Supported")
        seen = {"total": card["total"], "free": card.get("free", 0)}
        return SimpleNamespace(**seen, **({"reserved": card.get("reserved", 0)} if version else {}))

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return tuple(self._card(handle).get("cc", (9, 0)))

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:4E:00.0")

    def nvmlDeviceGetMigMode(self, handle: int) -> tuple[int, int]:  # noqa: N802
        if not self.is_sliced:
            raise NVMLError("Not Supported")
        return 1, 1

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, place: int) -> int:  # noqa: N802
        if place not in self.slices:
            raise NVMLError("Not Found")
        return self.slices[place]


H200 = {"total": 143_771 * MIB, "free": 143_000 * MIB, "reserved": 614 * MIB}


def detect(root: Path, nvml: FakeNvml, meminfo: str = "") -> Host:
    if meminfo:
        (root / "proc").mkdir()
        (root / "proc/meminfo").write_text(meminfo)
    return detect_host(root, page_bytes=4096, nvml=nvml)


def test_a_card_is_read_less_what_the_driver_keeps(tmp_path: Path) -> None:
    nvml = FakeNvml([H200, H200])
    host = detect(tmp_path, nvml)
    card = host.cards[1]
    assert (card.index, card.name, card.maker, card.target, card.driver, card.pci) == (
        1,
        "NVIDIA H200",
        "nvidia",
        "9.0",
        "580.82.07",
        "00000000:4E:00.0",
    )
    assert (card.installed_mib, card.total_mib, card.free_mib) == (143_771, 143_157, 143_000)
    assert nvml.is_shut


def test_an_old_driver_does_not_tell_what_it_keeps(tmp_path: Path) -> None:
    card = detect(tmp_path, FakeNvml([H200], has_v2=False)).cards[0]
    assert (card.total_mib, card.free_mib) == (143_771, 143_000)


@pytest.mark.parametrize(
    ("wrong", "total", "free"),
    [
        ({"free": 150_000 * MIB}, 143_157, None),
        ({"free": -1}, 143_157, None),
        ({"free": 1 << 63}, 143_157, None),
        ({"free": 17592186044134 * MIB}, 143_157, None),
        ({"reserved": 200_000 * MIB}, 143_771, 143_000),
        ({"reserved": -5}, 143_771, 143_000),
        ({"total": 0}, 0, None),
        ({"total": -3}, 0, None),
        ({"total": 1 << 63}, 0, None),
    ],
)
def test_nonsense_is_refused_by_name(tmp_path: Path, wrong: dict[str, int], total: int, free: int | None) -> None:
    host = detect(tmp_path, FakeNvml([H200 | wrong]))
    assert any(note.startswith("host-figure-refused NVML card 0 (NVIDIA H200): ") for note in host.notes)
    assert [(card.total_mib, card.free_mib) for card in host.cards] == ([(total, free)] if total else [])


def test_one_card_in_trouble_does_not_hide_the_others(tmp_path: Path) -> None:
    host = detect(tmp_path, FakeNvml(["GPU is lost", H200]))
    assert [card.index for card in host.cards] == [1]
    assert any("NVML card 0: left out: GPU is lost" in note for note in host.notes)


def test_a_driver_that_is_not_there_is_a_note(tmp_path: Path) -> None:
    host = detect(tmp_path, FakeNvml([H200], fails="Driver Not Loaded"))
    assert host.cards == ()
    assert any("Driver Not Loaded" in note for note in host.notes)


def test_a_driver_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archonctl.host.nvidia, "WAIT_S", 0.05)
    nvml, release = FakeNvml([H200]), threading.Event()
    monkeypatch.setattr(nvml, "nvmlInit", release.wait)
    host = detect(tmp_path, nvml)
    release.set()
    assert any("did not answer" in note for note in host.notes)


def test_a_card_without_memory_of_its_own_has_that_of_the_machine(tmp_path: Path) -> None:
    host = detect(
        tmp_path,
        FakeNvml([{"name": "NVIDIA GB10", "cc": (12, 1)}]),
        "MemTotal: 125534208 kB\nMemAvailable: 100000000 kB\n",
    )
    card = host.cards[0]
    assert (card.total_mib, card.free_mib, card.unified, card.target) == (122_592, 97_656, True, "12.1")


def test_a_card_that_tells_no_memory_and_is_not_known_to_have_none_is_left_out(tmp_path: Path) -> None:
    host = detect(tmp_path, FakeNvml([{"name": "GRID X"}]), "MemTotal: 125534208 kB\nMemAvailable: 100000000 kB\n")
    assert host.cards == ()
    assert any("the card is left out" in note for note in host.notes)


def test_of_a_divided_card_a_program_gets_a_slice(tmp_path: Path) -> None:
    part = {"name": "NVIDIA H200 MIG 3g.71gb", "total": 71_000 * MIB, "free": 70_900 * MIB}
    nvml = FakeNvml([H200, part], is_sliced=True, slices={2: 1, 5: 1})
    nvml.nvmlDeviceGetCount = lambda: 1  # type: ignore[method-assign]  # slices are not counted as devices
    host = detect(tmp_path, nvml)
    assert [(card.name, card.total_mib, card.free_mib) for card in host.cards] == [(part["name"], 71_000, 70_900)]
    assert any("into 2 slices" in note for note in host.notes)


def test_a_divided_card_without_a_slice_is_no_card(tmp_path: Path) -> None:
    host = detect(tmp_path, FakeNvml([H200], is_sliced=True))
    assert host.cards == ()
    assert any(note.startswith("host-figure-refused NVML card 0 (NVIDIA H200): is divided") for note in host.notes)


def test_another_machines_files_never_ask_the_driver_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    host = detect_host(tmp_path)
    assert host.cards == ()
    assert any("1 NVIDIA cards" in note for note in host.notes)


@pytest.mark.parametrize(
    "wrong",
    [{"total": "lots"}, {"cc": (100, 0)}, {"cc": (9,)}, {"cc": None}, {"total": None}, {"name": "x" * 10**6}],
    ids=str,
)
def test_what_one_driver_makes_up_costs_no_other_card(tmp_path: Path, wrong: dict[str, Any]) -> None:
    host = detect(tmp_path, FakeNvml([H200, {**H200, **wrong}, H200]))
    assert {0, 2} <= {card.index for card in host.cards}
    for card in host.cards:
        assert card.total_mib == 143_157
