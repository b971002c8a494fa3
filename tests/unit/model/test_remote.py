"""Models on the network: headers by ranges from a hub of our own, and every way in which a server may be wrong."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.errors import ModelError
from archonctl.model.demo_gguf import write_tiny_gguf
from archonctl.model.geometry import ModelFacts
from archonctl.model.inspect import inspect_model
from archonctl.model.remote import inspect_remote
from archonctl.model.remote_address import parse_address
from archonctl.model.remote_token import hub_token
from archonctl.model.remote_web import Limits
from support.hub_server import COMMIT, Handler, Hub, serving
from support.raw_gguf import LLAMA, Value, document, pair, tensor
from support.raw_safetensors import llama_config, write_safetensors

ROOMY = Limits(connect_s=60.0, request_s=60.0, pause_s=0.01, all_s=200.0)
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with a safetensors model, a sharded one, one GGUF, several, and a gated one."""
    made = Hub()
    for name in ("org/llama", "org/sharded", "org/gguf", "org/ggufs", "org/config"):
        folder = made.repos[name] = tmp_path / "repos" / name
        folder.mkdir(parents=True)
    for name in ("org/llama", "org/sharded", "org/config"):
        (made.repos[name] / "config.json").write_text(json.dumps(llama_config()))
    weights = {"model.embed_tokens.weight": ("BF16", (512, 4096)), "lm_head.weight": ("BF16", (512, 4096))}
    write_safetensors(made.repos["org/llama"] / "model.safetensors", weights)
    where = {}
    for number, key in enumerate(weights, start=1):
        name = f"model-{number:05d}-of-00002.safetensors"
        write_safetensors(made.repos["org/sharded"] / name, {key: weights[key]})
        where[key] = name
    index = {"metadata": {}, "weight_map": where}
    (made.repos["org/sharded"] / "model.safetensors.index.json").write_text(json.dumps(index))
    write_tiny_gguf(made.repos["org/gguf"] / "tiny.gguf", "qwen3moe")
    (made.repos["org/gguf"] / "mmproj-tiny.gguf").write_bytes(b"GGUF")
    for quant in ("Q4_K_M", "Q8_0"):
        write_tiny_gguf(made.repos["org/ggufs"] / f"tiny-{quant}.gguf", "llama")
    with serving(made):
        yield made


Look = Callable[..., ModelFacts]


@pytest.fixture
def look(hub: Hub, tmp_path: Path) -> Look:
    """Inspect at that hub, with a cache and a home of one's own."""

    def run(address: str, environ: Mapping[str, str] | None = None, limits: Limits = ROOMY) -> ModelFacts:
        home = {"HF_ENDPOINT": hub.url, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return inspect_remote(address, home | dict(environ or {}), limits)

    return run


def refused(
    look: Look, address: str, *, environ: Mapping[str, str] | None = None, limits: Limits = ROOMY
) -> ModelError:
    with pytest.raises(ModelError) as caught:
        look(address, environ, limits)
    assert TOKEN not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def same(remote: ModelFacts, local: ModelFacts) -> bool:
    return (remote.geometry, remote.tensor_bytes, remote.file_bytes, remote.parts, remote.metadata) == (
        local.geometry,
        local.tensor_bytes,
        local.file_bytes,
        local.parts,
        local.metadata,
    )


@pytest.mark.parametrize("name", ["org/llama", "org/sharded", "org/config"])
def test_a_repository_reads_as_its_folder_does(hub: Hub, look: Look, name: str) -> None:
    facts = look(f"hf:{name}")
    assert facts.path == f"hf:{name}"
    assert same(facts, inspect_model(hub.repos[name]))


@pytest.mark.parametrize("has_api", [True, False])
def test_a_mirror_without_the_hubs_api_will_do(hub: Hub, look: Look, has_api: bool) -> None:
    hub.has_api = has_api
    assert same(look("hf:org/sharded"), inspect_model(hub.repos["org/sharded"]))


def chunked(handler: Handler) -> None:
    body = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": "tiny.gguf"}]}).encode()
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("org/gguf", chunked),
        ("org/llama", lambda handler: handler.reply(200, b"<html>welcome</html>")),
        ("org/llama", lambda handler: handler.reply(200, b"[]")),
        ("org/llama", lambda handler: handler.reply(200, b'{"siblings": [7, {"rfilename": 3}]}')),
        ("org/llama", lambda handler: handler.reply(200, b'{"siblings": 3, "sha": "main"}')),
    ],
)
def test_whatever_a_server_lists_or_not(hub: Hub, look: Look, name: str, answer: Callable[[Handler], object]) -> None:
    hub.misbehave = on("/api/", answer)
    assert look(f"hf:{name}").tensors > 0


