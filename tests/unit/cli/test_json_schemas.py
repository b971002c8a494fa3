"""Every ``--json`` value against its published schema, by the installed command wherever that can be."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from archonctl.catalogue.as_json import added_json
from archonctl.catalogue.entry import Entry, entry_of
from archonctl.cli.apply_text import result_json
from archonctl.cli.compare_text import compare_json
from archonctl.cli.failures_text import failures_json
from archonctl.cli.installed_text import drift_json, history_json, logs_json, status_json
from archonctl.cli.output import error_json
from archonctl.cli.stored_text import shown_json
from archonctl.cli.up_text import up_json
from archonctl.cli.watch_json import watch_json
from archonctl.deployment.load import load_endpoint
from archonctl.doctor.values import Status as DoctorStatus
from archonctl.errors import ArchonError
from archonctl.findings import Finding
from archonctl.fit.values import FitVerdict as FitWord
from archonctl.fit.values import RefusalCode, Split
from archonctl.fleet.gating import GateWord
from archonctl.fleet.rollout.as_json import fleet_json
from archonctl.fleet.rollout.values import Action as FleetAction
from archonctl.fleet.rollout.values import Fault, FleetResult, HostResult, HostWord
from archonctl.fleet.sidecar.answers import verdict_value
from archonctl.fleet.sidecar.watch import Watch, Word
from archonctl.fleet.together import HostVerdict
from archonctl.guard.auth import PassThrough
from archonctl.guard.serve import Setup
from archonctl.guard.start import started_json
from archonctl.host.load import load_host
from archonctl.ledger.grammar import ENGINES, grammar
from archonctl.ledger.reader import LedgerReader
from archonctl.memory.demand import FitVerdict, MemoryClass, Scope
from archonctl.memory.interval import Source
from archonctl.model.as_json import facts_json
from archonctl.model.geometry import AttentionKind, ModelFacts, RecurrentKind, TensorClass
from archonctl.model.inspect import inspect_model
from archonctl.observe.catalogue import Look
from archonctl.observe.compare import compare
from archonctl.observe.entries import entries, entry_json
from archonctl.observe.failures import Failure
from archonctl.observe.relief import Advice
from archonctl.observe.side import side_of
from archonctl.observe.watch import Level
from archonctl.plan.as_json import plan_json
from archonctl.plan.build import plan_endpoint
from archonctl.plan.load import load_model
from archonctl.plan.relief import Question, relieve
from archonctl.plan.trial import Trial
from archonctl.plan.values import PlanVerdict
from archonctl.probe.stored import read_stored
from archonctl.probe.values import Depth, Leg, LegStatus, Verdict, VerdictWord
from archonctl.probe.verdict import judge, verdict_json
from archonctl.release.load import load_release
from archonctl.service import procfs
from archonctl.service.carry import ApplyResult, Outcome
from archonctl.service.drift import Drift
from archonctl.service.exits import ExitStatus
from archonctl.service.follow import Boot
from archonctl.service.history import History, Record
from archonctl.service.preview import Difference, Preview
from archonctl.service.recheck import Recheck, RecheckWord
from archonctl.service.state import EndpointState, Mode, Running
from archonctl.service.status import Status, StatusWord
from archonctl.service.turn import Attempt, AttemptWord
from archonctl.service.unit import UnitState
from archonctl.service.values import Ended, UpResult
from archonctl.tiers.store import Store
from support.engines import wait_for
from support.recorded import DAY, record_week
from support.staged import specs, stage
from support.watched import CASES as WATCHED

REPOSITORY = Path(__file__).resolve().parents[3]
FOLDER = REPOSITORY / "docs" / "schemas"
SCHEMAS: dict[str, Any] = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
VERBS = {
    "verdict",
    "predictions",
    "migrate",
    "import",
    "verify",
    "install",
    "plan",
    "plan-solve",
    "plan-sweep",
    "plan-relief",
    "saved-plan",
    "fit",
    "models",
    "models-show",
    "models-add",
    "render",
    "up",
    "probe",
    "ledger",
    "ledger-check",
    "inspect",
    "gate",
    "knobs",
    "doctor",
    "host",
    "explain",
    "stop",
    "apply",
    "rollback",
    "status",
    "history",
    "history-entry",
    "compare",
    "report",
    "drift",
    "logs",
    "failures",
    "watch",
    "tiers-plan",
    "tiers-status",
    "guard",
    "fleet-plan",
    "fleet-gate",
    "fleet-route",
    "fleet-hosts",
    "sidecar",
    "error",
}
_FILES = Registry().with_resources((f"{name}.json", Resource.from_contents(s)) for name, s in SCHEMAS.items())
ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "deepseek2", "gpt-oss", "qwen3next")

Value = dict[str, Any]
Ask = Callable[..., Value]


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _wrongs(value: object, name: str) -> list[str]:
    found = Draft202012Validator(SCHEMAS[name], registry=_FILES).iter_errors(value)
    return [f"{error.json_path}: {error.message[:300]}" for error in found]


def _check(value: Value) -> Value:
    """The value, if it is what its own ``schema`` key promises."""
    name = value["schema"].removeprefix("archonctl.").replace("/", "-")
    assert _wrongs(value, name) == []
    return value


@pytest.fixture(scope="module")
def ask(run_cli: Any) -> Ask:
    """``ask(*words, code=0, schema="plan")``: the value that the command printed, checked against its schema."""

    def run(*words: str | Path, code: int = 0, schema: str = "", **how: Any) -> Value:
        done = run_cli(*words, "--json", **how)
        assert done.code == code, done.stdout + done.stderr
        value = json.loads(done.stdout, parse_constant=_no_constant)
        assert value["schema"] == f"archonctl.{schema or words[0]}/1"
        return _check(value)

    return run


SMALL = """
[contract]
seqs = 2
len = 2048
[engine]
kind = "llamacpp"
version = "b11434"
binary = {binary}
[engine.knobs]
threads = 1
[model]
path = {model}
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
load_timeout_s = 60
"""


@pytest.fixture
def small(tmp_path: Path, tiny_gguf: Any, free_port: int) -> Callable[..., Path]:
    """``small(binary)`` declares an endpoint that this machine can plan, and run where the binary is an engine."""

    def write(binary: str | Path = "/bin/false") -> Path:
        path = tmp_path / "small.toml"
        texts = {"binary": json.dumps(str(binary)), "model": json.dumps(str(tiny_gguf("llama")))}
        path.write_text(SMALL.format(port=free_port, **texts))
        return path

    return write


# The schemas themselves


def test_every_value_has_a_schema_and_every_schema_a_value() -> None:
    assert {name.removesuffix("-1") for name in SCHEMAS} == VERBS


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid_and_named_as_its_file(name: str) -> None:
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert (FOLDER / f"{name}.json").read_text("utf-8") == json.dumps(schema, indent=2) + "\n"
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"{name}.json"
    assert schema["title"] == f"archonctl.{name.removesuffix('-1')}/1"


def _objects(schema: Any, path: str = "") -> Iterator[tuple[str, Value]]:
    """Every subschema that describes an object, conditions left out."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" or schema.get("type") == ["object", "null"]:
            yield path, schema
        for key, item in schema.items():
            if key not in ("if", "then", "else", "allOf"):
                yield from _objects(item, f"{path}/{key}")
    elif isinstance(schema, list):
        for number, item in enumerate(schema):
            yield from _objects(item, f"{path}/{number}")


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_object_is_closed_or_typed_and_every_property_described(name: str) -> None:
    for path, found in _objects(SCHEMAS[name]):
        assert "additionalProperties" in found, path
        assert found["additionalProperties"] is not True, path
        for key, value in found.get("properties", {}).items():
            assert value.get("description", "").endswith("."), f"{path}/properties/{key}"


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_unit_in_a_name_is_said_in_the_description(name: str) -> None:
    units = {"_mib": "MiB", "_bytes": "ytes", "_tokens": "okens", "_pages": "pages", "seconds": "seconds"}
    for path, found in _objects(SCHEMAS[name]):
        for key, value in found.get("properties", {}).items():
            for ending, unit in units.items():
                told = value["description"] + found["description"]
                assert not key.endswith(ending) or unit in told, f"{path}/{key}: {told}"


