"""Packed bodies: whatever was packed comes out again, cut anywhere; whatever was not ends in one kind of error."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archonctl.probe.coding import Unpacker

WAYS = [("gzip", 31), ("deflate", 15), ("deflate", -15)]


def packed(body: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(body) + packer.flush()


@pytest.mark.parametrize(("coding", "wbits"), WAYS)
@settings(deadline=None)
@given(body=st.binary(max_size=3000), cut=st.integers(1, 500))
def test_what_was_packed_comes_out(coding: str, wbits: int, body: bytes, cut: int) -> None:
    wire, unpacker = packed(body, wbits), Unpacker(coding)
    out = [piece for at in range(0, len(wire), cut) for piece in unpacker.feed(wire[at : at + cut])]
    assert b"".join(out) == body
    assert unpacker.ended


def test_members_in_a_row_are_one_body_and_padding_is_none() -> None:
    wire = packed(b"one ", 31) + packed(b"two", 31) + b"\0" * 20
    assert b"".join(Unpacker("gzip").feed(wire)) == b"one two"


@settings(deadline=None)
@given(st.sampled_from(["gzip", "deflate"]), st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_come_out_or_are_refused(coding: str, blocks: list[bytes]) -> None:
    unpacker = Unpacker(coding)
    with suppress(ValueError):
        for block in blocks:
            for _piece in unpacker.feed(block):
                pass


def test_a_bomb_comes_in_pieces() -> None:
    pieces = Unpacker("gzip").feed(packed(b"0" * 50_000_000, 31))
    assert [len(next(pieces)) for _ in range(3)] == [65_536] * 3