def test_a_gguf_of_a_repository_is_found_or_named(hub: Hub, look: Look) -> None:
    local = inspect_model(hub.repos["org/gguf"] / "tiny.gguf")
    assert same(look("hf:org/gguf"), local)
    assert same(look("hf:org/gguf@main/tiny.gguf"), local)
    assert look("hf:org/gguf").path == "hf:org/gguf/tiny.gguf"
    error = refused(look, "hf:org/ggufs")
    assert (error.code, error.hint) == ("model-is-directory", "name one of them, such as hf:org/ggufs/tiny-Q4_K_M.gguf")


def test_the_address_of_a_file_will_do(hub: Hub, look: Look) -> None:
    direct = look(f"{hub.url}/org/gguf/resolve/main/tiny.gguf", {"HF_ENDPOINT": "https://hub.invalid"})
    assert same(direct, inspect_model(hub.repos["org/gguf"] / "tiny.gguf"))
    page = look(f"{hub.url}/org/llama/blob/main/model.safetensors")
    assert same(page, inspect_model(hub.repos["org/llama"]))
    other = look(f"{hub.url}/org/llama/resolve/main/model.safetensors", {"HF_ENDPOINT": "https://hub.invalid"})
    assert same(other, inspect_model(hub.repos["org/llama"]))


def test_a_split_gguf_is_read_in_all_its_parts(hub: Hub, look: Look, tmp_path: Path) -> None:
    folder = hub.repos["org/split"] = tmp_path / "split"
    folder.mkdir()
    for number in range(3):
        keys: dict[str, Value] = {**LLAMA, "split.no": number, "split.count": 3, "split.tensors.count": 3}
        one = tensor(f"blk.{number}.attn_q.weight", (8, 4))
        pairs = [pair(key, value) for key, value in keys.items()]
        (folder / f"m-{number + 1:05d}-of-00003.gguf").write_bytes(document(pairs, [one], data_bytes=128))
    facts = look("hf:org/split")
    assert (facts.path, facts.parts) == ("hf:org/split/m-00001-of-00003.gguf", 3)
    assert same(facts, inspect_model(folder / "m-00001-of-00003.gguf"))
    (folder / "m-00003-of-00003.gguf").unlink()
    error = refused(look, "hf:org/split", environ={"XDG_CACHE_HOME": ""})
    assert (error.code, "m-00003-of-00003.gguf" in error.message) == ("model-split-missing", True)


def test_only_headers_are_asked_for(hub: Hub, look: Look) -> None:
    path = hub.repos["org/llama"] / "model.safetensors"
    assert path.stat().st_size > 4 * 1024 * 1024
    look("hf:org/llama")
    asked = [each.range for each in hub.asked("model.safetensors") if "index" not in each.path]
    assert asked == ["bytes=0-262143"]


def test_what_was_read_is_not_asked_for_again(hub: Hub, look: Look) -> None:
    first = look("hf:org/sharded")
    hub.requests.clear()
    assert look("hf:org/sharded") == first
    assert [each.path for each in hub.requests] == ["/api/models/org/sharded/revision/main"]
    hub.requests.clear()
    assert same(look(f"hf:org/sharded@{COMMIT}"), first)
    hub.requests.clear()
    assert same(look(f"hf:org/sharded@{COMMIT}"), first)
    assert hub.requests == []


def test_a_file_that_changed_is_read_again(hub: Hub, look: Look) -> None:
    hub.has_api = False
    look("hf:org/llama")
    hub.requests.clear()
    look("hf:org/llama")
    assert {each.range for each in hub.asked("model.safetensors")} >= {"bytes=0-0"}
    weights = {"model.embed_tokens.weight": ("BF16", (64, 4096))}
    write_safetensors(hub.repos["org/llama"] / "model.safetensors", weights)
    assert look("hf:org/llama").tensors == 1