ENUMS = [
    ("plan-1", ("properties", "verdict"), PlanVerdict),
    ("doctor-1", ("$defs", "result", "properties", "status"), DoctorStatus),
    ("plan-1", ("$defs", "demand", "properties", "class"), MemoryClass),
    ("plan-1", ("$defs", "demand", "properties", "source"), Source),
    ("plan-1", ("$defs", "demand", "properties", "scope"), Scope),
    ("plan-1", ("$defs", "fit", "properties", "verdict"), FitVerdict),
    ("probe-1", ("properties", "verdict"), VerdictWord),
    ("probe-1", ("properties", "facts", "properties", "depth"), Depth),
    ("probe-1", ("$defs", "leg", "properties", "status"), LegStatus),
    ("verify-1", ("properties", "verdict"), VerdictWord),
    ("verify-1", ("properties", "depth"), Depth),
    ("up-1", ("properties", "verdict"), VerdictWord),
    ("apply-1", ("properties", "outcome"), Outcome),
    ("status-1", ("properties", "endpoints", "items", "properties", "word"), StatusWord),
    ("watch-1", ("properties", "findings", "items", "properties", "level"), Level),
    ("watch-1", ("properties", "endpoints", "items", "properties", "blind", "items", "properties", "look"), Look),
    ("status-1", ("properties", "endpoints", "items", "properties", "recheck", "properties", "word"), RecheckWord),
    ("apply-1", ("properties", "attempts", "items", "properties", "verdict"), AttemptWord),
    ("up-1", ("properties", "engine", "properties", "mode"), Mode),
    ("up-1", ("properties", "engine", "properties", "ended"), Ended),
    ("fit-1", ("properties", "verdict"), FitWord),
    ("fit-1", ("$defs", "refusal", "properties", "code"), RefusalCode),
    ("fit-1", ("$defs", "choice", "properties", "split"), Split),
    ("models-1", ("$defs", "result", "properties", "verdict"), FitWord),
    ("fleet-plan-1", ("properties", "verdict"), HostVerdict),
    ("fleet-gate-1", ("properties", "result"), GateWord),
    ("fleet-hosts-1", ("properties", "action"), FleetAction),
    ("fleet-hosts-1", ("properties", "hosts", "items", "properties", "word"), HostWord),
    ("sidecar-1", ("properties", "word"), Word),
    ("inspect-1", ("$defs", "layer", "properties", "attention"), AttentionKind),
    ("inspect-1", ("$defs", "recurrent", "properties", "kind"), RecurrentKind),
    ("inspect-1", ("$defs", "tensor_bytes", "properties", "class"), TensorClass),
]


def _words(literal: Any) -> set[object]:
    """The words of a Literal; an empty one is published as null."""
    return {word or None for word in get_args(literal)}


@pytest.mark.parametrize(("name", "path", "literal"), ENUMS)
def test_an_enumeration_has_the_words_of_the_code(name: str, path: tuple[str, ...], literal: Any) -> None:
    found = SCHEMAS[name]
    for key in path:
        found = found[key]
    assert set(found["enum"]) == _words(literal)


def test_the_engines_and_units_of_a_ledger_are_those_of_the_grammars() -> None:
    assert set(SCHEMAS["ledger-1"]["properties"]["engine"]["enum"]) == {*ENGINES, None}
    units = {rule.unit or None for engine in ENGINES for rule in grammar(engine).rules.values()}
    assert units <= set(SCHEMAS["ledger-1"]["$defs"]["figure"]["properties"]["unit"]["enum"])


def test_the_keys_that_a_plan_promises_are_required() -> None:
    promised = {
        "contract": {"seqs", "len", "kv_dtype", "tokens"},
        "capacity": {"kv_tokens", "sessions", "method"},
        "host": {"ttm_floor_mib", "ttm_floor_pages"},
    }
    plan = SCHEMAS["plan-1"]
    assert {"verdict", "contract", "capacity", "cards", "host", "levers", "demands", "notes"} <= set(plan["required"])
    for table, keys in promised.items():
        assert keys <= set(plan["properties"][table]["required"])
    card = {"index", "total_mib", "ceiling_mib", "slab_mib", "pool_mib", "pool_needed_mib", "margin_mib"}
    assert card <= set(plan["$defs"]["card"]["required"])


def test_the_wheel_carries_the_schemas_and_the_page_names_each() -> None:
    built = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["force-include"]["docs/schemas"] == "archonctl/_data/schemas"
    page = (REPOSITORY / "docs" / "json.md").read_text("utf-8")
    assert [name for name in SCHEMAS if f"schemas/{name}.json" not in page] == []


# What the command prints


