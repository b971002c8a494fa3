"""What is not a model is told apart, each thing by its own code; and every code has its page."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest

import archonctl.model
from archonctl.errors import ModelError
from archonctl.model.inspect import inspect_model
from support.raw_gguf import LLAMA, write_model


def refusal(path: str | Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        inspect_model(path)
    assert "\n" not in caught.value.message
    return caught.value


def test_a_gguf_is_read_by_path_text_and_link(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.gguf", LLAMA)
    link = tmp_path / "link"
    link.symlink_to(model)
    chain = tmp_path / "chain"
    chain.symlink_to(link)
    assert inspect_model(model) == inspect_model(str(model))
    assert inspect_model(chain).weight_bytes == 128
    assert inspect_model(chain).path == str(chain)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "model-empty"),
        (b"G", "model-not-gguf"),
        (b"GGUF", "model-truncated"),
        (b"GGUF\x03\x00\x00\x00", "model-truncated"),
        (b"GGUF" + bytes(20), "model-version-unsupported"),
        (b"root:x:0:0:root:/root:/bin/bash\n", "model-not-gguf"),
        (b'{"error": "Unauthorized"}', "model-not-gguf"),
        (bytes(4096), "model-not-gguf"),
        (b"<!DOCTYPE html>\n<html><body>login</body></html>", "model-is-html"),
        (b"\xef\xbb\xbf\n  <HTML lang=en>", "model-is-html"),
        (b'<?xml version="1.0"?><Error>AccessDenied</Error>', "model-is-html"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 4920739232\n", "model-lfs-pointer"),
        (b"tjgg\x03\x00\x00\x00" + bytes(64), "model-format-unsupported"),
        (b"PK\x03\x04" + bytes(64), "model-format-unsupported"),
        (b"\x10\x00\x00\x00\x00\x00\x00\x00{" + b" " * 20, "model-format-unsupported"),
    ],
)
def test_files_that_are_no_model_are_told_apart(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    error = refusal(path)
    assert (error.code, error.where) == (code, str(path))
    assert error.hint


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    assert refusal(tmp_path / "no.gguf").code == "model-missing"
    assert refusal("").code == "model-missing"
    (tmp_path / "file").write_bytes(b"x")
    assert refusal(tmp_path / "file" / "below").code == "model-missing"
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert f"a link to {tmp_path / 'gone'}" in refusal(tmp_path / "link").message


def test_a_path_that_the_system_refuses_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert refusal(tmp_path / "loop").code == "model-unreadable"
    assert refusal(tmp_path / ("x" * 300)).code == "model-unreadable"
    assert refusal(f"{tmp_path}/a\0b").code == "model-unreadable"


@pytest.mark.parametrize(
    ("call", "err", "hint"),
    [
        ("open", PermissionError(13, "Permission denied"), "let the user"),
        ("pread", OSError(5, "Input/output error"), "disk"),
    ],
)
def test_what_the_system_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, err: OSError, hint: str
) -> None:
    path = write_model(tmp_path / "m.gguf", LLAMA)

    def refuse(*_: object) -> int:
        raise err

    monkeypatch.setattr(os, call, refuse)
    error = refusal(path)
    assert error.code == "model-unreadable"
    assert str(err.strerror) in error.message
    assert hint in error.hint


def test_pipes_devices_and_sockets_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert refusal(tmp_path / "fifo").code == "model-not-a-file"
    assert refusal("/dev/zero").code == "model-not-a-file"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(tmp_path / "s"))
        assert "a socket" in refusal(tmp_path / "s").message


def test_folders_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    assert refusal(tmp_path).code == "model-is-directory"
    (tmp_path / "pytorch_model.bin").touch()
    assert refusal(tmp_path).code == "model-format-unsupported"
    (tmp_path / "q8.gguf").touch()
    error = refusal(tmp_path)
    assert error.code == "model-is-directory"
    assert str(tmp_path / "q8.gguf") in error.hint


def test_a_file_that_is_cut_between_two_reads_is_an_error_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_model(tmp_path / "m.gguf", LLAMA)
    whole = os.pread

    def shorter(fd: int, count: int, offset: int) -> bytes:
        return whole(fd, min(count, 40), offset) if offset == 0 else b""

    monkeypatch.setattr(os, "pread", shorter)
    assert refusal(path).code == "model-truncated"


def test_every_code_of_the_room_has_its_page(repository: Path) -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(archonctl.model.__file__).parent.glob("*.py"))
    codes = set(re.findall(r'"(model-[a-z-]+)"', sources))
    assert len(codes) >= 18
    for code in codes:
        page = (repository / "runbooks" / f"{code}.md").read_text(encoding="utf-8")
        assert page.startswith(f"# {code}: ")
        assert [line for line in page.splitlines() if line.startswith("## ")] == [
            "## What it means",
            "## Why it happens",
            "## What to do",
        ]
