"""Faults that others had while an engine started, each made here with a real llama-server or in front of one.

Where this machine has no device to fail with, a script prints what such an engine printed and becomes the real server.
Of each the exit code, the code and the time are looked at: the time is what the run itself reports, and the bound is
the one that the declaration states.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from archonctl.ledger import read_ledger
from archonctl.ledger.refusal import refusal
from archonctl.release.unit import is_final_refusal
from archonctl.service import procfs
from support.boots import FOLDER, read_records
from support.bounds import boot_in_time
from support.engines import wait_for
from support.simulated_radiance import write_model, write_radiance

STORIES: Mapping[str, tuple[str, ...]] = {
    "a flag that this version never had takes every instance down": ("test_a_flag_that_is_not_known_stops_no_engine",),
    "a flag that was taken out": ("test_a_flag_that_is_not_known_stops_no_engine",),
    "two arguments were joined into one by quoting": ("test_a_value_with_a_space_is_one_argument",),
    "a start time-out shorter than the load": ("test_a_load_that_outlasts_its_time_is_given_up_in_time",),
    "the launcher gives up first and its workers live on": ("test_a_launcher_that_gives_up_leaves_no_worker",),
    "a stop while it loads leaves workers": ("test_an_interrupt_while_it_loads_leaves_nothing",),
    "memory of the last container is not free yet": ("test_memory_that_is_free_later_is_enough_then",),
    "replicas of one fraction got less and less": ("test_each_replica_is_judged_by_its_own_boot",),
    "the driver was not ready and the processor serves": ("test_an_engine_that_fell_back_to_the_cpu_is_broken",),
    "some layers stayed on the processor and nothing said so": ("test_layers_left_on_the_processor_are_told",),
    "alarming lines of a start that succeeded": ("test_an_alarm_that_was_overcome_refuses_nothing",),
    "weights load, and the first kernel fails": ("test_a_first_kernel_that_fails_is_told",),
    "locking memory fails and is only a warning": ("test_memory_that_could_not_be_locked_is_told",),
    "a second launch script still has the old flags": ("test_a_script_with_other_flags_is_broken",),
    "four slots share a context, or have one each, by a flag": ("test_a_slot_has_its_share_of_the_context",),
    "a long request is refused although the context as a whole is larger": (
        "test_a_slot_has_its_share_of_the_context",
    ),
    "prefix caching is switched by the engine on hybrids, and the capacity with it": (
        "test_a_hybrid_says_what_prefix_caching_takes",
    ),
    "a pin bump made the engine refuse, and it was tried again and again": (
        "test_a_refusal_of_a_real_vllm_is_told_by_its_cause",
    ),
    "what one refusal advised led to the next": ("test_a_refusal_of_a_real_vllm_is_told_by_its_cause",),
    "a budget that is short": ("test_a_budget_that_is_short_ends_the_boot_by_name",),
}
TIMEOUT_S = 60
DECLARATION = """
[contract]
seqs = {seqs}
len = {length}
kv_dtype = "f16"
[engine]
kind = "llamacpp"
version = "b11434"
binary = "{binary}"
[engine.knobs]
{knobs}
[model]
path = "{model}"
{named}
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
load_timeout_s = {timeout_s}
"""
TinyGguf = Callable[..., Path]


def test_every_story_names_tests_that_exist() -> None:
    named = {name for names in STORIES.values() for name in names}
    here = {name for name in globals() if name.startswith("test_")}
    assert named == here - {"test_every_story_names_tests_that_exist"}


class Result(Protocol):
    """What the command answered."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Stage:
    """A declaration over a real llama-server, and ``archonctl up --once`` on it."""

    run_cli: Callable[..., Result]
    server: Path
    model: Path
    folder: Path
    port: int

    def script(self, before: str, *, then: str = 'exec {server} "$@"') -> Path:
        """A program that does something first and is the real server then."""
        path = self.folder / "engine"
        path.write_text(f"#!/bin/sh\n{before}\n{then.format(server=shlex.quote(str(self.server)))}\n")
        path.chmod(0o755)
        return path

    def prints(self, *lines: str) -> Path:
        """The real server, which seems to print these lines while it loads its model."""
        added = "".join(f"\\n{line}" for line in lines)
        edit = shlex.quote(f"s|^.*loading model '.*$|&{added}|")
        return self.script(":", then=f'{{server}} "$@" 2>&1 | sed -u {edit} >&2')

    def up(
        self, seqs: int = 2, length: int = 1024, knobs: str = "", *, program: Path | None = None, named: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Exit code and answer; the time that the run reports is within what the declaration gives it."""
        path = self.folder / "small.toml"
        values = {"seqs": seqs, "length": length, "knobs": knobs, "port": self.port, "named": named}
        text = DECLARATION.format(**values, binary=program or self.server, model=self.model, timeout_s=TIMEOUT_S)
        path.write_text(text)
        words = ("up", path, "--once", "--foreground", "--force", "--json")
        done = self.run_cli(*words, env={"ARCHON_STATE_DIR": str(self.folder / "state")}, timeout=150)
        assert done.stdout, done.stderr
        answer = json.loads(done.stdout)
        boot_in_time(answer, TIMEOUT_S)
        return done.code, answer


@pytest.fixture
def stage(
    run_cli: Callable[..., Result], llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path, free_port: int
) -> Stage:
    return Stage(run_cli, llama_server, tiny_gguf("llama"), tmp_path, free_port)


def leg(answer: Mapping[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in answer["probe"]["legs"] if each["id"] == name)


def remarks(answer: Mapping[str, Any]) -> dict[str, str]:
    return {each["code"]: each["severity"] for each in answer["ledger"]["remarks"]}


# ------------------------------------------------------------------------------------------------- arguments
@pytest.mark.engine
@pytest.mark.parametrize(("flag", "value"), [("no-such-flag", "true"), ("draft", "16")])
def test_a_flag_that_is_not_known_stops_no_engine(stage: Stage, flag: str, value: str) -> None:
    path = stage.folder / "gate.toml"
    values = {"seqs": 2, "length": 1024, "knobs": f"{flag} = {value}", "port": stage.port, "named": ""}
    path.write_text(DECLARATION.format(**values, binary=stage.server, model=stage.model, timeout_s=TIMEOUT_S))
    before = stage.run_cli("gate", path)
    assert before.code == 4, before.stdout + before.stderr
    code, answer = stage.up(program=stage.script(":", then=f'exec {{server}} "$@" --{flag} {value}'))
    assert (code, answer["error"]["code"]) == (1, "engine-exited-at-boot")
    assert "the log names unknown-argument" in answer["error"]["message"]
    assert is_final_refusal("unknown-argument")


@pytest.mark.engine
def test_a_value_with_a_space_is_one_argument(stage: Stage) -> None:
    code, answer = stage.up(named='served_name = "two words --port 1"')
    assert (code, answer["verdict"]) == (0, "holds"), answer
    assert leg(answer, "model-id")["status"] == "pass"


@pytest.mark.engine
def test_a_script_with_other_flags_is_broken(stage: Stage) -> None:
    """The declaration says two slots; the script that is started in its place goes its own way."""
    other = 'exec {server} "$@" --parallel 1 --ctx-size 1024'
    code, answer = stage.up(program=stage.script(":", then=other))
    assert (code, answer["verdict"]) == (1, "broken")
    assert leg(answer, "ledger")["code"] == "kv-tokens-short"
    assert leg(answer, "capacity")["status"] == "fail"


@pytest.mark.engine
@pytest.mark.parametrize(
    ("knobs", "code"), [("ctx-size = 5120\nparallel = 4", 1), ("ctx-size = 5120\nparallel = 4\nkv-unified = true", 0)]
)
def test_a_slot_has_its_share_of_the_context(stage: Stage, knobs: str, code: int) -> None:
    done, answer = stage.up(2, 2048, knobs)
    assert done == code
    if code:
        found = leg(answer, "ledger")
        assert found["code"] == "window-short"
        assert (found["expected"], found["actual"]) == ("2,048 tokens a sequence", "1,280 tokens a sequence")
        assert leg(answer, "capacity")["status"] == "fail"


# ------------------------------------------------------------------------------------------------- devices and memory
@pytest.mark.engine
def test_an_engine_that_fell_back_to_the_cpu_is_broken(stage: Stage) -> None:
    code, answer = stage.up(knobs="n-gpu-layers = 99")
    assert code == 1
    assert (leg(answer, "identity")["status"], leg(answer, "identity")["code"]) == ("fail", "cpu-fallback")
    assert leg(answer, "capacity")["status"] == "pass"  # which is why nobody noticed


@pytest.mark.engine
def test_layers_left_on_the_processor_are_told(stage: Stage) -> None:
    code, answer = stage.up(program=stage.prints("load_tensors: offloaded 18/33 layers to GPU"))
    assert (code, answer["verdict"]) == (0, "holds")  # nobody asked for a device here; it is said all the same
    assert remarks(answer)["partial-offload"] == "warning"
    layers = [answer["ledger"]["essentials"][name]["value"] for name in ("layers_on_device", "layers")]
    assert layers == [18, 33]


@pytest.mark.engine
def test_an_alarm_that_was_overcome_refuses_nothing(stage: Stage) -> None:
    alarms = (
        "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.0 MiB on device 0: cudaMalloc failed: out of memory",
        "sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism",
    )
    code, answer = stage.up(program=stage.prints(*alarms))
    assert (code, answer["verdict"]) == (0, "holds")
    assert remarks(answer)["out-of-memory"] == "warning"


@pytest.mark.engine
def test_a_first_kernel_that_fails_is_told(stage: Stage) -> None:
    said = "ggml_cuda_compute_forward: RMS_NORM failed\\nROCm error: invalid device function"
    code, answer = stage.up(program=stage.script(f"printf '{said}\\n' >&2", then="kill -ABRT $$"))
    assert (code, answer["error"]["code"]) == (1, "engine-exited-at-boot")
    assert "the log names device-error" in answer["error"]["message"]


@pytest.mark.engine
def test_memory_that_could_not_be_locked_is_told(stage: Stage) -> None:
    bare = 'ulimit -l 64\n[ "$(id -u)" = 0 ] && set -- --bounding-set=-all --inh-caps=-all {server} "$@"'
    before = bare.replace("{server}", shlex.quote(str(stage.server)))
    then = 'if [ "$(id -u)" = 0 ]; then exec setpriv "$@"; fi\nexec {server} "$@"'
    code, answer = stage.up(knobs='load-mode = "mlock"', program=stage.script(before, then=then))
    assert (code, answer["verdict"]) == (0, "holds"), answer
    assert remarks(answer)["memlock-short"] == "warning"


@pytest.mark.engine
def test_memory_that_is_free_later_is_enough_then(stage: Stage) -> None:
    """What was there before holds the memory: a limit on the first start alone. Nothing of the refusal is final."""
    taken = stage.folder / "taken"
    program = stage.script(f"[ -e {taken} ] || {{ touch {taken}; ulimit -v 700000; }}")
    knobs = "ctx-size = 262144\nparallel = 2"
    code, answer = stage.up(knobs=knobs, program=program)
    assert (code, answer["error"]["code"]) == (1, "engine-exited-at-boot")
    assert "the log names out-of-memory" in answer["error"]["message"]
    assert not is_final_refusal("out-of-memory")
    assert not is_final_refusal("free-memory-too-little")
    code, answer = stage.up(knobs=knobs, program=program)
    assert (code, answer["verdict"]) == (0, "holds")


@pytest.mark.engine
@pytest.mark.parametrize(("tokens", "code"), [(5120, 0), (2048, 1), (1024, 1)])
def test_each_replica_is_judged_by_its_own_boot(stage: Stage, tokens: int, code: int) -> None:
    """Three alike, one after another, each with what the ones before left it."""
    done, answer = stage.up(2, 2048, f"ctx-size = {tokens}\nparallel = 2\nkv-unified = true")
    assert done == code
    found = leg(answer, "ledger")
    assert answer["ledger"]["essentials"]["kv_tokens"]["value"] == tokens
    if code:
        assert (found["code"], found["expected"], found["actual"]) == (
            "kv-tokens-short", "4,096 KV tokens", f"{tokens:,} KV tokens",
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------- time and leftovers
@pytest.mark.engine
def test_a_launcher_that_gives_up_leaves_no_worker(stage: Stage) -> None:
    worker = "sleep 86417"
    said = "echo 'RuntimeError: Engine core initialization failed. See root cause above.' >&2"
    code, answer = stage.up(program=stage.script(f"{worker} &\n{said}", then="exit 1"))
    assert (code, answer["error"]["code"]) == (1, "engine-exited-at-boot")
    assert not [s.pid for s in procfs.all_stats() if worker in procfs.command(s.pid, limit=400)]


RAD = "qwen3.8-next-flash-fp8-iq4r-moe.rad"


def radiance(folder: Path, port: int, declaration: str, *words: str, **simulate: object) -> list[str | Path]:
    """``archonctl up`` of a shipped declaration on the simulator."""
    write_model(folder / "models" / RAD)
    here = {
        "engine.image": "",
        "engine.binary": write_radiance(folder, **simulate),
        "model.path": folder / "models" / RAD,
        "service.listen": f"127.0.0.1:{port}",
        "service.user": "",
    }
    sets = [word for key, value in here.items() for word in ("--set", f"{key}={value}")]
    return ["up", f"env/{declaration}.toml", "--foreground", "--once", *sets, *words]


def test_a_load_that_outlasts_its_time_is_given_up_in_time(
    run_cli: Callable[..., Result], tmp_path: Path, free_port: int
) -> None:
    words = radiance(tmp_path, free_port, "archon", "--set", "service.load_timeout_s=2", version="1.8.1", load_s=60)
    done = run_cli(*words, "--json", env={"ARCHON_STATE_DIR": str(tmp_path / "state")}, timeout=120)
    answer = json.loads(done.stdout)
    assert (done.code, answer["error"]["code"]) == (3, "engine-not-ready")
    boot_in_time(answer, 2)


def test_a_budget_that_is_short_ends_the_boot_by_name(
    run_cli: Callable[..., Result], tmp_path: Path, free_port: int
) -> None:
    words = radiance(tmp_path, free_port, "archon", "--force", "--json", version="1.8.1", card_mib=8192)
    done = run_cli(*words, env={"ARCHON_STATE_DIR": str(tmp_path / "state")}, timeout=120)
    answer = json.loads(done.stdout)
    assert (done.code, answer["error"]["exit"]) == (1, "exit 70")
    assert "the log names" in answer["error"]["message"]
    boot_in_time(answer, TIMEOUT_S)


def test_an_interrupt_while_it_loads_leaves_nothing(tmp_path: Path, free_port: int, repository: Path) -> None:
    words = radiance(tmp_path, free_port, "archon", version="1.8.1", load_s=60)
    command = [Path(sys.executable).with_name("archonctl"), *words]
    env = {**os.environ, "ARCHON_STATE_DIR": str(tmp_path / "state")}

    def engines() -> list[int]:
        return [s.pid for s in procfs.all_stats() if f"--port {free_port}" in procfs.command(s.pid, limit=4000)]

    with subprocess.Popen(
        command, cwd=repository, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            wait_for(engines, 240)
            process.send_signal(signal.SIGINT)
            assert process.wait(120) != 0
        finally:
            process.kill()
    assert not engines()


# ------------------------------------------------------------------------------------------------- a real vLLM's boots
VLLM = {record.case.id: record for record in read_records(FOLDER / "vllm.jsonl.gz")}
"""Kept from a real vLLM 0.32.0; ``test_up_vllm.py`` makes them anew where one is installed."""
REFUSED = {
    "vllm-memory-share-taken": ("free-memory-too-little", False),
    "vllm-memory-taken": ("free-memory-too-little", False),
    "vllm-too-small": ("kv-too-small", True),
    "vllm-blocks-too-few": ("kv-too-small", True),
    "vllm-unknown-flag": ("unknown-argument", True),
    "vllm-removed-flag": ("unknown-argument", True),
    "vllm-joined-words": ("unknown-argument", True),
    "vllm-over-trained": ("context-over-trained", True),
    "vllm-no-weights": ("model-load-failed", True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_of_a_real_vllm_is_told_by_its_cause(name: str) -> None:
    code, final = REFUSED[name]
    record = VLLM[name]
    assert record.status
    cause = refusal(read_ledger(record.log.split("\n")))
    assert cause is not None
    assert (cause.code, is_final_refusal(cause.code)) == (code, final)


def test_a_hybrid_says_what_prefix_caching_takes() -> None:
    """Two states a request in the pool where prefixes are cached, one where not: fewer tokens of the same memory."""
    aligned = read_ledger(VLLM["vllm-hybrid"].log.split("\n"))
    without = read_ledger(VLLM["vllm-hybrid-no-prefix-caching"].log.split("\n"))
    assert aligned.has("mamba-state-in-pool")
    assert aligned.facts["mamba_cache_mode"] == "align"
    assert not without.has("mamba-state-in-pool")
    for ledger in (aligned, without):
        assert ledger.facts["kv_tokens_meaning"] == "concurrency x length"
        assert ledger.figures["attention_block_size"].value.best >= 128
