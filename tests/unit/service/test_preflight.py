"""What can be known before the start is told before the start."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import pytest

from archonctl.errors import ArchonError, HostRefusal, ModelError
from archonctl.service.preflight import check_model, check_port, connect_host, resolve_binary, split_listen
from support.engines import Launch, wait_for

ELF = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x02\0"


def program(path: Path, content: bytes, mode: int = 0o755) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def refused(name: str, code: str, words: str) -> None:
    with pytest.raises(HostRefusal, match=words) as caught:
        resolve_binary(name)
    assert caught.value.code == code


def test_a_good_program_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_binary("sh").endswith("/sh")
    assert resolve_binary("/proc/self/exe") == "/proc/self/exe"
    script = program(tmp_path / "run", b"#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    assert resolve_binary("./run") == script


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    refused(str(tmp_path / "none"), "engine-binary-missing", "no such program")
    refused("no-such-engine", "engine-binary-missing", "/usr/bin")
    refused("", "engine-binary-missing", "no engine program")
    refused("a\0b", "engine-binary-missing", "no engine program")
    refused("/etc/hostname/x", "engine-binary-missing", "no such program")
    (tmp_path / "link").symlink_to("/nowhere/at/all")
    refused(str(tmp_path / "link"), "engine-binary-missing", "link to /nowhere/at/all")


def test_a_program_that_cannot_be_executed_is_told_why(tmp_path: Path) -> None:
    refused(str(tmp_path), "engine-binary-unusable", "directory")
    refused(program(tmp_path / "mode", b"#!/bin/sh\n", 0o644), "engine-binary-unusable", "mode 0644")
    refused(program(tmp_path / "empty", b""), "engine-binary-unusable", "empty")
    refused(program(tmp_path / "page", b"<html>404</html>"), "engine-binary-unusable", "neither an ELF")
    refused(
        program(tmp_path / "interp", b"#!/no/such/python\n"), "engine-binary-unusable", "script for /no/such/python"
    )
    refused(program(tmp_path / "shebang", b"#!\n"), "engine-binary-unusable", "script for nothing")
    refused(program(tmp_path / "short", b"\x7fELF"), "engine-binary-unusable", "neither an ELF")
    refused("/dev/null", "engine-binary-unusable", "not a regular file")
    (tmp_path / "loop").symlink_to("loop")
    refused(str(tmp_path / "loop"), "engine-binary-unusable", "symbolic link")
    refused("x" * 300, "engine-binary-missing", "no such program")
    refused("/" + "x" * 300, "engine-binary-unusable", "too long")


def test_a_program_for_another_machine_is_told_for_which(tmp_path: Path) -> None:
    other = 183 if os.uname().machine == "x86_64" else 62
    path = program(tmp_path / "other", ELF + struct.pack("<H", other) + b"\0" * 44)
    refused(path, "engine-binary-unusable", "built for (aarch64|x86_64)")


def test_a_free_port_is_no_obstacle(free_port: int) -> None:
    check_port("127.0.0.1", free_port)
    check_port("localhost", free_port)
    check_port("0.0.0.0", free_port)


@pytest.mark.parametrize("reuse_port", [False, True])
@pytest.mark.parametrize("asked", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_held_port_is_refused_with_its_holder(reuse_port: bool, asked: str) -> None:
    with socket.socket() as holder:
        if reuse_port:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(HostRefusal, match=rf"pid {os.getpid()} \(.*python") as caught:
            check_port(asked, holder.getsockname()[1])
    assert caught.value.code == "port-in-use"


def test_connections_in_time_wait_are_no_obstacle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()
    check_port("127.0.0.1", port)


def test_a_port_held_by_an_engine_is_refused(launch: Launch, free_port: int) -> None:
    process = launch("serve", "--port", str(free_port))
    wait_for(process.spec.log.read_text)
    with pytest.raises(HostRefusal, match=f"pid {process.pid} .*fake_engine"):
        check_port("127.0.0.1", free_port)


def test_an_address_that_is_not_ours_is_refused() -> None:
    for host, words in (("192.0.2.1", "cannot listen"), ("no.such.host.invalid", "resolve"), ("x" * 300, "resolve")):
        with pytest.raises(HostRefusal, match=words) as caught:
            check_port(host, 18000)
        assert caught.value.code == "listen-unavailable"


def test_listen_is_split() -> None:
    assert split_listen("127.0.0.1:8000") == ("127.0.0.1", 8000)
    assert split_listen("[::1]:8000") == ("::1", 8000)
    for bad in ("127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:", "host:99999"):
        with pytest.raises(HostRefusal) as caught:
            split_listen(bad)
        assert caught.value.code == "listen-unavailable"
    assert [connect_host(h) for h in ("0.0.0.0", "::", "10.0.0.1")] == ["127.0.0.1", "::1", "10.0.0.1"]


def test_the_model_file_must_be_the_declared_one(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"x" * 1000)
    assert check_model(str(path), None) == 1000
    assert check_model(str(path), 1000) == 1000
    assert check_model(str(tmp_path), 1000) == 1000
    with pytest.raises(ModelError, match=r"1,000 bytes, 1,234 declared \(-234\)") as caught:
        check_model(str(path), 1234)
    assert caught.value.code == "model-bytes-differ"


def test_a_split_model_is_all_of_its_parts(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"m-0000{number}-of-00003.gguf").write_bytes(b"x" * 100 * number)
    first = str(tmp_path / "m-00001-of-00003.gguf")
    with pytest.raises(ModelError) as caught:
        check_model(first, None)
    assert caught.value.code == "model-missing"
    (tmp_path / "m-00003-of-00003.gguf").write_bytes(b"x")
    assert check_model(first, 301) == 301


def test_a_missing_model_is_told(tmp_path: Path) -> None:
    codes = {}
    for name in ("none", "x" * 300):
        with pytest.raises(ArchonError) as caught:
            check_model(str(tmp_path / name), None)
        codes[name[:4]] = caught.value.code
    assert codes == {"none": "model-missing", "xxxx": "model-unreadable"}