def test_a_server_without_validators_is_asked_every_time(hub: Hub, look: Look) -> None:
    hub.has_api, hub.has_etags = False, False
    look("hf:org/llama")
    hub.requests.clear()
    look("hf:org/llama")
    assert len(hub.asked("model.safetensors")) >= 1


@pytest.mark.parametrize(
    "damage", [b"", b"\n", b"garbage", b'{"etag": 1}\nxx', b'{"etag":"a","size":1,"sha256":"0"}\nxx']
)
def test_a_damaged_cache_is_no_cache(hub: Hub, look: Look, tmp_path: Path, damage: bytes) -> None:
    first = look("hf:org/llama")
    entries = list((tmp_path / "cache/archonctl/models").iterdir())
    assert entries
    assert {entry.stat().st_mode & 0o777 for entry in entries} == {0o600}
    for entry in entries:
        entry.write_bytes(damage)
    assert look("hf:org/llama") == first


def test_a_cache_that_cannot_be_written_is_no_error(hub: Hub, look: Look, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert look("hf:org/llama", {"XDG_CACHE_HOME": str(tmp_path / "file")}).tensors == 2
    assert look("hf:org/llama", {"XDG_CACHE_HOME": "", "HOME": ""}).tensors == 2


# --- the token ---------------------------------------------------------------------------------------------


def test_a_gated_model_opens_with_the_token_of_the_environment_or_of_a_file(
    hub: Hub, look: Look, tmp_path: Path
) -> None:
    hub.needs_token = TOKEN
    assert look("hf:org/llama", {"HF_TOKEN": f" {TOKEN}\n"}).tensors == 2
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert look("hf:org/llama", {"HF_TOKEN_PATH": str(tmp_path / "token")}).tensors == 2
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text(TOKEN)
    assert look("hf:org/llama", {"HF_HOME": str(tmp_path / "hf")}).tensors == 2
    assert {each.token for each in hub.requests} == {TOKEN}


def test_a_refusal_says_which_token_was_used_and_not_what_it_is(hub: Hub, look: Look) -> None:
    hub.needs_token = "another"
    without = refused(look, "hf:org/llama")
    assert (without.code, "HF_TOKEN" in without.hint) == ("model-remote-denied", True)
    assert "the token of HF_TOKEN" in refused(look, "hf:org/llama", environ={"HF_TOKEN": TOKEN}).message


def test_the_token_does_not_follow_to_another_server(hub: Hub, look: Look) -> None:
    with serving(Hub(repos=hub.repos)) as store:
        hub.needs_token, hub.store = TOKEN, store.url
        facts = look("hf:org/llama", {"HF_TOKEN": TOKEN})
        assert same(facts, inspect_model(hub.repos["org/llama"]))
        assert store.requests
        assert {each.token for each in store.requests} == {""}


def test_the_token_is_not_sent_to_a_server_that_is_not_the_hub(hub: Hub, look: Look) -> None:
    environ = {"HF_ENDPOINT": "https://hub.invalid", "HF_TOKEN": TOKEN}
    look(f"{hub.url}/org/gguf/resolve/main/tiny.gguf", environ)
    assert {each.token for each in hub.requests} == {""}


def test_the_token_is_not_sent_in_the_clear() -> None:
    from archonctl.model.remote_address import may_carry_token

    assert not may_carry_token("http://hub.example/x", "http://hub.example:80")
    assert may_carry_token("https://hub.example/x", "https://hub.example:443")
    assert not may_carry_token("https://hub.example:444/x", "https://hub.example:443")
    assert not may_carry_token("https://hub.example.evil/x", "https://hub.example:443")
    assert not may_carry_token("https://hub.example/x", "")


@pytest.mark.parametrize("text", ["two words", "a\nb", "tök", "x" * 5000])
def test_a_token_that_is_none_is_refused_before_anything_is_sent(hub: Hub, look: Look, text: str) -> None:
    assert refused(look, "hf:org/llama", environ={"HF_TOKEN": text}).code == "model-token-unusable"
    assert hub.requests == []


def test_where_a_token_is_looked_for(tmp_path: Path) -> None:
    assert hub_token({"HOME": str(tmp_path)}) is None
    assert hub_token({"HF_TOKEN": TOKEN, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}) is None
    (tmp_path / ".cache/huggingface").mkdir(parents=True)
    (tmp_path / ".cache/huggingface/token").write_text(TOKEN)
    found = hub_token({"HOME": str(tmp_path)})
    assert found is not None
    assert (found.value, TOKEN in f"{found} {found!r}") == (TOKEN, False)
    with pytest.raises(ModelError, match="model-token-unusable"):
        hub_token({"HF_TOKEN_PATH": str(tmp_path)})


# --- servers that are wrong --------------------------------------------------------------------------------


def on(part: str, answer: Callable[[Handler], object]) -> Callable[[Handler], bool]:
    def misbehave(handler: Handler) -> bool:
        if part not in handler.path:
            return False
        answer(handler)
        return True

    return misbehave


def replies(status: int, body: bytes = b"", **headers: str) -> Callable[[Handler], object]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.reply(status, body, named)


def trickle(handler: Handler) -> None:
    handler.send_response(206)
    handler.send_header("Content-Range", "bytes 0-99/100")
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    for _ in range(100):
        try:
            handler.wfile.write(b"x")
        except OSError:
            return
        time.sleep(0.05)


def break_off(handler: Handler) -> None:
    handler.send_response(206)
    handler.send_header("Content-Range", "bytes 0-99/100")
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"x" * 10)
    handler.close_connection = True


