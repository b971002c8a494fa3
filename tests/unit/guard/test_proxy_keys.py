"""Keys of the guard's own, and how clients are told apart without."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.errors import DeclarationError
from archonctl.guard.auth import OwnKeys, PassThrough, read_keys
from archonctl.guard.limits import Limits
from archonctl.guard.serve import Setup
from archonctl.guard.start import setup_of, with_credentials
from archonctl.guard.values import Refused
from support.echo_engine import echo_engine
from support.guarding import guarded

KEY = "sk-alice-0123456789"


@pytest.fixture
def keys(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "keys"
        path.write_text(text)
        return path

    return write


def test_names_keys_and_digests_are_read(keys: Callable[[str], Path]) -> None:
    digest = hashlib.sha256(b"sk-bob-0123456789").hexdigest()
    found = read_keys(keys(f"# people\n\nalice:{KEY}\nbob:sha256:{digest}\nalice:sk-alice-the-new-one\n"))
    assert [name for name, _ in found] == ["alice", "bob", "alice"]
    clients = OwnKeys(found)
    for key, name in ((KEY, "alice"), ("sk-bob-0123456789", "bob"), ("sk-alice-the-new-one", "alice")):
        assert clients.client("POST", "/", [(b"authorization", f"Bearer {key}".encode())], "p").name == name
    with pytest.raises(Refused, match="not known"):
        clients.client("POST", "/", [(b"authorization", f"Bearer {digest}".encode())], "p")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nobody\n",
        KEY,
        "alice:short\n",
        f"al ice:{KEY}\n",
        f":{KEY}\n",
        "alice:with a space in it\n",
        "alice:ü23456789\n",
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_showing_it(keys: Callable[[str], Path], text: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        read_keys(keys(text))
    assert refused.value.code == "guard-keys-invalid"
    assert KEY not in str(refused.value)


def test_credentials_of_the_unit_stand_in_for_files_and_unreadable_ones_are_no_open_door(
    tmp_path: Path, repository: Path
) -> None:
    loaded = load_endpoint(repository / "env/archon.toml", {}, {})
    (tmp_path / "keys").write_text(f"alice:{KEY}\n")
    (tmp_path / "engine-key").write_text("engine-key\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}

    def setup(environ: dict[str, str]) -> Setup:
        endpoint = with_credentials(loaded, environ).endpoint
        return setup_of(endpoint, "127.0.0.1:1", "off", Limits(), None, environ)

    found = setup(environ)
    assert (type(found.clients), found.engine_key, found.admin) == (OwnKeys, "engine-key", None)
    assert (type(setup({}).clients), setup({}).engine_key) == (PassThrough, "")
    with pytest.raises(DeclarationError, match="cannot be read"):
        setup({"CREDENTIALS_DIRECTORY": str(tmp_path / "gone")})


def test_with_own_keys_the_engine_sees_its_own_and_never_theirs() -> None:
    clients = OwnKeys((("alice", hashlib.sha256(KEY.encode()).digest()),), "engine-key")
    with echo_engine() as (engine, port), guarded(port, clients=clients, engine_key="engine-key") as guard:
        for headers in ({}, {"Authorization": "Bearer wrong-key-123"}, {"Authorization": "Bearer engine-key"}):
            answer = httpx.get(f"{guard.url}/v1/models", headers=headers, timeout=60)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == ("key-unknown" if headers else "key-missing")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert engine.seen == []
        for name, value in (("Authorization", f"Bearer {KEY}"), ("X-Api-Key", KEY), ("api-key", KEY)):
            assert httpx.get(f"{guard.url}/v1/models", headers={name: value}, timeout=60).status_code == 200
            assert engine.seen[-1].header("authorization") == "Bearer engine-key"
            assert KEY.encode() not in engine.seen[-1].head
        assert (
            httpx.get(f"{guard.url}/health", headers={"Authorization": f"Bearer {KEY}"}, timeout=60).status_code == 200
        )
        assert engine.seen[-1].header("authorization") is None
        assert httpx.get(f"{guard.url}/health/..%2fv1", timeout=60).status_code == 401


def test_without_own_keys_theirs_pass_and_tell_them_apart() -> None:
    clients = PassThrough()
    one = clients.client("GET", "/", [(b"authorization", b"Bearer a-key")], "1.2.3.4")
    same = clients.client("GET", "/", [(b"x-api-key", b"a-key")], "5.6.7.8")
    other = PassThrough().client("GET", "/", [(b"authorization", b"Bearer a-key")], "1.2.3.4")
    assert one.headers == [(b"authorization", b"Bearer a-key")]
    assert one.name == same.name != other.name, "a name says nothing outside its process"
    assert "a-key" not in one.name
    assert clients.client("GET", "/", [], "1.2.3.4").name == "from-1.2.3.4"
