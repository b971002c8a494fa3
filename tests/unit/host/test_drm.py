"""AMD and Intel cards from a fake sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.host.detect import detect_host
from archonctl.host.profile import Host

MIB = 1 << 20


def amd(number: int, vram: int, used: int, device: str = "0x7551", render: int = 128, **more: object) -> dict[str, str]:
    base = f"sys/class/drm/card{number}/device"
    files = {
        f"{base}/mem_info_vram_total": str(vram * MIB),
        f"{base}/mem_info_vram_used": str(used * MIB),
        f"{base}/vendor": "0x1002",
        f"{base}/device": device,
        f"{base}/uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0{number}:00.0\n",
        f"{base}/drm/renderD{render}/dev": "",
    }
    return files | {f"{base}/{name}": str(value) for name, value in more.items()}


def node(number: int, version: int, render: int, cores: int = 0) -> dict[str, str]:
    text = f"cpu_cores_count {cores}\nsimd_count 128\ngfx_target_version {version}\ndrm_render_minor {render}\n"
    return {f"sys/class/kfd/kfd/topology/nodes/{number}/properties": text}


def detect(root: Path, files: dict[str, str]) -> Host:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return detect_host(root, page_bytes=4096)


def test_a_card_has_its_target_driver_bus_and_gtt(tmp_path: Path) -> None:
    files = amd(0, 32_624, 624, mem_info_gtt_total=125_988 * MIB, mem_info_gtt_used=988 * MIB)
    files |= node(0, 0, 0, cores=16) | node(1, 120_001, 128) | {"proc/sys/kernel/osrelease": "6.12.9\n"}
    card = detect(tmp_path, files).cards[0]
    assert (card.name, card.maker, card.target) == ("card0 AMD Radeon AI PRO R9700", "amd", "gfx1201")
    assert (card.driver, card.pci, card.unified) == ("amdgpu 6.12.9", "0000:00:00.0", False)
    assert (card.total_mib, card.free_mib, card.gtt_mib, card.gtt_free_mib) == (32_624, 32_000, 125_988, 125_000)


@pytest.mark.parametrize(
    ("version", "target"),
    [(90_010, "gfx90a"), (90_402, "gfx942"), (90_500, "gfx950"), (110_501, "gfx1151"), (0, ""), (10**9, "")],
)
def test_a_target_is_written_as_compilers_do(tmp_path: Path, version: int, target: str) -> None:
    assert detect(tmp_path, amd(0, 65_520, 0, "0x0001") | node(3, version, 128)).cards[0].target == target


def test_two_cards_get_the_targets_of_their_own_nodes(tmp_path: Path) -> None:
    files = amd(0, 24_560, 0, "0x744c", 129) | amd(1, 32_624, 0, render=128)
    files |= node(1, 120_001, 128) | node(2, 110_000, 129)
    assert [(c.name, c.target) for c in detect(tmp_path, files).cards] == [
        ("card0 AMD Radeon RX 7900 XTX", "gfx1100"),
        ("card1 AMD Radeon AI PRO R9700", "gfx1201"),
    ]


STRIX = {"mem_info_gtt_total": 64_000 * MIB, "mem_info_gtt_used": 1_000 * MIB}


def test_a_unified_card_has_what_ttm_allows(tmp_path: Path) -> None:
    files = amd(0, 512, 100, "0x1586", **STRIX) | {"sys/module/ttm/parameters/pages_limit": str(27_648_000)}
    card = detect(tmp_path, files).cards[0]
    assert (card.unified, card.total_mib, card.free_mib) == (True, 108_000, 107_000)
    assert card.name == "card0 AMD Radeon 8060S"


def test_without_a_limit_of_ttm_it_has_its_gtt(tmp_path: Path) -> None:
    card = detect(tmp_path, amd(0, 512, 100, "0x1586", **STRIX)).cards[0]
    assert (card.unified, card.total_mib, card.free_mib) == (True, 64_000, 63_000)


def test_a_large_carve_out_is_the_memory_of_a_unified_card(tmp_path: Path) -> None:
    card = detect(tmp_path, amd(0, 98_304, 304, "0x1586", mem_info_gtt_total=16_000 * MIB)).cards[0]
    assert (card.unified, card.total_mib, card.free_mib) == (True, 98_304, 98_000)


def test_a_processor_that_no_row_knows_is_unified_by_its_node(tmp_path: Path) -> None:
    card = detect(tmp_path, amd(0, 512, 0, "0x9999", **STRIX) | node(0, 110_502, 128, cores=16)).cards[0]
    assert (card.unified, card.total_mib, card.target) == (True, 64_000, "gfx1152")


def test_a_processors_own_graphics_are_left_out_beside_a_card(tmp_path: Path) -> None:
    host = detect(tmp_path, amd(0, 512, 0, "0x1586", **STRIX) | amd(1, 32_624, 0, render=129))
    assert [(card.index, card.pci) for card in host.cards] == [(0, "0000:01:00.0")]
    assert any("shares RAM and is left out" in note for note in host.notes)


@pytest.mark.parametrize(
    ("total", "used"), [("0", "0"), ("-5", "0"), ("9" * 19, "0"), ("x", "0"), ("99999999", "9" * 17)]
)
def test_nonsense_is_refused_by_name(tmp_path: Path, total: str, used: str) -> None:
    files = amd(0, 1, 0) | {"sys/class/drm/card0/device/mem_info_vram_total": total}
    host = detect(tmp_path, files | {"sys/class/drm/card0/device/mem_info_vram_used": used})
    assert any(note.startswith("host-figure-refused /sys/class/drm/card0/device/mem_info_vram") for note in host.notes)
    assert all(card.free_mib is None for card in host.cards)


def test_senseless_gtt_is_unknown_and_the_card_stays(tmp_path: Path) -> None:
    host = detect(tmp_path, amd(0, 32_624, 0, mem_info_gtt_total=100 * MIB, mem_info_gtt_used=200 * MIB))
    assert (host.cards[0].gtt_mib, host.cards[0].gtt_free_mib) == (100, None)


def intel(**more: str) -> dict[str, str]:
    base = "sys/class/drm/card0"
    return {f"{base}/device/vendor": "0x8086", f"{base}/device/device": "0xe20b"} | {
        f"{base}/{name.replace('__', '/')}": text for name, text in more.items()
    }


@pytest.mark.parametrize(
    "files", [{"device__tile0__physical_vram_size_bytes": "0x2fa000000"}, {"lmem_total_bytes": str(12_192 * MIB)}]
)
def test_an_intel_card_tells_its_memory_and_not_what_is_free(tmp_path: Path, files: dict[str, str]) -> None:
    card = detect(tmp_path, intel(**files) | {"sys/module/xe/version": "1.2"}).cards[0]
    assert (card.name, card.maker, card.target, card.driver) == ("card0 Intel Arc B580", "intel", "xe2", "xe 1.2")
    assert (card.total_mib, card.free_mib) == (12_192, None)


def test_graphics_of_an_intel_processor_are_no_card(tmp_path: Path) -> None:
    assert detect(tmp_path, intel()).cards == ()


@pytest.mark.parametrize("text", ["0x", "0", "-1", "0x" + "f" * 16, "lots"])
def test_senseless_memory_of_an_intel_card_is_refused(tmp_path: Path, text: str) -> None:
    host = detect(tmp_path, intel(lmem_total_bytes=text))
    assert host.cards == ()
    assert any("host-figure-refused" in note for note in host.notes)