def no_http(handler: Handler) -> None:
    handler.wfile.write(b"SSH-2.0-x\r\n\r\n")
    handler.close_connection = True


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (replies(404), "model-missing"),
        (replies(403), "model-remote-denied"),
        (replies(418), "model-remote-failed"),
        (replies(500), "model-remote-failed"),
        (replies(206, b"x" * 10), "model-remote-lied"),
        (replies(206, b"x" * 10, Content_Range="bytes 5-14/100"), "model-remote-lied"),
        (replies(206, b"x" * 10, Content_Range="bytes 0-9/*"), "model-remote-lied"),
        (replies(206, b"x" * 10, Content_Range="bytes 0-9/5"), "model-remote-lied"),
        (replies(206, b"x" * 10, Content_Range="bytes 9-0/50"), "model-remote-lied"),
        (replies(206, b"x" * 50, Content_Range="bytes 0-9/100"), "model-remote-lied"),
        (
            replies(206, gzip.compress(b"x" * 99), Content_Range="bytes 0-9/100", Content_Encoding="gzip"),
            "model-remote-lied",
        ),
        (replies(416, b"", Content_Range="nonsense"), "model-remote-lied"),
        (replies(302), "model-remote-redirect"),
        (replies(302, b"", Location="ftp://example/x"), "model-remote-redirect"),
        (replies(302, b"", Location="http://user:pass@example/x"), "model-remote-redirect"),
        (replies(302, b"", Location="http://["), "model-remote-redirect"),
        (lambda handler: handler.reply(302, b"", {"Location": handler.path}), "model-remote-redirect"),
        (trickle, "model-remote-slow"),
        (break_off, "model-remote-failed"),
        (no_http, "model-remote-failed"),
    ],
)
def test_a_wrong_answer_is_told_by_its_kind(
    hub: Hub, look: Look, answer: Callable[[Handler], object], code: str
) -> None:
    hub.misbehave = on("/resolve/", answer)
    limits = replace(ROOMY, request_s=0.6) if code == "model-remote-slow" else ROOMY
    error = refused(look, "hf:org/gguf/tiny.gguf", limits=limits)
    assert error.code == code
    assert "127.0.0.1" in error.where


def test_a_busy_server_is_asked_again(hub: Hub, look: Look) -> None:
    left = [429, 503]

    def busy(handler: Handler) -> bool:
        if "tiny.gguf" in handler.path and left:
            handler.reply(left.pop(), b"")
            return True
        return False

    hub.misbehave = busy
    assert look("hf:org/gguf").tensors > 0
    assert left == []


def test_a_file_that_changes_under_ones_hands_is_refused(hub: Hub, look: Look, tmp_path: Path) -> None:
    many = {f"model.layers.{i}.mlp.experts.{i}.down_proj.weight": ("BF16", (8, 8)) for i in range(4000)}
    path = write_safetensors(hub.repos["org/llama"] / "model.safetensors", many)
    assert look("hf:org/llama").tensors == 4000
    seen: list[str] = []

    def grow(handler: Handler) -> bool:
        if "model.safetensors" in handler.path and "index" not in handler.path:
            if seen:
                with path.open("ab") as file:
                    file.write(b"x")
            seen.append(handler.path)
        return False

    hub.misbehave = grow
    assert refused(look, "hf:org/llama", environ={"XDG_CACHE_HOME": ""}).code == "model-remote-lied"