@pytest.mark.parametrize(
    ("words", "code", "verdict"),
    [
        (["env/archon.toml"], 0, "holds"),
        (["env/archon.toml", "--seqs", "3", "--len", "200000"], 0, "holds"),
        (["env/archon.toml", "--set", "engine.knobs.host-pool-mib=44928"], 1, "short"),
        (["env/archon.toml", "--set", "engine.knobs.vram-kv-mib=5120"], 1, "short"),
        (["env/archon-pair.toml"], 0, "holds"),
        (["env/archon-pair.toml", "--seqs", "4", "--margin", "0"], 1, "short"),
        (["env/archon.toml", "--seqs", "1000000000"], None, None),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_a_plan(ask: Ask, run_cli: Any, words: list[str], code: int | None, verdict: str | None) -> None:
    if code is None:
        done = run_cli("plan", *words, "--json")
        _check(json.loads(done.stdout))
    else:
        assert ask("plan", *words, code=code)["verdict"] == verdict


def test_a_plan_with_its_working(ask: Ask, small: Callable[..., Path]) -> None:
    for endpoint in ("env/archon.toml", "env/archon-pair.toml", small()):
        value = ask("plan", endpoint, "--explain")
        terms = {term["name"]: term for term in value["terms"]}
        assert terms["kv_tokens"]["value"] == pytest.approx(value["capacity"]["kv_tokens"], abs=1)
        assert terms["len"]["origin"].rpartition(":")[2].isdigit()
        assert all(term["origin"] or term["formula"] for term in value["terms"])


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        (["env/archon.toml", "--solve", "host-pool"], 0, True),
        (["env/archon-pair.toml", "--solve", "len,kv-dtype"], 0, True),
        (["env/archon-pair.toml", "--set", "engine.knobs.vram-kv-mib=100", "--solve", "seqs"], 1, False),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_a_solution(ask: Ask, words: list[str], code: int, found: bool) -> None:
    value = ask("plan", *words, code=code, schema="plan-solve")
    assert value["found"] is found
    assert bool(value["answers"]) is found


@pytest.mark.parametrize(
    ("words", "code", "verdicts"),
    [
        (["--sweep", "kv-dtype=fp8,bf16,f16"], 0, ["holds", "unknown", "refused"]),
        (["--solve", "len", "--sweep", "seqs=1..2"], 0, ["holds", "holds"]),
        (["--sweep", "seqs=9,8"], 1, ["short", "short"]),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_a_sweep(ask: Ask, words: list[str], code: int, verdicts: list[str]) -> None:
    value = ask("plan", "env/archon.toml", *words, code=code, schema="plan-sweep")
    assert [point["verdict"] for point in value["points"]] == verdicts


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_plan_and_an_inspection_of_each_architecture(
    ask: Ask, run_cli: Any, tiny_gguf: Any, small: Callable[..., Path], arch: str
) -> None:
    model = tiny_gguf(arch)
    facts = ask("inspect", model)
    assert facts["geometry"]["architecture"].replace("-", "") == arch.replace("-", "")
    assert sum(part["bytes"] for part in facts["tensor_bytes"]) == facts["weight_bytes"]
    done = run_cli("plan", small(), "--set", f"model.path={model}", "--set", "engine.knobs.ctx-size=2048", "--json")
    assert _check(json.loads(done.stdout))["verdict"] == "short"


def test_a_plan_without_a_known_capacity_has_null_and_never_0(ask: Ask, repository: Path, tmp_path: Path) -> None:
    text = (repository / "env" / "archon.toml").read_text()
    path = tmp_path / "archon.toml"
    path.write_text(text[: text.index("[[boot]]")])
    for folder in ("hosts", "models"):
        (tmp_path / folder).symlink_to(repository / "env" / folder)
    plan = ask("plan", path, code=3)
    assert plan["verdict"] == "unknown"
    assert (plan["capacity"]["kv_tokens"], plan["capacity"]["sessions"]) == (None, None)


def test_a_rendering_and_its_repetition(ask: Ask, tmp_path: Path, small: Callable[..., Path]) -> None:
    for endpoint in ("env/archon.toml", small()):
        first = ask("render", endpoint, "--out", tmp_path / "out" / Path(endpoint).stem)
        assert first["changed"] is True
        again = ask("render", endpoint, "--out", tmp_path / "out" / Path(endpoint).stem)
        assert again == first | {"changed": False}


def test_an_explanation_and_the_list(ask: Ask) -> None:
    assert ask("explain", "contract-short")["code"] == "contract-short"
    assert "contract-short" in ask("explain")["codes"]


def _stale_script(folder: Path) -> Path:
    script = folder / "start.sh"
    script.write_text("#!/bin/sh\n# archonctl: engine=llamacpp version=b11434\nexec llama-server -m m --no-webui-x\n")
    return script


def test_what_the_gate_found(ask: Ask, tmp_path: Path) -> None:
    value = ask("gate", _stale_script(tmp_path), code=4)
    assert (value["refused"], value["errors"]) == (True, 1)
    assert ask("gate", "env/archon.toml", "--no-environment", cwd=REPOSITORY)["refused"] is False


@pytest.mark.parametrize(
    "words",
    [
        ("show",),
        ("show", "radiance"),
        ("show", "llamacpp", "b11434", "--flag", "ctx-size"),
        ("why", "prefix-cache-host-mib"),
        ("why", "mlock", "--engine", "llamacpp"),
        ("diff", "radiance", "1.8.1", "1.8.1"),
    ],
    ids=" ".join,
)
def test_the_flags_of_an_engine(ask: Ask, words: tuple[str, ...]) -> None:
    assert ask("knobs", *words)


@pytest.mark.parametrize(
    ("argv", "code"), [(("-m", "x", "-c", "4096"), 0), (("-c 4096", "--mlock", "-fa"), 4), ((), 0)], ids=str
)
def test_the_verdict_on_a_command_line(run_cli: Any, argv: tuple[str, ...], code: int) -> None:
    options = ("--engine", "llamacpp", "--engine-version", "b11434", "--json")
    done = run_cli("knobs", "check", *options, "--", *argv)
    assert done.code == code
    value = _check(json.loads(done.stdout))
    assert value["verdict"] == ("refused" if code else "good")
    assert value["argv"] == list(argv)


def test_an_empty_log_is_null(ask: Ask, tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    for text in (b"", b"\n\n", b"\xff\x00 not a log\n", b"hello " * 100_000):
        log.write_bytes(text)
        ledger = ask("ledger", log, code=3)
        assert (ledger["engine"], ledger["figures"], ledger["ready_line"]) == (None, {}, None)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_log_with_every_line_that_an_engine_prints(run_cli: Any, tmp_path: Path, engine: str) -> None:
    rows = grammar(engine).rows
    refusals = [row for row in rows if row.severity == "refusal"]
    for name, chosen in (("all", rows), ("refusals", refusals)):
        log = tmp_path / f"{name}.log"
        log.write_text("".join(f"{row.example}\n" for row in chosen))
        done = run_cli("ledger", log, "--engine", engine, "--json")
        ledger = _check(json.loads(done.stdout))
        assert ledger["engine"] == engine
        assert all(figure["low"] <= figure["value"] <= figure["high"] for figure in ledger["figures"].values())
    if refusals:
        assert done.code == 1
        assert ledger["refusal"]["severity"] == "refusal"
        assert ledger["ready"] is False


def test_a_figure_has_the_unit_of_its_name(run_cli: Any, tmp_path: Path) -> None:
    log = tmp_path / "boot.log"
    log.write_text("".join(f"{row.example}\n" for row in grammar("llamacpp").rows if row.effect == "figures"))
    figures = json.loads(run_cli("ledger", log, "--engine", "llamacpp", "--json").stdout)["figures"]
    assert (figures["kv_tokens"]["unit"], figures["n_slots"]["unit"]) == ("tokens", None)
    assert {figure["unit"] for name, figure in figures.items() if name.endswith("_mib")} == {"MiB"}


CASES: list[object] = [
    {"id": "a", "engine": "vllm", "log_lines": ["INFO # GPU blocks: 1381", "GPU KV cache size: 22,096 tokens"]},
    {"log_lines": "llama_kv_cache: size =    4.00 MiB (  2048 cells,   4 layers,  2/2 seqs), K (f16):    2.00 MiB, "},
    {"id": "refused", "log_lines": [row.example for row in grammar("vllm").rows if row.severity == "refusal"]},
    {"id": 7, "engine": "no such engine", "engine_version": 1.5, "flags": None, "log_lines": []},
    {"id": "", "log_lines": [1, None, {"a": 1}, "KV cache"]},
    {"id": "without lines"},
    [],
    "text",
    None,
    1e400,
]


def test_a_check_of_good_and_malformed_cases(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    lines = [json.dumps(case).encode() for case in CASES]
    path.write_bytes(b"\n".join([*lines, b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"log_lines": [']))
    report = ask("ledger", "check", path, code=1, schema="ledger-check")
    assert len(report["cases"]) == 5
    assert {"case-not-json", "case-not-object", "case-without-lines"} == {p["code"] for p in report["problems"]}
    assert report["cases"][0]["observed_kv_tokens"] == 22_096
    assert report["cases"][3]["observed_kv_tokens"] == "unknown"


def test_a_check_of_an_empty_file(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(b"")
    report = ask("ledger", "check", path, schema="ledger-check")
    assert (report["cases"], report["problems"]) == ([], [])


def test_a_probe_of_nothing_is_broken(ask: Ask, small: Callable[..., Path], tmp_path: Path) -> None:
    state = {"ARCHON_STATE_DIR": str(tmp_path / "state")}
    broken = ask("probe", small(), "--leg", "admission", code=1, env=state)
    assert (broken["endpoint"], broken["verdict"]) == ("small", "broken")


def test_a_stop_of_nothing_and_of_a_process(ask: Ask, small: Callable[..., Path], tmp_path: Path) -> None:
    state = EndpointState(tmp_path / "state", "small")
    env = {"ARCHON_STATE_DIR": str(tmp_path / "state")}
    assert ask("stop", small(), env=env)["stopped"] is None
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"]) as process:
        try:
            who = procfs.identity(process.pid)
            assert who is not None
            state.create()
            state.write(_running(mode="detached", pid=who.pid, start_ticks=who.start_ticks, boot_id=who.boot_id))
            stopped = ask("stop", small(), env=env)["stopped"]
        finally:
            process.kill()
    assert stopped == {"mode": "detached", "pid": process.pid, "unit": None}


def test_a_name_that_is_no_utf8_is_still_json(ask: Ask, run_cli: Any, tmp_path: Path, tiny_gguf: Any) -> None:
    path = tmp_path / "caf\udce9 \N{SNOWMAN}.gguf"
    path.write_bytes(tiny_gguf("llama").read_bytes())
    for encoding in ("utf-8", "ascii", "latin-1"):
        assert ask("inspect", path, env={"PYTHONIOENCODING": encoding})["path"] == str(path)
        assert run_cli("inspect", path, env={"PYTHONIOENCODING": encoding}).code == 0


# Errors


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["paln"], "command-line-invalid", 2),
        (["plan", "--seqs"], "command-line-invalid", 2),
        (["plan", "nowhere.toml"], None, 2),
        (["plan", "--set", "contract.seqs=none"], None, 2),
        (["plan", "--seqs", "0"], None, 2),
        (["render", "env/archon.toml", "--out", "/proc/1/no"], None, 5),
        (["up", "env/archon.toml", "--set", "engine.knobs.host-pool-mib=44928"], "contract-short", 4),
        (["inspect", "nothing.gguf"], "model-missing", 2),
        (["inspect", "/dev/null"], None, 2),
        (["inspect", "README.md"], None, 2),
        (["explain", "contract-shrot"], "code-unknown", 2),
        (["ledger", "nothing.log"], None, 2),
        (["ledger", "a", "b"], "one-log", 2),
        (["ledger", "README.md", "--engine", "none"], None, 2),
        (["ledger", "check", "nothing.jsonl"], "cases-unreadable", 2),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_an_error(ask: Ask, tmp_path: Path, words: list[str], code: str | None, exit_code: int) -> None:
    state = {"ARCHON_STATE_DIR": str(tmp_path)}
    value = ask(*words, code=exit_code, schema="error", env=state)
    assert value["exit_code"] == exit_code
    assert code is None or value["error"]["code"] == code


def test_every_mistake_of_a_declaration_is_told(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text('[contract]\nseqs = "three"\nlen = -1\ncolour = "red"\n[engine]\nkind = "warp"\n')
    value = ask("plan", path, code=2, schema="error")
    told = [value["error"], *value["also"]]
    keys = {"contract.seqs", "contract.len", "contract.colour", "engine.kind"}
    assert keys <= {each.get("key") for each in told}
    assert {2, 3, 4, 6} <= {int(each["where"].rpartition(":")[2]) for each in told if each.get("key") in keys}


def test_a_boot_that_fails_tells_how_it_ended_and_what_it_said_last(
    ask: Ask, small: Callable[..., Path], tmp_path: Path
) -> None:
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\necho loading\necho 'no such model'\nexit 3\n")
    engine.chmod(0o755)
    value = ask(
        "up", small(engine), "--once", "--foreground", code=1, schema="error", env={"ARCHON_STATE_DIR": str(tmp_path)}
    )
    assert value["error"]["code"] == "engine-exited-at-boot"
    assert value["error"]["exit"] == "exit 3"
    assert value["error"]["log_tail"].splitlines() == ["loading", "no such model"]


def test_a_fault_of_ours_is_an_error_too() -> None:
    assert _check(error_json(ArchonError("internal-fault", "RuntimeError: x")))["exit_code"] == 70


# The real engine


@pytest.mark.engine
def test_a_start_on_a_real_engine(ask: Ask, small: Callable[..., Path], llama_server: Path, tmp_path: Path) -> None:
    words = ["up", small(llama_server), "--once", "--foreground", "--leg", "admission"]
    value = ask(*words, env={"ARCHON_STATE_DIR": str(tmp_path / "state")}, timeout=120)
    assert (value["verdict"], value["engine"]["ended"]) == ("holds", "stopped")
    assert value["ledger"]["figures"]["kv_tokens"]["value"] == value["plan"]["capacity"]["kv_tokens"] == 4096
    assert value["probe"]["facts"]["requests"] > 0
    assert {leg["id"]: leg["status"] for leg in value["probe"]["legs"]}["identity"] == "pass"
    env = {"ARCHON_STATE_DIR": str(tmp_path / "state")}
    assert ask("verdict", "show", "small", env=env)["stored"]["verdict"] == "holds"
    (kept,) = ask("verdict", "list", "small", env=env)["verdicts"]
    assert kept["by"] == "up"
    again = ask("verdict", "replay", "small", env=env)
    assert again["same"]
    assert {"ledger", "capacity", "engine-report", "identity"} <= set(again["judged_again"])
    assert ask("predictions", words[1], code=3, env=env)["predictions"] == []


def _serves(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


@pytest.mark.engine
def test_a_probe_of_a_real_engine(
    ask: Ask, small: Callable[..., Path], llama_server: Path, tmp_path: Path, free_port: int
) -> None:
    path, env = small(llama_server), {"ARCHON_STATE_DIR": str(tmp_path / "state")}
    render = ask("render", path, "--out", tmp_path / "release")
    log = tmp_path / "boot.log"
    with log.open("wb") as out, subprocess.Popen(render["argv"], stdout=out, stderr=out) as engine:
        try:
            wait_for(lambda: _serves(free_port), 90)
            value = ask("probe", path, "--leg", "admission", "--log", log, env=env, timeout=120)
            unseen = ask("probe", path, "--leg", "ledger", code=3, env=env, timeout=120)
        finally:
            engine.kill()
    assert value["verdict"] == "holds"
    assert value["facts"]["window_tokens"] == 2048
    assert unseen["verdict"] == "no evidence"


# What is wrong is rejected


def _running(**changes: Any) -> Running:
    values: Value = {
        "endpoint": "small",
        "mode": "child",
        "pid": 4242,
        "start_ticks": 1,
        "boot_id": "b",
        "argv_sha256": "0" * 64,
        "host": "127.0.0.1",
        "port": 8177,
        "log": "/state/boot.log",
        "release": "r",
        "declaration": "small.toml",
        "started_at": 1.0,
    }
    return Running(**values | changes)


def _verdict(status: LegStatus = "pass") -> Verdict:
    return judge([Leg("ledger", status, "4,096 KV tokens", code="" if status == "pass" else "kv-tokens-short")])


def _up_result(ended: Ended = "stopped", exit_: ExitStatus | None = None, **running: Any) -> UpResult:
    plan = plan_endpoint(load_endpoint(REPOSITORY / "env" / "archon.toml", {}, {}))
    reader = LedgerReader("llamacpp")
    rows = grammar("llamacpp").rows
    for row in [*(row for row in rows if row.effect == "figures"), *(row for row in rows if row.effect == "ready")]:
        reader.feed(row.example)
    return UpResult(
        "small", plan, "/state/r", _running(**running), Boot(1.0, 9, 0), reader.result(), _verdict(), ended, exit_
    )


@pytest.mark.parametrize(
    ("ended", "status", "running"),
    [
        ("stopped", ExitStatus(0, None), {}),
        ("died", ExitStatus(None, 9, oom="the kernel log says so"), {}),
        ("interrupted", ExitStatus(None, None), {}),
        ("running", None, {"mode": "unit", "unit": "archon-small.service", "log": ""}),
        ("running", None, {"mode": "detached", "host": "::1"}),
    ],
)
def test_a_start_however_it_ends(ended: Ended, status: ExitStatus | None, running: Value) -> None:
    engine = _check(up_json(_up_result(ended, status, **running)))["engine"]
    assert engine["listen"] == ("[::1]:8177" if running.get("host") else "127.0.0.1:8177")


@pytest.mark.parametrize("status", get_args(LegStatus))
def test_a_verdict_of_every_status(status: LegStatus) -> None:
    _check(verdict_json(_verdict(status), "small"))
    _check(verdict_json(judge([]), "small"))


def test_facts_that_json_cannot_write_and_those_unsaid_are_null() -> None:
    strange: dict[str, int | float | str | bool] = {"a": math.nan, "b": math.inf, "c": 1.5, "d": True, "e": 2**64}
    facts = ModelFacts("m.gguf", "gguf", None, 10, metadata=strange, geometry_reason="no law")
    value = _check(facts_json(facts))
    assert value["metadata"] == {"a": None, "b": None, "c": 1.5, "d": True, "e": 2**64}


GONE = object()
Change = tuple[tuple[str | int, ...], object]

_CHANGE: list[Change] = [
    (("outcome",), "ok"),
    (("release",), "0123"),
    (("action",), "reload"),
    (("attempts", 0, "verdict"), "unknown"),
    (("attempts", 0, "codes"), ["Not A Code"]),
    (("attempts", 0, "depth"), ""),
    (("differences",), [{"file": "argv", "lines": []}]),
]

WRONG: dict[str, list[Change]] = {
    "plan-solve-1": [(("answers", 0, "wanted"), "best"), (("solve",), []), (("plan", "verdict"), "ok")],
    "plan-sweep-1": [(("points", 0, "verdict"), "fine"), (("points",), []), (("points", 0, "values"), {"seqs": 3})],
    "plan-relief-1": [(("class",), "vram"), (("ways", 0, "set"), {}), (("ways", 0, "gives_bytes"), 0)],
    "tiers-plan-1": [
        (("tiers",), []),
        (("own_tiers", 0, "tokens", "low"), GONE),
        (("losses", 0, "tier"), "tape"),
        (("arrival", "decisions", 0, "reason"), "because"),
    ],
    "tiers-status-1": [
        (("places",), []),
        (("places", 0, "used_bytes"), -1),
        (("places", 0, "tier"), "tape"),
        (("removed",), [{"tier": "dram"}]),
    ],
    "fleet-plan-1": [
        (("verdict",), "fits"),
        (("hosts", 0, "verdict"), "unread"),
        (("hosts", 0, "cards", 0, "free_mib"), -1),
        (("endpoints", 0, "replicas", "placed"), None),
        (("moves", 0, "to"), ""),
        (("spare", "losses"), [{"hosts": []}]),
        (("placement", "proven"), "yes"),
    ],
    "fleet-gate-1": [
        (("result",), "ok"),
        (("hosts", 0, "result"), "unknown"),
        (("hosts", 0, "findings", 0, "severity"), "fatal"),
        (("counts", "unread"), GONE),
    ],
    "fleet-route-1": [
        (("target",), "haproxy"),
        (("text",), ""),
        (("backends", 0, "weight"), -1),
        (("backends", 0, "state"), "ok"),
        (("backends", 0, "seqs"), 0),
    ],
    "fleet-hosts-1": [
        (("hosts", 0, "word"), "ok"),
        (("hosts", 1, "fault", "code"), "Not a code"),
        (("hosts", 0, "touched"), None),
        (("summary",), {"fine": 1}),
        (("stopped_at",), ""),
    ],
    "sidecar-1": [
        (("word",), "ready"),
        (("release",), "abc"),
        (("reasons",), [""]),
        (("probe",), {}),
    ],
    "saved-plan-1": [(("facts", "release"), GONE), (("facts", "mood"), "good"), (("plan", "verdict"), "ok")],
    "verdict-1": [(("action",), "judge"), (("stored", "verdict"), "fine"), (("file",), "")],
    "predictions-1": [(("action",), "score"), (("figures", 0, "unit"), None), (("figures", 0, "leg"), GONE)],
    "plan-1": [
        (("terms",), [{"name": "kv_tokens"}]),
        (("verdict",), "ok"),
        (("verdict",), "short"),  # without a reason
        (("reasons",), ["why"]),  # of what holds
        (("contract", "seqs"), 0),
        (("contract", "tokens"), 600_000.5),
        (("contract", "tokens"), "600000"),
        (("capacity", "kv_tokens"), None),  # while its ends are known
        (("capacity", "kv_tokens"), -1),
        (("capacity", "methods"), {"m": {"kv_tokens": None}}),
        (("cards", 0, "pool_mib"), "4894 MiB"),
        (("cards", 0, "pool_mib"), -1),
        (("cards", 0, "margin_mib"), GONE),
        (("cards", 0, "pool_gb"), 4),
        (("demands", 0, "class"), "vram"),
        (("demands", 0, "bytes"), 1.5),
        (("demands", 0, "dtype"), ""),
        (("fits", 0, "by_class"), {"vram": 1}),
        (("host", "ttm_floor_pages"), "many"),
        (("levers",), [{"text": "t", "set": {}, "wins_tokens": None, "costs": None}]),
    ],
    "fit-1": [
        (("verdict",), "refused"),  # and yet a choice
        (("chosen", "engine"), "ollama"),
        (("chosen", "tp"), -1),
        (("chosen", "est_bytes"), 1.5),
        (("chosen", "throughput"), {"decode_tokens_s": 5}),
        (("refusals", 0, "code"), "fit"),
        (("refusals", 0, "kernel"), ""),
        (("code",), "fit-size"),
    ],
    "models-1": [
        (("models",), None),
        (("models", 0, "quants"), []),
        (("models", 0, "params_total"), 0),
        (("models", 0, "quants", 0, "size_bytes"), 1),
        (("hosts", 0, "results", 0, "verdict"), "ok"),
        (("hosts", 0, "results", 0, "est_bytes"), 1.5),
        (("hosts", 0, "results", 0, "split"), "pipeline"),
        (("seqs",), 0),
    ],
    "models-show-1": [
        (("geometry", "pattern"), "X"),
        (("geometry", "layers"), 0),
        (("parameters",), {}),
        (("quants", 0, "sha256"), ["abc"]),
    ],
    "models-add-1": [
        (("entry", "quant"), []),
        (("entry", "quant", 0, "bytes"), 0),
        (("is_new",), "yes"),
    ],
    "render-1": [
        (("digest",), "abc"),
        (("argv",), "llama-server --port 1"),
        (("argv",), []),
        (("env",), {"A": 1}),
        (("files",), {}),
        (("unit",), "archon"),
        (("changed",), "yes"),
    ],
    "up-1": [
        (("verdict",), "unknown"),
        (("verdict",), "broken"),
        (("engine", "mode"), "docker"),
        (("engine", "ended"), "running"),  # and yet an exit
        (("engine", "exit"), "exit 0"),
        (("engine", "listen"), "localhost"),
        (("boot_seconds",), -1),
        (("plan", "verdict"), "ok"),
        (("ledger", "ready"), "yes"),
        (("probe", "legs", 0, "status"), "ok"),
    ],
    "probe-1": [
        (("verdict",), "ok"),
        (("legs", 0, "status"), "fail"),  # and yet "holds"
        (("legs", 0, "status"), "no evidence"),
        (("legs", 0, "required"), False),
        (("legs",), []),
        (("legs", 0, "seconds"), -0.1),
        (("legs", 0, "code"), ""),
        (("legs", 0, "id"), "Capacity Leg"),
        (("facts",), {"kv_tokens_logged": None}),
        (("facts",), {"anything": [1]}),
        (("endpoint",), GONE),
    ],
    "ledger-1": [
        (("engine",), "unknown"),
        (("engine",), ""),
        (("ready_line",), 0),
        (("ready",), False),  # with a ready line
        (("figures", "kv_tokens", "value"), None),
        (("figures", "kv_tokens", "unit"), "GB"),
        (("figures", "kv_tokens", "line"), 0),
        (("figures", "kv_tokens", "low"), GONE),
        (("remarks",), [{"code": "x", "severity": "error", "line": 1, "text": ""}]),
        (("facts",), {"k_type": 1}),
    ],
    "ledger-check-1": [
        (("cases", 0, "predicted_kv_tokens"), None),
        (("cases", 0, "observed_kv_tokens"), "none"),
        (("cases", 0, "observed_kv_tokens"), -1),
        (("cases", 0, "reason"), None),  # while nothing is predicted
        (("cases", 0, "basis"), "guess"),
        (("cases", 0, "read"), {"a": None}),
        (("cases", 0, "predicted_kv_tokens"), 5),  # by no method
        (("problems",), [{"line": 0, "code": "case-not-json", "message": "m"}]),
    ],
    "inspect-1": [
        (("format",), "pickle"),
        (("weight_bytes",), 1.5),
        (("geometry",), None),  # without a reason
        (("geometry", "layers"), []),
        (("geometry", "layers", 0, "attention"), "linear"),
        (("geometry", "vocab"), 0),
        (("tensor_bytes", 0, "class"), "ffn"),
        (("metadata",), {"a": []}),
        (("parts",), 0),
    ],
    "import-1": [(("endpoints",), []), (("endpoints", 0, "path"), ""), (("endpoints", 0, "unread", 0, "line"), 0)],
    "migrate-1": [
        (("steps", 0, "action"), "guess"),
        (("moved", "verdict"), "ok"),
        (("before", "kv_tokens", "low"), -1),
    ],
    "explain-1": [(("page",), ""), (("code",), "Not A Code"), (("codes",), {"a-b": "both shapes at once"})],
    "gate-1": [
        (("refused",), "no"),
        (("findings", 0, "severity"), "fatal"),
        (("findings", 0, "line"), 0),
        (("files",), None),
    ],
    "knobs-1": [
        (("added", 0, "type"), "number"),
        (("added", 0, "choices"), "a"),
        (("removed", 0, "note"), 0),
        (("renamed",), None),
        (("changed",), {}),
        (("verdict",), "good"),  # both shapes at once
    ],
    "verify-1": [
        (("verdict",), "ok"),
        (("verdict",), "broken"),  # without a reason
        (("probe",), None),  # and yet "holds"
        (("code",), "Not A Code"),
        (("unit",), "tiny.service"),
        (("release",), "0123"),
        (("pid",), -1),
        (("boot_seconds",), -0.1),
        (("ledger", "ready"), "yes"),
    ],
    "doctor-1": [
        (("exit_code",), 8),
        (("machine",), ""),
        (("counts", "warn"), -1),
        (("results", 0, "status"), "unknown"),
        (("results", 0, "message"), ""),
        (("results", 0, "code"), "a-code"),  # of a check that passed
        (("results", 0, "endpoint"), ""),
        (("checks",), []),  # both shapes at once
    ],
    "host-1": [(("pages",), -1), (("module",), 1), (("findings",), None), (("action",), "reboot")],
    "install-1": [(("root",), ""), (("written",), -1), (("version",), None), (("package",), 1)],
    "apply-1": _CHANGE,
    "rollback-1": _CHANGE,
    "status-1": [
        (("endpoints", 0, "word"), "ok"),
        (("endpoints", 0, "age_s"), "1 h"),
        (("endpoints", 0, "seqs"), 0),
        (("endpoints", 0, "remark"), ""),
        (("endpoints", 0, "unit"), "tiny.service"),
        (("endpoints", 0, "recheck"), {"word": "daily", "ran_at": None, "exit": None}),
    ],
    "history-1": [
        (("events", 0, "at"), "today"),
        (("events", 0, "facts"), {"kernel": None}),
        (("events", 0, "release"), ""),
        (("unreadable_lines",), -1),
    ],
    "drift-1": [
        (("endpoints", 0, "drift"), "no"),
        (("endpoints", 0, "findings", 0, "code"), "Drift"),
        (("endpoints", 0, "findings", 0, "message"), ""),
        (("endpoints", 0, "unchecked"), None),
    ],
    "history-entry-1": [
        (("kind",), "line"),
        (("predictions", 0, "score"), "near"),
        (("live_tokens",), "many"),
        (("file",), ""),
    ],
    "compare-1": [
        (("rows", 0, "section"), "speed"),
        (("was", "release"), "1f0c"),
        (("same",), None),
        (("rows", 0, "delta"), GONE),
    ],
    "report-1": [(("bytes",), 0), (("endpoints",), [""]), (("file",), "")],
    "failures-1": [
        (("counts", 0, "class"), "vram"),
        (("failures", 0, "by"), "me"),
        (("failures", 0, "endpoint"), ""),
        (("since",), None),
    ],
    "watch-1": [
        (("memory", 0, "card"), ""),
        (("memory", 0, "used_bytes"), -1),
        (("memory", 0, "planned", 0, "class"), "vram"),
        (("endpoints", 0, "verdict"), "fine"),
        (("endpoints", 0, "kv_usage"), "41%"),
        (("findings", 0, "level"), "error"),
        (("findings", 0, "endpoint"), ""),
    ],
    "logs-1": [(("lines",), "a line"), (("invocation",), ""), (("unit",), None)],
    "guard-1": [(("admin",), ""), (("listen",), None), (("own_keys",), "yes")],
    "stop-1": [
        (("stopped",), "pid 4242"),
        (("stopped",), False),
        (("stopped",), {"mode": "child", "pid": -1, "unit": None}),
    ],
    "error-1": [
        (("exit_code",), 0),
        (("exit_code",), "2"),
        (("error", "code"), "Not A Code"),
        (("error", "message"), ""),
        (("error", "where"), ""),
        (("error", "traceback"), "x"),
        (("also",), [{"code": "a-b"}]),
    ],
}


def _verified(up: Value) -> Value:
    """The verdict on a start of a unit, as ``verify`` writes it down."""
    found = {"code": None, "reasons": [], "boot_seconds": 1.5, "ledger": up["ledger"], "probe": up["probe"]}
    where = {"unit": "archon@small.service", "release": "0" * 64, "invocation": "ab" * 16, "pid": 4242}
    when = {"boot_id": procfs.boot_id(), "at": 1.5, "seconds": 2.5, "depth": "full"}
    return {"schema": "archonctl.verify/1", "endpoint": "small", "verdict": "holds", **found, **where, **when}


def _recorded(folder: Path) -> dict[str, Value]:
    """What is told of an endpoint with a past."""
    installed = record_week(folder / "root", "archon", 3 * DAY)
    sides = [side_of(installed, digest) for digest in installed.digests()[:2]]
    found = {
        "history-entry-1": entry_json(entries(installed).found[-1]),
        "compare-1": compare_json(compare(*sides), everything=True),
    }
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def _staged(folder: Path) -> Path:
    """A declaration with a conversation in its folders, and a half-made file beside it."""
    store = Store(specs(folder))
    store.copy(stage(store), "dram", "disk")
    store.close()
    (folder / "disk" / f".{'a' * 32}.kv.part").touch()
    file = folder / "tiny.toml"
    tiers = "".join(f'[tiers.{name}]\npath = "{folder / name}"\n' for name in ("dram", "disk"))
    file.write_text(
        "[contract]\nseqs = 2\nlen = 1024\n"
        '[engine]\nkind = "llamacpp"\nversion = "b11434"\nbinary = "/x/llama-server"\n'
        f'[model]\npath = "/x/model.gguf"\n[service]\nlisten = "127.0.0.1:8000"\n{tiers}'
    )
    return file


@pytest.fixture(scope="module")
def good(ask: Ask, tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Any) -> dict[str, Value]:
    """One good value of each schema."""
    folder = tmp_path_factory.mktemp("good")
    cases = folder / "cases.jsonl"
    cases.write_text(json.dumps({"id": "a", "log_lines": ["a line"]}) + "\n")
    up = json.loads(json.dumps(up_json(_up_result("stopped", ExitStatus(0, None)))))
    return {
        "plan-1": ask("plan", "env/archon.toml"),
        "plan-solve-1": ask("plan", "env/archon.toml", "--solve", "host-pool", schema="plan-solve"),
        "plan-sweep-1": ask("plan", "env/archon.toml", "--sweep", "seqs=3..4", schema="plan-sweep"),
        "plan-relief-1": ask("plan", "env/archon.toml", "--relieve", "pool=512", schema="plan-relief"),
        "tiers-plan-1": ask("tiers", "plan", "env/archon-pair.toml", "--to", "1.8.1", "--offline", schema="tiers-plan"),
        "tiers-status-1": ask("tiers", "status", _staged(folder), schema="tiers-status"),
        "fleet-plan-1": ask("fleet", "plan", *_fleet(folder), schema="fleet-plan"),
        "fleet-gate-1": ask("fleet", "gate", *_fleet(folder)[:2], schema="fleet-gate"),
        "fleet-route-1": _route(ask, folder),
        "fleet-hosts-1": _rolled_out(),
        "saved-plan-1": _kept_plan(ask, folder / "a.plan.json"),
        "fit-1": ask("fit", "qwen3-14b", "--card", "T4"),
        "models-1": ask("models", "--card", "T4"),
        "models-show-1": ask("models", "show", "qwen3-next-80b-a3b", schema="models-show"),
        "models-add-1": added_json(_entry(tiny_gguf("qwen3moe")), None),
        "render-1": ask("render", "env/archon.toml", "--out", folder / "release"),
        "sidecar-1": _beside(folder / "release"),
        "up-1": _check(up),
        "probe-1": up["probe"],
        "ledger-1": up["ledger"],
        "ledger-check-1": ask("ledger", "check", cases, schema="ledger-check"),
        "inspect-1": ask("inspect", tiny_gguf("qwen3next")),
        "explain-1": ask("explain", "contract-short"),
        "gate-1": ask("gate", _stale_script(folder), code=4),
        "knobs-1": ask("knobs", "diff", "radiance", "1.2.0", "1.8.1"),
        "import-1": ask("import", _start_script(folder)),
        "migrate-1": ask("migrate", "env/archon-pair.toml", "--to", "1.8.1"),
        "verify-1": _verified(up),
        "verdict-1": json.loads(json.dumps(shown_json(read_stored(_verified(up)), "/state/v.json"))),
        "predictions-1": ask("predictions", "--figures"),
        **_recorded(folder),
        "report-1": ask("report", "--all", "--html", folder / "page.html", env={"ARCHON_STATE_DIR": str(folder)}),
        "doctor-1": ask("doctor", "env/archon.toml", "--check", "declaration"),
        "host-1": ask("host", "ttm", "--persist", "--target", "100"),
        "install-1": ask("install", "--root", folder / "image"),
        **changed(),
        "guard-1": _check(
            started_json("small", Setup("vllm", "http://127.0.0.1:1", PassThrough(), ("::", 2)), 2, None)
        ),
        "stop-1": {"schema": "archonctl.stop/1", "endpoint": "small", "stopped": None},
        "error-1": ask("explain", "no-such-code", code=2, schema="error"),
    }


def _rolled_out() -> Value:
    """A rollout that ended at its second host."""
    seen = drift_json([Drift("tiny", "0" * 16, ())])
    fault = Fault("engine-start-failed", "it does not start", hint="archonctl explain engine-start-failed")
    first = HostResult("a", "holds", 0, None, True, True, 1.5, tuple(seen["endpoints"]), 1.0)
    second = HostResult("b", "rolled back", 6, fault, True, True, 2.0)
    third = HostResult("c", "busy", 5, Fault("fleet-busy", "bob has it"), busy_with="bob@two")
    result = FleetResult("apply", (first, second, third), False, "b", 2, "alice@one", 1.5, 4.0, ("a remark",))
    return _check(json.loads(json.dumps(fleet_json(result))))


def _fleet(folder: Path) -> tuple[str | Path, ...]:
    """Two hosts with the archon endpoint on one of them, and a fleet file that wants one on the other."""
    variables = {"archon_host_profile": str(REPOSITORY / "env" / "hosts" / "archon.toml")}
    lying = variables | {"archon_endpoints": [str(REPOSITORY / "env" / "archon.toml")]}
    (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": {"gpu1": lying, "gpu2": variables}}}))
    (folder / "fleet.toml").write_text(
        f'[endpoints.archon]\ndeclaration = "{REPOSITORY / "env" / "archon.toml"}"\nhosts = ["gpu2"]\n'
    )
    return "-i", folder / "hosts.yml", folder / "fleet.toml"


def _route(ask: Ask, folder: Path) -> Value:
    """The file for nginx of a fleet that nobody looked at."""
    seen = folder / "status.json"
    seen.write_text(json.dumps({"schema": "archonctl.fleet-hosts/1", "action": "status", "hosts": []}))
    words = ("--target", "nginx", "--from", seen, "--force")
    return ask("fleet", "route", *_fleet(folder)[:2], *words, schema="fleet-route")


def _beside(folder: Path) -> Value:
    """A sidecar whose engine does not answer yet."""
    return _check(json.loads(json.dumps(verdict_value(Watch(load_release(folder), None)))))


def _kept_plan(ask: Ask, path: Path) -> Value:
    ask("plan", "env/archon.toml", "--out", path)
    return _check(json.loads(path.read_text("utf-8")))


def _start_script(folder: Path) -> Path:
    path = folder / "start.sh"
    path.write_text("llama-server -m /models/m.gguf -c 8192 -np 2 -t $(nproc)\n")
    return path


def changed() -> dict[str, Value]:
    """What is said of an installed endpoint, as its verbs write it."""
    state = UnitState("active", "running", "success", 4242, 0, 0, 1, "ab" * 16, "/x", "/usr/lib/x", 0)
    new, old = "0" * 16, "f" * 16
    attempts = (
        Attempt(new, "broken", ("512 tokens",), ("kv-tokens-short",), ("a line",), "ab" * 16, 2.5, "full"),
        Attempt(old, "holds", depth="full"),
    )
    difference = Difference("argv", ("--- argv now", "+--ctx-size"))
    seen = Preview("tiny", "archon@tiny.service", "restart", new, old, None, None, (), (difference,), ("a remark",))
    apply = result_json(ApplyResult("tiny", "rolled back", old, seen, attempts, ("a remark",)))
    record = Record("refused", "", 1.5, reasons=("contract-short",), facts={"kernel": "6.1", "pages_limit": 7})
    found = Status(
        "tiny",
        "archon@tiny.service",
        "unverified",
        state.active,
        new,
        "",
        None,
        1.5,
        0,
        3,
        1024,
        "llamacpp b1",
        "[::1]:1",
        recheck=Recheck("on", 1.5, 3),
    )
    finding = Finding("drift-kernel", "error", "kernel since the verdict: expected 6.1, found 6.12")
    value: Value = {
        "apply-1": apply,
        "rollback-1": apply | {"schema": "archonctl.rollback/1"},
        "status-1": status_json([found]),
        "history-1": history_json("tiny", new, History((record,), 1), (record,)),
        "drift-1": drift_json([Drift("tiny", new, (finding,), ("environment",)), Drift("x", "", (), ("all",))]),
        "logs-1": logs_json("tiny", "archon@tiny.service", "", ["a line"]),
        "failures-1": _failures(),
        "watch-1": watch_json(WATCHED["archon"]),
    }
    found_value: dict[str, Value] = json.loads(json.dumps(value))
    return found_value


def _failures() -> Value:
    """One that nobody owns, one with its way out, one whose plan cannot be made."""
    loaded = load_endpoint(REPOSITORY / "env" / "archon.toml", {}, {})
    with loaded.placing():
        trial = Trial("archon", loaded.endpoint, load_host(loaded), load_model(loaded.endpoint))
    found = relieve(trial, Question("kv_cache", 1 << 29, 0, pool=True))
    said = [
        Failure(1.5, "", "kv_cache", "engine", "out of memory", "torch"),
        Failure(2.5, "archon", "kv_cache", "engine", "SHORT BY 512.00 MiB", "radiance-short", 1 << 29, 0, True),
    ]
    advice = [
        Advice("archon", "kv_cache", "ran-out-of-kv-cache", found),
        Advice("gone", "unknown", "ran-out-of-unknown", None, "it is not installed here any more"),
    ]
    return failures_json(said, "-7d", advice)


def _entry(path: Path) -> Entry:
    """As ``models add`` makes it of a repository."""
    return entry_of(inspect_model(path), "org/tiny-GGUF", path.name, "0" * 40, "tiny", None)


def test_each_schema_has_something_wrong_to_reject(good: dict[str, Value]) -> None:
    assert set(WRONG) == set(good) == set(SCHEMAS)
    assert {name: _wrongs(value, name) for name, value in good.items()} == {name: [] for name in SCHEMAS}


@pytest.mark.parametrize(
    ("name", "path", "wrong"), [(name, *change) for name, changes in WRONG.items() for change in changes]
)
def test_a_wrong_value_is_rejected(
    good: dict[str, Value], name: str, path: tuple[str | int, ...], wrong: object
) -> None:
    value = copy.deepcopy(good[name])
    place: Any = value
    for key in path[:-1]:
        place = place[key]
    if wrong is GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = wrong
    assert _wrongs(value, name)


@pytest.mark.parametrize("name", WRONG)
def test_a_missing_a_foreign_and_a_renamed_key_are_rejected(good: dict[str, Value], name: str) -> None:
    for key in good[name]:
        assert _wrongs({k: v for k, v in good[name].items() if k != key}, name), key
    assert _wrongs(good[name] | {"extra": 1}, name)
    assert _wrongs(good[name] | {"schema": "archonctl.other/1"}, name)
    for strange in (None, [], "", 0):
        assert _wrongs(strange, name)


def test_a_plan_in_process_is_the_plan_of_the_command(good: dict[str, Value]) -> None:
    plan = plan_json(plan_endpoint(load_endpoint(REPOSITORY / "env" / "archon.toml", {}, {})))
    assert json.loads(json.dumps(plan)) == good["plan-1"]


@pytest.mark.parametrize("name", WATCHED)
def test_whatever_is_watched(name: str) -> None:
    _check(json.loads(json.dumps(watch_json(WATCHED[name]))))
