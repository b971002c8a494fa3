"""Names within an initramfs, packed in every way that distributions pack one."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl.host.initramfs import holds_module
from support.newc import cpio

WITH = cpio("usr/lib/x", "usr/lib/modules/6.1/kernel/drivers/gpu/drm/ttm/ttm.ko.xz")
WITHOUT = cpio("usr/lib/modules/6.1/kernel/drivers/gpu/drm/drm_ttm_helper.ko", "usr/lib/notttm.ko")
MICROCODE = cpio("kernel/x86/microcode/AuthenticAMD.bin", content=b"m" * 777)


def zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


def xz(data: bytes) -> bytes:
    return lzma.compress(data, check=lzma.CHECK_CRC32)


PACKERS = [bytes, gzip.compress, xz, pytest.param(zstd, marks=pytest.mark.optional)]


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("front", [b"", MICROCODE])
def test_a_module_is_found_behind_microcode_and_compression(
    tmp_path: Path, pack: Callable[[bytes], bytes], front: bytes
) -> None:
    if pack is zstd and shutil.which("zstd") is None:
        pytest.skip("no zstd here")
    image = tmp_path / "initrd"
    image.write_bytes(front + pack(WITH))
    assert holds_module(image, "ttm") is True
    image.write_bytes(front + pack(WITHOUT))
    assert holds_module(image, "ttm") is False


@pytest.mark.parametrize(
    "content", [b"garbage", b"070701", MICROCODE[:-600], MICROCODE + b"BZh91AY", gzip.compress(WITHOUT)[:-20]]
)
def test_what_cannot_be_read_is_unknown(tmp_path: Path, content: bytes) -> None:
    image = tmp_path / "initrd"
    image.write_bytes(content)
    assert holds_module(image, "ttm") is None
    assert holds_module(tmp_path / "nothing", "ttm") is None


def test_an_empty_image_holds_nothing(tmp_path: Path) -> None:
    image = tmp_path / "initrd"
    image.write_bytes(b"")
    assert holds_module(image, "ttm") is False
