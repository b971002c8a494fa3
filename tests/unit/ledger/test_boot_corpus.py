"""Whole boot logs of real engines: what each allocated is read, and is what the plan of the same command line says.

The logs lie in ``tests/golden/boots``; ``scripts/collect-boots`` makes them again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from archonctl.deployment.schema import Contract, Endpoint, Engine, KnobValue, ModelRef
from archonctl.engines import adapter
from archonctl.engines.base import Forecast
from archonctl.host.profile import Host
from archonctl.ledger import BootLedger, read_ledger
from archonctl.ledger.as_json import ledger_json
from archonctl.ledger.essentials import essentials
from archonctl.ledger.refusal import refusal
from archonctl.model.gguf import read_gguf
from archonctl.model.hf_folder import read_hf_folder
from support.boots import FOLDER, BootRecord, make_model, read_records

LLAMA = {record.case.id: record for record in read_records(FOLDER / "llamacpp.jsonl.gz")}
VLLM = {r.case.id: r for name in ("vllm", "vllm_kv") for r in read_records(FOLDER / f"{name}.jsonl.gz")}
RECORDS = {**LLAMA, **VLLM}
READY = [name for name, record in RECORDS.items() if record.ready]
QUIET = [name for name in LLAMA if name.endswith("-quiet")] + ["llama-verbosity-three"]
REFUSED: Mapping[str, str] = {
    "llama-unknown-flag": "unknown-argument",
    "llama-removed-flag": "unknown-argument",
    "llama-bad-type": "argument-invalid",
    "llama-v-needs-flash": "kv-dtype-unsupported",
    "llama-no-such-file": "model-load-failed",
    "llama-value-missing": "argument-invalid",
    "llama-no-such-device": "argument-invalid",
    "llama-slots-not-a-number": "argument-invalid",
    "vllm-too-small": "kv-too-small",
    "vllm-unknown-flag": "unknown-argument",
    "vllm-over-trained": "context-over-trained",
    **{f"vllm-kv-{kind}-too-small": "kv-too-small" for kind in ("latent", "sliding", "hybrid")},
    "vllm-memory-taken": "free-memory-too-little",
    "vllm-no-cache-memory": "kv-too-small",
    "vllm-memory-share-taken": "free-memory-too-little",
    "vllm-blocks-too-few": "kv-too-small",
    "vllm-removed-flag": "unknown-argument",
    "vllm-joined-words": "unknown-argument",
    "vllm-cache-type-unknown": "argument-invalid",
    "vllm-length-no-number": "argument-invalid",
    "vllm-heads-uneven": "argument-invalid",
    "vllm-batch-below-length": "argument-invalid",
    "vllm-quantisation-unknown": "argument-invalid",
    "vllm-no-tokenizer": "model-load-failed",
    "vllm-no-draft-model": "argument-invalid",
    "vllm-no-weights": "model-load-failed",
    "vllm-no-such-device": "unknown-argument",
}
AUTO = "vllm-auto-length"
AFTERWARDS = "llama-no-such-file"
"""Its cache was allocated before the boot failed: the figures are read, and the refusal beside them."""


@functools.cache
def ledger(name: str) -> BootLedger:
    return read_ledger(RECORDS[name].log.split("\n"))


def best(name: str, figure: str) -> float | None:
    value = ledger(name).get(figure)
    return None if value is None else value.best


def test_there_are_enough_of_them() -> None:
    assert len(RECORDS) > 100
    assert len(LLAMA) > 100
    assert len(VLLM) >= 12
    assert sum(record.ready for record in VLLM.values()) >= 12


@pytest.mark.parametrize("name", RECORDS)
def test_the_engine_and_how_its_boot_ended_are_told_from_the_lines(name: str) -> None:
    record, read = RECORDS[name], ledger(name)
    cause = refusal(read)
    assert read.engine == record.case.engine or (name in REFUSED and read.engine == "unknown")
    assert bool(read.ready_line) == record.ready
    assert read.boots == 1
    assert (cause is None) == record.ready, cause
    if record.ready:
        assert read.engine_version.lstrip("b") in ("", record.version.partition("+")[0].lstrip("b"))


@pytest.mark.parametrize("name", REFUSED)
def test_why_it_did_not_start_is_told_by_its_code(name: str) -> None:
    cause = refusal(ledger(name))
    assert cause is not None
    assert cause.code == REFUSED[name]


@pytest.mark.parametrize("name", [name for name in RECORDS if not RECORDS[name].ready and name != AFTERWARDS])
def test_a_boot_that_failed_promises_no_tokens(name: str) -> None:
    assert best(name, "kv_tokens") is None


@pytest.mark.parametrize("name", QUIET)
def test_the_default_verbosity_is_no_evidence_of_tokens(name: str) -> None:
    assert best(name, "kv_tokens") is None
    assert "kv_tokens" in ledger(name).missing
    words = RECORDS[name].case.argv
    assert best(name, "n_slots") == int(words[words.index("-np") + 1])


@pytest.mark.parametrize("name", READY)
def test_nothing_that_a_healthy_boot_prints_is_missing(name: str) -> None:
    if name not in QUIET:
        assert not ledger(name).missing
        assert all(each.reading for each in essentials(ledger(name)) if each.name in ("kv_tokens", "slot_tokens"))


def flags(record: BootRecord) -> dict[str, KnobValue]:
    """The command line as knobs, without what a declaration says elsewhere."""
    found: dict[str, KnobValue] = {}
    words = list(record.case.argv)
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else "-"
        if word.startswith("-"):
            value: KnobValue = True if following.startswith("-") else following
            found[word.lstrip("-")] = int(value) if isinstance(value, str) and value.isdigit() else value
    for name in ("load-format", "enforce-eager", "log-jsonl", "log-timestamps", "log-prefix"):
        found.pop(name, None)
    return found


def forecast(record: BootRecord, folder: Path) -> Forecast:
    """The plan of the same command line, over the same model."""
    case, knobs = record.case, flags(record)
    model = make_model(case, folder)
    length = int(str(knobs.get("max-model-len", 2048)))
    if case.engine == "llamacpp":
        knobs.setdefault("np", -1)  # as the engine itself: four slots over one cache
    keys, values = str(knobs.pop("ctk", "f16")), str(knobs.pop("ctv", "f16"))
    llama_dtype = keys if keys == values else f"{keys}/{values}"
    dtype = str(knobs.pop("kv-cache-dtype", "auto")) if case.engine == "vllm" else llama_dtype
    version = record.version.partition("+")[0]
    engine = Engine(kind=case.engine, version=version, binary="/opt/engine", knobs=knobs, env=dict(case.env))
    declared = Endpoint(
        contract=Contract.model_validate({"seqs": 1, "len": length, "kv_dtype": dtype}),
        engine=engine,
        model=ModelRef(path=str(model)),
    )
    facts = (
        read_hf_folder(model, sorted(p.name for p in model.iterdir())) if case.engine == "vllm" else read_gguf(model)
    )
    return adapter(case.engine).forecast(declared, Host(ram_mib=65_536), facts)


@pytest.mark.parametrize("name", [name for name in READY if name in LLAMA and name not in QUIET])
def test_llama_server_allocated_what_the_plan_says(name: str, tmp_path: Path) -> None:
    planned = forecast(RECORDS[name], tmp_path)
    assert planned.kv_tokens is not None
    assert planned.kv_tokens.is_exact
    assert best(name, "kv_tokens") == planned.kv_tokens.best
    assert best(name, "n_slots") == planned.seqs_limit
    assert best(name, "n_ctx_slot") == planned.seq_len_limit


@pytest.mark.parametrize("name", [name for name in READY if name in VLLM and name != AUTO])
def test_vllm_printed_what_the_plan_says(name: str, tmp_path: Path) -> None:
    planned = forecast(RECORDS[name], tmp_path)
    assert planned.kv_tokens is not None
    printed = planned.methods.get("what vLLM will print", planned.kv_tokens)
    assert printed.is_exact
    assert best(name, "kv_tokens") == printed.best


def test_a_length_that_vllm_chose_is_told() -> None:
    read = ledger(AUTO)
    assert read.has("context-reduced-by-fit")
    assert best(AUTO, "n_ctx_from") == 262144
    assert best(AUTO, "max_model_len") == best(AUTO, "n_ctx_to")


Carrier = Callable[[int, str], str]
CARRIERS: Mapping[str, Carrier] = {
    "docker with times": lambda n, line: f"2026-01-01T00:00:{n % 60:02}.123456789Z {line}",
    "compose": lambda n, line: f"engine-1  | {line}",
    "containerd": lambda n, line: f"2026-01-01T00:00:{n % 60:02}.1Z stderr F {line}",
    "journald": lambda n, line: f"Jan 01 00:00:{n % 60:02} host engine[4711]: {line}",
    "journald iso": lambda n, line: f"2026-01-01T00:00:{n % 60:02}+0100 host engine[4711]: {line}",
    "colours": lambda n, line: f"\x1b[36m{line}\x1b[0m",
    "json lines": lambda n, line: json.dumps({"log": line + "\n", "stream": "stderr"}),
    "logfmt": lambda n, line: f"time=2026-01-01T00:00:00Z level=INFO msg={json.dumps(line, ensure_ascii=False)}",
    "ray": lambda n, line: f"(ServeReplica:x pid=12, ip=10.0.0.1) {line}",
    "carriage returns": lambda n, line: line + "\r",
}
SOME = ["llama-gemma3-streams", "llama-llama-dry-run-first", "llama-v-needs-flash", "vllm-dense", "vllm-too-small"]


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_carrier_changes_nothing(name: str, carrier: str) -> None:
    carried = read_ledger(CARRIERS[carrier](n, line) for n, line in enumerate(RECORDS[name].log.split("\n")))
    plain = ledger(name)
    assert {k: r.value for k, r in carried.figures.items()} == {k: r.value for k, r in plain.figures.items()}
    assert {k: r.line_no for k, r in carried.figures.items()} == {k: r.line_no for k, r in plain.figures.items()}
    assert carried.ready_line == plain.ready_line
    cause, same = refusal(carried), refusal(plain)
    assert (cause and cause.code) == (same and same.code)


@pytest.mark.parametrize("name", SOME)
def test_a_log_cut_anywhere_says_less_and_never_other_things(name: str) -> None:
    text, whole = RECORDS[name].log, ledger(name)
    for at in range(0, len(text), max(1, len(text) // 40)):
        read = read_ledger(text[:at].split("\n"))
        json.dumps(ledger_json(read), allow_nan=False)
        tokens = read.get("kv_tokens")
        assert tokens is None or name == "vllm-dense" or tokens == whole.get("kv_tokens")
        assert not read.ready_line or whole.ready_line


@pytest.mark.parametrize(
    ("first", "second"), [("llama-llama-streams", "llama-gemma3-unified"), ("vllm-sliding", "vllm-dense")]
)
def test_of_two_boots_in_one_log_the_last_one_counts(first: str, second: str) -> None:
    read = read_ledger((RECORDS[first].log + "\n" + RECORDS[second].log).split("\n"))
    assert read.boots == 2
    assert read.get("kv_tokens") == ledger(second).get("kv_tokens")
    assert {n: r.value for n, r in read.figures.items()} == {n: r.value for n, r in ledger(second).figures.items()}


def test_a_boot_that_failed_after_one_that_served_is_a_refusal_without_tokens() -> None:
    read = read_ledger((RECORDS["vllm-dense"].log + "\n" + RECORDS["vllm-too-small"].log).split("\n"))
    cause = refusal(read)
    assert read.boots == 2
    assert not read.ready_line
    assert cause is not None
    assert cause.code == "kv-too-small"
    assert read.get("kv_tokens") is None
