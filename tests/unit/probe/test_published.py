"""The published address: certificates good and bad, keys asked for and not, and what goes where."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from archonctl.deployment.schema import Service
from archonctl.errors import DeclarationError
from archonctl.probe.address import addresses, speaks_tls
from archonctl.probe.run import probe_endpoint
from archonctl.probe.tls import Certificate, judge_certificate
from archonctl.probe.values import Verdict
from support.lying_server import Engine, LyingServer, answers, lying_server
from support.probing import API, ROOMY, boot_ledger, endpoint, leg, told

DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@contextmanager
def published(
    authority: trustme.CA, tmp_path: Path, name: str = "localhost", known: bool = True, **cert: Any
) -> Iterator[tuple[LyingServer, dict[str, str]]]:
    """An engine that speaks TLS, and what its declaration says of the address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name, **cert).configure_cert(context)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    with lying_server(Engine(), tls=context) as server:
        url = f"https://localhost:{server.port}"
        yield server, {"public_url": url, "ca_file": str(file) if known else ""}


def look(server: LyingServer, **service: str) -> Verdict:
    declared = endpoint(server.listen, 2, 256, **service)
    return probe_endpoint(declared, API, boot_ledger(512, 4, 512), legs="ledger", limits=ROOMY)


def test_a_good_certificate_passes_with_its_days(authority: trustme.CA, tmp_path: Path) -> None:
    with published(authority, tmp_path, not_after=NOW + 100 * DAY) as (server, service):
        verdict = look(server, **service)
    assert verdict.word == "holds", told(verdict)
    found = leg(verdict, "tls")
    assert found.status == "pass"
    assert 98 < float(found.numbers["certificate_days_left"]) <= 100
    assert found.proof[0].kind == "certificate"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"known": False}, "tls-unknown-ca"),
        ({"name": "other.example"}, "tls-other-name"),
        ({"not_before": NOW - 9 * DAY, "not_after": NOW - DAY}, "tls-expired"),
        ({"not_before": NOW + 9 * DAY, "not_after": NOW + 99 * DAY}, "tls-not-yet-valid"),
    ],
)
def test_a_bad_certificate_is_named(authority: trustme.CA, tmp_path: Path, how: dict[str, Any], code: str) -> None:
    with published(authority, tmp_path, **how) as (server, service):
        verdict = look(server, **service)
    assert (verdict.word, leg(verdict, "tls").code) == ("broken", code), told(verdict)
    assert leg(verdict, "generation").status == "skip"


def test_plain_http_where_tls_is_published_is_named() -> None:
    with lying_server(Engine()) as server:
        verdict = look(server, public_url=f"https://localhost:{server.port}")
    assert (verdict.word, leg(verdict, "tls").code) == ("broken", "tls-failed"), told(verdict)


def test_a_proxy_in_front_need_not_pass_on_what_clients_never_ask() -> None:
    with lying_server(Engine()) as engine, lying_server(Engine()) as proxy:
        for path in ("/health", "/props", "/slots", "/tokenize"):
            proxy.engine.override[path] = answers(404, b"{}")
        declared = endpoint(engine.listen, 2, 256, public_url=f"http://{proxy.listen}/v1/")
        verdict = probe_endpoint(declared, API, boot_ledger(512, 4, 512), legs="admission", limits=ROOMY)
    assert verdict.word == "holds", told(verdict)
    assert {path for _, path, _ in engine.requests} == {"/health", "/props", "/slots", "/tokenize"}
    assert {path for _, path, _ in proxy.requests} == {"/v1/models", "/v1/chat/completions", "/v1/completions"}


def test_a_proxy_that_is_down_breaks_the_promise_to_its_clients() -> None:
    with lying_server() as gone:
        pass
    with lying_server(Engine()) as engine:
        verdict = look(engine, public_url=f"http://{gone.listen}")
    assert (verdict.word, leg(verdict, "models").code) == ("broken", "connect-refused"), told(verdict)
    assert leg(verdict, "health").status == "pass"


def test_an_engine_that_asks_nobody_for_the_key_is_open(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the-key-of-this-test")
    with lying_server(Engine()) as server:
        verdict = look(server, api_key_file=str(key))
    found = leg(verdict, "auth-closed")
    assert (verdict.word, found.status, found.code) == ("broken", "fail", "endpoint-open"), told(verdict)


def test_an_engine_that_takes_any_key_is_open(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the-key-of-this-test")

    with lying_server(Engine()) as server:

        def chat(handler: Any) -> None:
            if handler.headers.get("authorization"):
                handler.at_completions(server.requests[-1][2])
            else:
                handler.json(401, {"error": "no key"})

        server.engine.override["/v1/chat/completions"] = chat
        verdict = look(server, api_key_file=str(key))
    assert leg(verdict, "auth-closed").code == "endpoint-open", told(verdict)
    assert "with a wrong key" in leg(verdict, "auth-closed").message


def test_a_key_that_is_asked_for_closes_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the-key-of-this-test")
    with lying_server(Engine(api_key="the-key-of-this-test")) as server:
        verdict = look(server, api_key_file=str(key))
    assert verdict.word == "holds", told(verdict)
    assert leg(verdict, "auth-closed").status == "pass"


def test_where_the_form_is_refused_first_nothing_is_claimed(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("the-key-of-this-test")
    with lying_server(Engine()) as server:

        def chat(handler: Any) -> None:
            known = handler.headers.get("authorization") == "Bearer the-key-of-this-test"
            if known:
                handler.at_completions(server.requests[-1][2])
            else:
                handler.json(400, {"error": {"message": "no"}})

        server.engine.override["/v1/chat/completions"] = chat
        verdict = look(server, api_key_file=str(key))
    assert (verdict.word, leg(verdict, "auth-closed").code) == ("holds", "endpoint-open-unclear"), told(verdict)


def test_addresses_follow_from_the_declaration() -> None:
    plain = addresses(Service(listen="0.0.0.0:8000"))
    assert plain.base("/v1/models") == plain.base("/health") == "http://127.0.0.1:8000"
    proxied = Service(listen="127.0.0.1:8000", public_url="https://llm.example/team/v1")
    assert addresses(proxied).base("/v1/models") == "https://llm.example/team"
    assert not speaks_tls(proxied)
    assert speaks_tls(Service(listen="0.0.0.0:8443", public_url="https://llm.example:8443"))
    with pytest.raises(DeclarationError) as caught:
        addresses(Service(public_url="https://llm.example:99999"))
    assert caught.value.code == "public-url-invalid"


def test_a_file_that_holds_no_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("hello")
    with lying_server(Engine()) as server, pytest.raises(DeclarationError) as caught:
        look(server, public_url="https://localhost:1", ca_file=str(tmp_path / "ca.pem"))
    assert caught.value.code == "ca-file-invalid"


def test_a_certificate_that_ends_soon_passes_and_says_so() -> None:
    found = judge_certificate(Certificate("a.example", "CA", 1000.0 + 3 * 86_400, "TLSv1.3"), now=1000.0)
    assert found.status == "pass"
    assert "3 days left: renew it" in found.message
