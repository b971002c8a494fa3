"""Write GGUF version 3 with nothing but the standard library: a few keys, and F32 tensors of filler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from struct import pack
from typing import Literal

Fill = Literal["random", "ones", "decay", "printable"]
"""What a tensor holds: small random numbers, ones, -0.5 throughout (a positive decay would make states grow), or, where
rows are tokens and a token is a byte, random numbers for printable ASCII and 0 for all others: their score is then 0,
never the highest. A server keeps back what is no UTF-8 yet: a model that answers with other bytes can stay silent."""

_ALIGNMENT = 32
_BLOCK = 1024 * 1024


def _text(text: str) -> bytes:
    raw = text.encode()
    return pack("<Q", len(raw)) + raw


@dataclass(slots=True)
class GgufWriter:
    """Keys and tensors in the order in which they are added. ``prefix`` goes before every key."""

    prefix: str = ""
    pairs: list[bytes] = field(default_factory=list)
    tensors: list[tuple[str, tuple[int, ...], Fill]] = field(default_factory=list)

    def u32(self, key: str, value: int) -> None:
        self.pairs.append(_text(self.prefix + key) + pack("<II", 4, value))

    def f32(self, key: str, value: float) -> None:
        self.pairs.append(_text(self.prefix + key) + pack("<If", 6, value))

    def flag(self, key: str, value: bool) -> None:
        self.pairs.append(_text(self.prefix + key) + pack("<I?", 7, value))

    def string(self, key: str, value: str) -> None:
        self.pairs.append(_text(self.prefix + key) + pack("<I", 8) + _text(value))

    def strings(self, key: str, values: list[str]) -> None:
        head = _text(self.prefix + key) + pack("<IIQ", 9, 8, len(values))
        self.pairs.append(head + b"".join(map(_text, values)))

    def i32s(self, key: str, values: list[int]) -> None:
        self.pairs.append(_text(self.prefix + key) + pack(f"<IIQ{len(values)}i", 9, 5, len(values), *values))

    def tensor(self, name: str, *dims: int, fill: Fill = "random") -> None:
        """An F32 tensor; ``dims`` in ggml order (the fastest first)."""
        self.tensors.append((name, dims, fill))

    def encode(self, seed: int) -> Iterator[bytes]:
        """The file, piece by piece."""
        head = b"GGUF" + pack("<IQQ", 3, len(self.tensors), len(self.pairs)) + b"".join(self.pairs)
        sizes = [_product(dims) * 4 for _, dims, _ in self.tensors]
        offset = 0
        for (name, dims, _), size in zip(self.tensors, sizes, strict=True):
            head += _text(name) + pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, offset)
            offset += _padded(size)
        yield head + bytes(_padded(len(head)) - len(head))
        random = Random(seed)
        for (_, dims, fill), size in zip(self.tensors, sizes, strict=True):
            yield from _printable(dims, random) if fill == "printable" else _weights(fill, size, random)
            yield bytes(_padded(size) - size)


def _product(dims: tuple[int, ...]) -> int:
    product = 1
    for dim in dims:
        product *= dim
    return product


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


# The top byte of a little-endian float32 holds the sign and most of the exponent: with one of these four in it, any
# other three bytes make a finite number from 2^-7 to 2^-3 in size, of either sign.
_SMALL = bytes((0x3C, 0x3D, 0xBC, 0xBD)) * 64


def _printable(dims: tuple[int, ...], random: Random) -> Iterator[bytes]:
    row, rows = dims[0] * 4, dims[1]
    for token in range(rows):
        yield from _weights("random", row, random) if 0x20 <= token < 0x7F else (bytes(row),)


def _weights(fill: Fill, size: int, random: Random) -> Iterator[bytes]:
    """``size`` bytes of float32."""
    if fill != "random":
        yield pack("<f", 1.0 if fill == "ones" else -0.5) * (size // 4)
        return
    while size > 0:
        block = bytearray(random.randbytes(min(size, _BLOCK)))
        block[3::4] = block[3::4].translate(_SMALL)
        yield bytes(block)
        size -= len(block)
