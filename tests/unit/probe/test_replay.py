"""Stored verdicts: kept with their release, read back, judged again by today's rules; damaged and old ones."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.errors import NoEvidence, UsageError
from archonctl.ledger.reader import LedgerReader
from archonctl.probe import capacity_judge
from archonctl.probe import replay as replaying
from archonctl.probe.replay import replay
from archonctl.probe.stored import SCHEMA, evidence, read_stored
from archonctl.probe.values import Verdict
from archonctl.probe.verdict import verdict_json
from archonctl.service.locate import locate_in_file
from archonctl.service.verdict_store import KEPT, keep, kept, latest, load
from support.lying_server import Engine, lying_server
from support.probing import endpoint, leg, probe, told

BOOT = [
    "0.00.001.457 I srv  llama_server: initializing ...",
    "0.00.100.100 I llama_context: n_seq_max             = 4",
    "0.00.100.101 I llama_context: n_ctx                 = 8192",
    "0.00.100.102 I llama_context: n_ctx_seq             = 8192",
    "0.00.100.103 I llama_context: kv_unified            = true",
    "0.00.100.104 I llama_kv_cache:        CPU KV buffer size =     8.00 MiB",
    "0.00.100.105 I llama_kv_cache: size =    8.00 MiB (  8192 cells,   4 layers,  4/1 seqs), "
    "K (f16):    4.00 MiB, V (f16):    4.00 MiB",
    "0.00.207.197 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'",
    "0.00.209.314 I srv  llama_server: model loaded",
]
LOG = "\n".join(BOOT)


def reader() -> LedgerReader:
    found = LedgerReader("llamacpp")
    for line in BOOT:
        found.feed(line)
    return found


def stored_value(engine: Engine, **options: Any) -> tuple[Verdict, dict[str, Any]]:
    with lying_server(engine) as server:
        verdict = probe(server, **options)
        declared = endpoint(server.listen, options.get("seqs", 2), options.get("length", 400))
    more = {"verdict": verdict.word, "reasons": list(verdict.reasons), "release": "ab" * 8, "by": "probe", "at": 1.5}
    from support.probing import boot_ledger

    ledger = boot_ledger(1_000_000, engine.slots, engine.window)
    return verdict, json.loads(json.dumps(evidence(declared, "tiny", verdict_json(verdict, "tiny"), ledger, **more)))


ENGINES = {
    "holds": Engine(),
    "serialises": Engine(slots=1, override={}),
    "pool too small": Engine(pool=300),
    "text late": Engine(hold_back=1.0, lie_above=150),
}


@pytest.mark.usefixtures("one_flight")
@pytest.mark.parametrize("name", ENGINES)
def test_the_same_evidence_gives_the_same_word(name: str) -> None:
    verdict, value = stored_value(ENGINES[name])
    found = replay(read_stored(value))
    assert (found.was, found.now, found.changes) == (verdict.word, verdict.word, ()), told(verdict)
    assert found.same
    assert "ledger" in found.again


def test_a_rule_that_became_stricter_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _, value = stored_value(Engine())
    monkeypatch.setattr(capacity_judge, "LEAST_SHARE", 1.5)
    found = replay(read_stored(value))
    assert (found.was, found.now, found.same) == ("holds", "no evidence", False)
    (change,) = found.changes
    assert (change.what, change.was, change.now) == ("leg capacity", "pass", "no evidence (hold-unproven)")


def test_a_grammar_that_reads_otherwise_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = reader().result()
    declared = endpoint("127.0.0.1:1", 1, 16)
    value = json.loads(json.dumps(evidence(declared, "tiny", None, ledger, verdict="no evidence", reasons=["x"])))
    value["probe"] = {"legs": [{"id": "ledger", "status": "pass", "message": "m", "required": True}]}
    assert "kv_tokens" in value["ledger_lines_suffice_for"]
    assert replay(read_stored(value)).changes == ()
    real = replaying.reread
    monkeypatch.setattr(replaying, "reread", lambda *a: {k: v for k, v in real(*a).items() if k != "kv_tokens"})
    found = replay(read_stored(value))
    assert ("log figure kv_tokens", "not read") in [(c.what, c.now) for c in found.changes]
    assert "leg ledger" in [c.what for c in found.changes]


def test_a_word_that_no_leg_tells_stands() -> None:
    _, value = stored_value(Engine())
    value |= {"verdict": "broken", "reasons": ["the engine ended while it was probed: signal 9"]}
    found = replay(read_stored(value))
    assert (found.was, found.now) == ("broken", "broken")
    assert found.reasons[0].startswith("the engine ended")


def test_older_values_are_read_and_stand() -> None:
    verdict, _ = stored_value(Engine())
    old = json.loads(json.dumps(verdict_json(verdict, "tiny")))
    for each in old["legs"]:
        for key in ("numbers", "proof", "observed"):
            del each[key]
    for value in (old, {"schema": "archonctl.verify/1", "endpoint": "tiny", "verdict": "holds", "probe": old}):
        stored = read_stored(value)
        assert [each.id for each in stored.legs] == [each.id for each in verdict.legs]
        found = replay(stored)
        assert (found.now, found.again) == (verdict.word, ())


@pytest.mark.parametrize("value", [None, [], {}, {"schema": "archonctl.verdict/9"}, {"schema": SCHEMA}])
def test_what_is_no_verdict_is_refused(value: object) -> None:
    with pytest.raises(UsageError) as caught:
        read_stored(value)
    assert caught.value.code == "verdict-unreadable"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["legs", "ledger", "contract", "probe", "engine", "reasons", "verdict", "replicas"]), JSON)
def test_a_damaged_verdict_is_refused_or_read_and_never_a_traceback(key: str, junk: object) -> None:
    contract = {"seqs": 2, "len": 400, "kv_dtype": "f16", "margin": 0.0}
    one = {"id": "capacity", "status": "pass", "message": "m", "observed": {"streams": junk, "hold": junk}}
    value = {
        "schema": SCHEMA,
        "endpoint": "tiny",
        "verdict": "holds",
        "contract": contract,
        "engine": {"kind": "llamacpp"},
        "probe": {"legs": [one]},
        key: junk,
    }
    with suppress(UsageError):
        replay(read_stored(value))


def test_every_proof_from_the_log_gets_its_place(tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_text(LOG + "\n")
    ledger = reader().result()
    declared = endpoint("127.0.0.1:1", 1, 16)
    from archonctl.probe.ledger_leg import ledger_leg
    from archonctl.probe.verdict import judge

    value = verdict_json(judge([ledger_leg(ledger, declared.contract, "llamacpp")]), "tiny")
    placed = locate_in_file(value, log)
    proofs = placed["legs"][0]["proof"]  # type: ignore[index]
    assert proofs
    raw = log.read_bytes()
    for proof in proofs:
        at = proof["offset_bytes"]
        assert raw[at:].split(b"\n")[0].decode() == BOOT[proof["line"] - 1]
        assert proof["where"] == str(log)


def test_verdicts_are_kept_by_release_and_the_oldest_go(tmp_path: Path) -> None:
    _, value = stored_value(Engine())
    for number in range(KEPT + 3):
        keep(tmp_path, "a" * 16, "probe", value, 1000.0 + number)
    keep(tmp_path, "b" * 16, "up", value, 5.0)
    found = kept(tmp_path)
    assert len(found) == KEPT + 1
    assert found[-1].by == "up"
    assert [each.at for each in found] == sorted((each.at for each in found), reverse=True)
    assert {each.release for each in kept(tmp_path, "bbbb")} == {"b" * 16}
    stored, where = latest(tmp_path, "tiny", "a" * 64)
    assert (stored.word, where.release) == ("holds", "a" * 16)
    with pytest.raises(NoEvidence) as caught:
        latest(tmp_path, "tiny", "cccc")
    assert caught.value.code == "verdict-missing"


def test_a_half_written_or_hostile_file_is_refused(tmp_path: Path) -> None:
    for number, raw in enumerate([b"", b'{"schema": "arch', b"[" * 100_000, b"\xff", b"null"]):
        path = tmp_path / f"{number}.json"
        path.write_bytes(raw)
        with pytest.raises(UsageError) as caught:
            load(path)
        assert caught.value.code == "verdict-unreadable"
    with pytest.raises(UsageError):
        load(tmp_path)


def test_secrets_in_a_boot_log_are_not_kept() -> None:
    found = LedgerReader("llamacpp")
    for line in BOOT:
        found.feed(line + ("  api_key=Sup3rSecretKey" if "KV buffer" in line or "n_slots" in line else ""))
    value = evidence(endpoint("127.0.0.1:1", 1, 16), "tiny", None, found.result(), verdict="holds", reasons=[])
    assert "Sup3rSecretKey" not in json.dumps(value["ledger_lines"])


def test_every_claim_over_http_has_its_answer() -> None:
    verdict, _ = stored_value(Engine())
    proofs = leg(verdict, "generation").proof
    assert [(each.kind, each.where, each.status) for each in proofs] == [("http", "POST /v1/chat/completions", 200)]
    assert "word" in proofs[0].text
    assert any(each.where == "POST /v1/completions" and each.status == 400 for each in leg(verdict, "refusal").proof)
