#!/usr/bin/env python3
"""Coverage-guided fuzzing (atheris) of what reads foreign text: boot logs, HTTP answers, streams, stored verdicts.

    python tests/fuzz/harness.py TARGET [CORPUS_FOLDER] [-max_total_time=300 and other options of libFuzzer]

An input that crashes is left in the working directory; give its name in place of the folder to try it again. Whatever
a target is given, it ends in a value or in the errors that its docstrings name.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import atheris

with atheris.instrument_imports(include=["archonctl"]):
    import httpx

    from archonctl.deployment.schema import Contract
    from archonctl.errors import UsageError
    from archonctl.ledger.as_json import ledger_json
    from archonctl.ledger.grammar import ENGINES, all_grammars
    from archonctl.ledger.reader import LedgerReader, read_ledger
    from archonctl.ledger.refusal import refusal
    from archonctl.probe import report as reports
    from archonctl.probe.address import Addresses
    from archonctl.probe.answers import read_refusal
    from archonctl.probe.client import Answer, Http
    from archonctl.probe.faults import Fault
    from archonctl.probe.jsonread import parse_json
    from archonctl.probe.ledger_leg import ledger_leg
    from archonctl.probe.metrics import load_of_json, load_of_metrics
    from archonctl.probe.replay import replay
    from archonctl.probe.session import Session
    from archonctl.probe.shape import Shape
    from archonctl.probe.sse import SseParser
    from archonctl.probe.stored import read_stored
    from archonctl.probe.stream import Seen, run_stream
    from support.probing import API, SHORT, endpoint

CONTRACT = Contract(seqs=3, len=200_000)
_BASE = "http://127.0.0.1:1"
_MOST_BYTES = 65_536
_HEADS: tuple[dict[str, str], ...] = (
    {"content-type": "text/event-stream"},
    {"content-type": "application/json"},
    {"content-type": "text/event-stream", "content-encoding": "gzip"},
    {"content-type": "application/json", "content-encoding": "deflate"},
    {},
)


def ledger(data: bytes) -> None:
    """A boot log: of a given engine, or of one that is to be found out; in blocks and line by line alike."""
    engine = (None, *ENGINES)[data[0] % (len(ENGINES) + 1)] if data else None
    log = data[1:].replace(b"\r", b"")
    found = read_ledger(io.BytesIO(log), engine)
    json.dumps(ledger_json(found), allow_nan=False)
    refusal(found)
    ledger_leg(found, CONTRACT, found.engine)
    reader = LedgerReader(engine)
    for line in log.removesuffix(b"\n").split(b"\n") if log else ():
        reader.feed(line)
    assert reader.result() == found


def answer(data: bytes) -> None:
    """An answer to a GET, and the stream of a completion; any status, coding and cutting."""
    if len(data) < 3:
        return
    head, status, cut, body = data[0], 200 if data[1] < 128 else 100 + 4 * (data[1] - 1) % 500, 1 + data[2], data[3:]

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), cut):
            yield body[start : start + cut]

    def respond(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=_HEADS[head % len(_HEADS)], content=pieces())

    async def ask() -> None:
        async with Http(Addresses(_BASE, _BASE), "", SHORT, httpx.MockTransport(respond)) as http:
            with suppress(Fault):
                whole = await http.get("/x", 5.0, _MOST_BYTES)
                assert isinstance(whole, Answer)
                assert len(whole.body) <= _MOST_BYTES
            session = Session(http, endpoint("127.0.0.1:1", 2, 256), API, None, SHORT, lambda _: None)
            with suppress(Fault):
                seen = await run_stream(session, Shape.first(API, "m"), "a b", 8, lambda _change, _seen: None)
                assert isinstance(seen, Seen)
                assert seen.finished

    asyncio.run(ask())


def readers(data: bytes) -> None:
    """The pure readers of bodies: reports, metrics, refusals, events."""
    text = data.decode("utf-8", "replace")
    load_of_metrics(text)
    _judge(reports.served_tokens(reports.read_cache_config(text, "/metrics"), 1000))
    with suppress(Fault):
        value = parse_json(data)
        load_of_json(value)
        read_refusal(value)
        for read in (reports.read_props, reports.read_server_info, reports.read_sglang_info):
            _judge(read(value, "/x"))
        _judge(reports.with_slots(reports.EngineReport("/props"), value))
    with suppress(Fault):
        whole, cut = SseParser(), SseParser()
        at_once = whole.feed(data) + whole.end()
        bit_by_bit = [payload for byte in data for payload in cut.feed(bytes([byte]))] + cut.end()
        assert at_once == bit_by_bit


def stored(data: bytes) -> None:
    """A stored verdict, read and judged again."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        value.setdefault("schema", "archonctl.evidence/1")
    with suppress(UsageError):
        replay(read_stored(value))


def _judge(report: reports.EngineReport) -> None:
    leg = reports.judge_report(report, CONTRACT, None, "/m/x")
    json.dumps(reports.report_json(report), allow_nan=False)
    assert leg.status in ("pass", "fail", "skip", "no evidence")


TARGETS: dict[str, Callable[[bytes], None]] = {each.__name__: each for each in (ledger, answer, readers, stored)}


def seeds(target: str, folder: Path) -> None:
    """Write what a target knows into a corpus folder: each grammar's examples, a little of each wire format."""
    folder.mkdir(parents=True, exist_ok=True)
    if target == "ledger":
        for number, found in enumerate(all_grammars(), 1):
            lines = [row.example for row in found.rows]
            (folder / found.engine).write_bytes(bytes([number % (len(ENGINES) + 1)]) + "\n".join(lines).encode())
            for at, line in enumerate(lines):
                (folder / f"{found.engine}-{at}").write_bytes(b"\0" + line.encode())
        return
    event = (
        b'data: {"choices":[{"text":"a","finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":8}}'
    )
    metrics = b'vllm:cache_config_info{engine="0",kv_cache_size_tokens="70",block_size="16",num_gpu_blocks="5"} 1.0\n'
    known: dict[str, tuple[bytes, ...]] = {
        "answer": (b"\0\0\x40" + event + b"\n\ndata: [DONE]\n\n", b"\x01\0\x40{}", b"\0\xff\x01" + event),
        "readers": (
            event + b"\n\n",
            metrics + b"vllm:num_requests_running 1.0\n",
            b'[{"id":0,"n_ctx":9,"is_processing":true}]',
            b'{"total_slots":2,"default_generation_settings":{"n_ctx":9},"error":{"message":"m","code":400}}',
        ),
        "stored": (
            b'{"endpoint":"e","verdict":"holds","contract":{"seqs":1,"len":9},"engine":{"kind":"vllm"},'
            b'"probe":{"legs":[{"id":"ledger","status":"pass"}]},"ledger":{"figures":{},"remarks":[]}}',
        ),
    }
    for number, seed in enumerate(known[target]):
        (folder / f"seed-{number}").write_bytes(seed)


def main() -> None:
    """Fuzz one target."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"usage: {sys.argv[0]} {'|'.join(TARGETS)} [CORPUS] [-max_total_time=SECONDS ...]")
    target = sys.argv.pop(1)
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and not Path(sys.argv[1]).is_file():
        seeds(target, Path(sys.argv[1]))
    atheris.Setup(sys.argv, TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
