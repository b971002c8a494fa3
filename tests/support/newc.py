"""cpio archives in the "newc" form, of names without content."""

from __future__ import annotations


def cpio(*names: str, content: bytes = b"x") -> bytes:
    """One archive with its trailer, padded as the kernel wants it."""
    entries = b"".join(_entry(name, content) for name in names) + _entry("TRAILER!!!", b"")
    return entries + b"\0" * (-len(entries) % 512)


def _entry(name: str, content: bytes) -> bytes:
    fields = [0] * 13
    fields[6], fields[11] = len(content), len(name) + 1
    head = b"070701" + "".join(f"{field:08X}" for field in fields).encode() + name.encode() + b"\0"
    head += b"\0" * (-len(head) % 4)
    return head + content + b"\0" * (-len(content) % 4)
