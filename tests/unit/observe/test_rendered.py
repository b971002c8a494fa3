"""What is kept of an earlier scrape never shows in a later one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from archonctl.observe.board import Board
from archonctl.observe.expose import BoardCollector
from archonctl.observe.rendered import Rendered
from archonctl.observe.serve import serving
from archonctl.observe.values import sample

PLAIN = ""
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
ODD = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8"
PUTS = st.lists(
    st.tuples(
        st.sampled_from(("a", 'b"\\\n', "ü")),
        st.sampled_from(("archon_contract_tokens", "archon_contract_seqs")),
        st.floats(allow_nan=False),
    ),
    max_size=6,
)


def _afresh(board: Board, accept: str) -> tuple[bytes, str]:
    registry = CollectorRegistry()
    registry.register(BoardCollector(board))
    encoder, kind = choose_encoder(accept)
    return encoder(registry), kind


@given(rounds=st.lists(st.tuples(PUTS, st.sampled_from((PLAIN, OPENMETRICS, ODD))), max_size=6))
def test_every_scrape_is_what_prometheus_client_writes_afresh(
    rounds: list[tuple[list[tuple[str, str, float]], str]],
) -> None:
    board = Board(clock=lambda: 1.0)
    rendered = Rendered(BoardCollector(board))
    for puts, accept in rounds:
        for endpoint, metric, value in puts:
            board.put(endpoint, "plan", [sample(metric, endpoint, value=value)])
        assert rendered.text(accept) == _afresh(board, accept)


def test_what_is_gone_from_the_board_is_gone_from_the_scrape_and_formats_are_bounded() -> None:
    board = Board()
    rendered = Rendered(BoardCollector(board))
    board.put("a", "plan", [sample("archon_contract_tokens", "a", value=1)])
    assert b"archon_contract_tokens" in rendered.text(PLAIN)[0]
    board.keep_only(())
    assert rendered.text(PLAIN)[0] == b""
    assert rendered.text(OPENMETRICS)[0] == b"# EOF\n"
    for number in range(100):
        rendered.text(f"application/openmetrics-text;version=1.0.{number}")
    assert len(rendered._kept) <= 8


@pytest.mark.parametrize("query", ["", "?name[]=archon_contract_tokens"])
def test_many_scrapers_at_once_each_get_the_whole_answer(query: str) -> None:
    board = Board()
    board.put("a", "plan", [sample("archon_contract_tokens", "a", value=7)])
    with serving(board, "127.0.0.1", 0) as port, ThreadPoolExecutor(8) as pool:

        def scrape(number: int) -> bytes:
            accept = (PLAIN, OPENMETRICS, ODD)[number % 3]
            asked = Request(f"http://127.0.0.1:{port}/metrics{query}", headers={"Accept": accept or "*/*"})
            with urlopen(asked) as answer:
                text: bytes = answer.read()
                assert text.endswith(b"# EOF\n") == ("openmetrics" in answer.headers["Content-Type"])
                return text

        assert all(b'archon_contract_tokens{endpoint="a"} 7.0\n' in text for text in pool.map(scrape, range(60)))


def test_only_a_get_is_answered() -> None:
    with serving(Board(), "127.0.0.1", 0) as port, pytest.raises(OSError, match="405"):
        urlopen(Request(f"http://127.0.0.1:{port}/metrics", data=b"x"))