def test_a_server_without_ranges_is_read_up_to_a_bound(hub: Hub, look: Look) -> None:
    hub.has_ranges = False
    assert same(look("hf:org/gguf"), inspect_model(hub.repos["org/gguf"] / "tiny.gguf"))
    tight = replace(ROOMY, whole_bytes=1000)
    assert refused(look, "hf:org/gguf/tiny.gguf", limits=tight).code == "model-remote-no-ranges"


def test_a_header_of_gigabytes_ends_at_the_bound_of_all_bytes(hub: Hub, look: Look) -> None:
    path = hub.repos["org/gguf"] / "tiny.gguf"
    path.write_bytes(
        b"GGUF" + (3).to_bytes(4, "little") + bytes(8) + (1).to_bytes(8, "little") + (60 << 20).to_bytes(8, "little")
    )
    with path.open("ab") as file:
        file.truncate(200 << 20)
    assert refused(look, "hf:org/gguf").code in ("model-header-hostile", "model-remote-lied")


def test_a_cut_file_is_truncated_as_a_local_one_is(hub: Hub, look: Look) -> None:
    path = hub.repos["org/gguf"] / "tiny.gguf"
    path.write_bytes(path.read_bytes()[:-100])
    assert refused(look, "hf:org/gguf").code == "model-truncated"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "model-empty"),
        (b"<html>login</html>", "model-is-html"),
        (b"version https://git-lfs.github.com/spec/v1\n", "model-lfs-pointer"),
    ],
)
def test_what_is_no_model_is_told_apart(hub: Hub, look: Look, content: bytes, code: str) -> None:
    (hub.repos["org/gguf"] / "x.gguf").write_bytes(content)
    assert refused(look, "hf:org/gguf/x.gguf").code == code


def test_nobody_listens(look: Look) -> None:
    error = refused(look, "hf:org/llama", environ={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert error.code == "model-remote-failed"


def test_what_is_not_there_is_missing(look: Look) -> None:
    assert refused(look, "hf:org/none").code == "model-missing"
    assert refused(look, "hf:org/llama/none.gguf").code == "model-missing"


def test_a_missing_part_of_a_sharded_model_is_named(hub: Hub, look: Look) -> None:
    (hub.repos["org/sharded"] / "model-00002-of-00002.safetensors").unlink()
    error = refused(look, "hf:org/sharded")
    assert (error.code, "model-00002-of-00002" in error.message) == ("model-split-missing", True)


@pytest.mark.parametrize(
    "address",
    [
        "hf:",
        "hf:llama",
        "hf:org/name/../x",
        "hf:org/na me",
        "hf:org/name@",
        "hf:org/name?x=1",
        "https://",
        "https:///x",
        "https://user:secret@host/x.gguf",
        "https://host:99999/x.gguf",
        "https://host/",
        "https://host/a b.gguf",
        "https://[::1/x",
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_address(address, {})
    assert caught.value.code == "model-remote-address"
    assert "secret" not in str(caught.value)


def test_addresses_taken_apart() -> None:
    place = parse_address("hf:org/name@refs/pr/3/sub/x.gguf", {})
    assert place.url("x.gguf") == "https://huggingface.co/org/name/resolve/refs%2Fpr%2F3/sub/x.gguf"
    assert parse_address("https://huggingface.co/org/name", {}).base.endswith("/org/name/resolve/main/")
    signed = parse_address("https://cdn.example/a/b%20c.gguf?sig=1", {})
    assert (signed.url("b c.gguf"), signed.shown) == ("https://cdn.example/a/b%20c.gguf?sig=1", "https://cdn.example/a")
    assert signed.url("config.json") == "https://cdn.example/a/config.json"
    assert parse_address("hf:a/b", {"HF_ENDPOINT": "http://127.0.0.1:1/mirror/"}).listing.startswith(
        "http://127.0.0.1:1/mirror/api/"
    )


@given(st.text(max_size=60))
def test_any_address_is_taken_apart_or_refused(rest: str) -> None:
    for scheme in ("hf:", "hf:org/", "https://", "http://h/"):
        try:
            place = parse_address(scheme + rest, {})
        except ModelError:
            continue
        assert place.base.startswith("http")
