"""Which initramfs holds a module: a change of modprobe.d does nothing for a module that is loaded from there."""

from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

IMAGES = (
    "boot/initrd.img-{release}",
    "boot/initramfs-{release}.img",
    "boot/initrd-{release}",
    "boot/initramfs-linux*.img",
)
"""Debian and Ubuntu; Fedora and dracut; SUSE; Arch."""

_CHUNK_BYTES = 1 << 20
_MOST_BYTES = 2 << 30
_CPIO_HEADER_BYTES = 110
_GZIP, _XZ, _ZSTD, _LZ4 = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\x02\x21\x4c\x18"


def images(root: Path, release: str) -> list[Path]:
    """The images of a kernel that are there."""
    return [path for pattern in IMAGES for path in sorted(root.glob(pattern.format(release=release)))]


def holds_module(image: Path, module: str) -> bool | None:
    """True if ``module`` is in the image; None where that cannot be told (unreadable, or no program to unpack it).

    An image is cpio archives one after the other (Linux Documentation/driver-api/early-userspace/buffer-format.rst);
    those at the front, with microcode, are not compressed. Names are plain in any of them.
    """
    names = [f"/{module}.ko".encode()]
    try:
        with image.open("rb") as file:
            while (head := _head(file)) == b"0707":
                if _search_cpio(file, names):
                    return True
            unpacked = _unpacked(file, head)
            return None if unpacked is None else (_search(unpacked, names) if head else False)
    except (OSError, EOFError, lzma.LZMAError, ValueError):
        return None


def _head(file: BinaryIO) -> bytes:
    """The next four bytes that are not padding, without taking them; empty at the end."""
    while block := file.read(4):
        if block.strip(b"\0"):
            file.seek(-len(block), io.SEEK_CUR)
            return block
    return b""


def _search_cpio(file: BinaryIO, names: list[bytes]) -> bool:
    """Pass over one archive ("newc": cpio(5)); True if a name is in it."""
    while True:
        header = file.read(_CPIO_HEADER_BYTES)
        if len(header) < _CPIO_HEADER_BYTES or not header.startswith((b"070701", b"070702")):
            raise ValueError("no cpio header")
        size, name_size = int(header[54:62], 16), int(header[94:102], 16)
        name = file.read(min(name_size, 4096)).rstrip(b"\0")
        file.seek((-(_CPIO_HEADER_BYTES + name_size)) % 4 + size + (-size) % 4, io.SEEK_CUR)
        if any(wanted in b"/" + name for wanted in names):
            return True
        if name == b"TRAILER!!!":
            return False


def _unpacked(file: BinaryIO, head: bytes) -> Iterator[bytes] | None:
    if not head:
        return iter(())
    if head.startswith(_GZIP):
        return _chunks(gzip.GzipFile(fileobj=file))
    if head == _XZ[:4]:
        return _chunks(lzma.LZMAFile(file))
    if head == _ZSTD:
        return _through(file, "zstd", "-dcq")
    if head == _LZ4:
        return _through(file, "lz4", "-dcq")
    return None


def _through(file: BinaryIO, *command: str) -> Iterator[bytes] | None:
    import shutil

    return _piped(file, command) if shutil.which(command[0]) else None


def _piped(file: BinaryIO, command: tuple[str, ...]) -> Iterator[bytes]:
    import subprocess

    # the child reads from where we are: Python's own buffer has run ahead
    offset = file.tell()
    with open(file.name, "rb", buffering=0) as plain:  # noqa: PTH123
        plain.seek(offset)
        with subprocess.Popen(command, stdin=plain, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            try:
                yield from _chunks(process.stdout)
            finally:
                process.kill()


def _chunks(file: IO[bytes] | gzip.GzipFile | lzma.LZMAFile) -> Iterator[bytes]:
    done = 0
    while done < _MOST_BYTES and (chunk := file.read(_CHUNK_BYTES)):
        done += len(chunk)
        yield chunk


def _search(chunks: Iterator[bytes], names: list[bytes]) -> bool:
    longest = max(map(len, names))
    tail = b""
    for chunk in chunks:
        text = tail + chunk
        if any(name in text for name in names):
            return True
        tail = text[-longest:]
    return False
