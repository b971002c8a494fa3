"""Import: what is rendered comes back as the declaration it was made of; the rest is named, never guessed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.deployment.load import load_endpoint
from archonctl.deployment.schema import Endpoint
from archonctl.errors import ArchonError
from archonctl.foreign.importing import Imported, import_starts
from archonctl.foreign.writing import write_new
from archonctl.plan.build import plan_endpoint
from archonctl.release.render import command_of, render_release

DIGEST = "sha256:" + "b" * 64
VERSIONS = {"llamacpp": "b11434", "vllm": "0.9.2", "sglang": "0.5.3", "radiance": "1.8.1"}
MODELS = {"llamacpp": "/models/a b.gguf", "vllm": "/models/qwen", "sglang": "/models/qwen", "radiance": "/models/m.rad"}


def one(source: Path | str, **more: Any) -> Imported:
    (found,) = import_starts(str(source), **more)
    return found


def reasons(found: Imported) -> str:
    return "\n".join(f"{each.text}: {each.reason}" for each in found.unread)


def load(found: Imported, folder: Path) -> Endpoint:
    """The text of an import, loaded as any declaration."""
    path = folder / "imported" / f"{found.name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(found.text)
    return load_endpoint(path, {}, {}).endpoint


KNOBS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "llamacpp": {"threads": st.integers(1, 64), "gpu-layers": st.integers(0, 99), "jinja": st.just(True)},
    "sglang": {
        "mem-fraction-static": st.sampled_from([0.8, 0.85]),
        "tp-size": st.integers(2, 8),
        "trust-remote-code": st.just(True),
    },
    "vllm": {
        "tensor-parallel-size": st.integers(2, 8),
        "seed": st.integers(0, 9),
        "enable-prefix-caching": st.just(True),
    },
    "radiance": {"tp": st.integers(1, 4), "host-pool-mib": st.integers(0, 60_000), "prefill-interleave": st.just(4)},
}
DTYPES = {
    "llamacpp": ["f16", "q8_0", "q8_0/q4_0"],
    "sglang": ["f16", "fp8_e4m3"],
    "vllm": ["f16", "fp8"],
    "radiance": ["fp8", "bf16"],
}


@st.composite
def declarations(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(KNOBS)))
    image = draw(st.booleans())
    programs = {
        "llamacpp": "/opt/llama/llama-server",
        "sglang": "/opt/sgl/bin/python",
        "vllm": "/v/bin/vllm",
        "radiance": "/opt/radiance",
    }
    engine: dict[str, Any] = {
        "kind": kind,
        "version": VERSIONS[kind],
        "knobs": draw(st.fixed_dictionaries({}, optional=KNOBS[kind])),
    }
    engine |= {"image": f"registry.example/{IMAGES[kind]}@{DIGEST}"} if image else {"binary": programs[kind]}
    engine["env"] = draw(st.dictionaries(st.sampled_from(["OMP_NUM_THREADS", "HIP_VISIBLE_DEVICES"]), st.just("0,1")))
    model = MODELS[kind] if not image else MODELS[kind].replace(" ", "-")
    data: dict[str, Any] = {
        "contract": {
            "seqs": draw(st.integers(1, 64)),
            "len": draw(st.integers(1, 512)) * 256,
            "kv_dtype": draw(st.sampled_from(DTYPES[kind])),
        },
        "engine": engine,
        "model": {"path": model, **draw(st.sampled_from([{}, {"served_name": "chat"}]))},
        "service": {"listen": draw(st.sampled_from(["127.0.0.1:8000", "[::1]:9001", "0.0.0.0:8100"]))},
    }
    if image:
        data["container"] = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "gpus": st.sampled_from(["all", "0,1"]),
                    "shm": st.sampled_from(["8g"]),
                    "stop_s": st.integers(1, 600),
                    "groups": st.just([39, 105]),
                    "options": st.just(["--cpuset-cpus=0-3"]),
                },
            )
        )
    return data


IMAGES = {"llamacpp": "llama.cpp", "sglang": "sglang", "radiance": "radiance", "vllm": "vllm-openai"}
FORMS = ["start", "unit", "quadlet", "run-docker", "run-podman", "folder"]


def rendered(data: dict[str, Any], folder: Path, form: str) -> Path:
    """A declaration, rendered; the file of one form of it."""
    import tomli_w

    path = folder / "env" / "box.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(tomli_w.dumps(data))
    loaded = load_endpoint(path, {}, {})
    home = folder / "release"
    home.mkdir(exist_ok=True)
    release = render_release(loaded, command_of(loaded), home=home)
    for name, file in release.files.items():
        (home / name).write_bytes(file.content)
    name = {"unit": "archon-box.service", "quadlet": "box.container", "folder": "."}.get(form, form)
    return home / name


def comparable(endpoint: Endpoint) -> dict[str, Any]:
    """What a command line can carry: no host, no identity of the file, no margin."""
    value = endpoint.model_dump(exclude={"host", "boot", "predict"})
    value["contract"].pop("margin")
    value["engine"].pop("version")
    for key in ("load_timeout_s", "user"):
        value["service"].pop(key)
    value["container"].pop("runtime")
    for key in ("bytes", "sha256", "manifest"):
        value["model"].pop(key)
    return value


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=declarations(), form=st.sampled_from(FORMS))
def test_what_is_rendered_comes_back_as_it_was_declared(tmp_path: Path, data: dict[str, Any], form: str) -> None:
    if form in ("quadlet", "run-docker", "run-podman") and "image" not in data["engine"]:
        form = "start"
    source = rendered(data, tmp_path, form)
    found = one(source, version=VERSIONS[data["engine"]["kind"]])
    assert comparable(load(found, tmp_path)) == comparable(Endpoint.model_validate(data)), reasons(found)


def test_the_archon_endpoint_comes_back_from_its_quadlet(tmp_path: Path, repository: Path) -> None:
    loaded = load_endpoint(repository / "env/archon.toml", {}, {})
    release = render_release(loaded, command_of(loaded))
    path = tmp_path / "archon.container"
    path.write_bytes(release.files["archon.container"].content)
    again = load(one(path, version="1.8.1"), tmp_path)
    declared = loaded.endpoint
    # prefill-interleave 0 means that the flag is absent, so its absence means it too
    knobs = {key: value for key, value in declared.engine.knobs.items() if key != "prefill-interleave"}
    kept = {key: value for key, value in again.engine.knobs.items() if key in knobs}
    assert kept | {"busy-prefill-chunk": "auto"} == knobs
    assert again.engine.mounts == declared.engine.mounts
    assert again.contract.model_dump(exclude={"margin"}) == declared.contract.model_dump(exclude={"margin"})
    assert again.service.load_timeout_s == 900


COMPOSE = """\
services:
  chat:
    image: vllm/vllm-openai:v0.9.2
    command: >
      --model Qwen/Qwen3-8B --max-model-len 32k --max-num-seqs 8
      --gpu-memory-utilization 0.85 --api-key s3cret-value
    ports: ["127.0.0.1:8000:8000"]
    environment:
      HUGGING_FACE_HUB_TOKEN: hf_s3cret-value
      VLLM_LOGGING_LEVEL: ${LEVEL:-INFO}
      EMPTY:
    ipc: host
    deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["0", "1"], capabilities: [gpu]}]}}}
  web:
    image: nginx:1
"""


def test_a_compose_service_becomes_a_declaration_and_secrets_stay_where_they_are(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE)
    found = one(path)
    assert found.name == "chat"
    assert "s3cret" not in found.text
    assert "s3cret" not in reasons(found)
    endpoint = load(found, tmp_path)
    assert (endpoint.contract.seqs, endpoint.contract.len) == (8, 32_000)
    assert (endpoint.engine.version, endpoint.engine.image) == ("0.9.2", "vllm/vllm-openai:v0.9.2")
    assert endpoint.engine.env == {"VLLM_LOGGING_LEVEL": "INFO"}
    assert endpoint.model.path == "Qwen/Qwen3-8B"
    assert endpoint.service.listen == "127.0.0.1:8000"
    assert (endpoint.container.gpus, endpoint.container.network) == ("0,1", "bridge")
    said = reasons(found)
    for word in ("--api-key", "HUGGING_FACE_HUB_TOKEN", "EMPTY", "not pinned", "web"):
        assert word in said


SCRIPT = """\
#!/bin/bash
set -euo pipefail
MODEL=${MODEL:-/models/qwen.gguf}
ARGS=(--model "$MODEL" -c 32768 -np 4 --port "${PORT:-8080}")
if [[ ${MLOCK:-0} = 1 ]]; then
  ARGS+=(--mlock)
fi
export OMP_NUM_THREADS=8
touch "$PWD/canary"
exec numactl --cpunodebind 0 /opt/llama/llama-server "${ARGS[@]}" -t "$(nproc)" 2>&1
"""


def test_a_start_script_is_read_and_never_run(tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    path.write_text(SCRIPT)
    found = one(path, version="b11434")
    assert not (tmp_path / "canary").exists()
    endpoint = load(found, tmp_path)
    assert (endpoint.contract.seqs, endpoint.contract.len) == (4, 8192)
    assert endpoint.engine.binary == "/opt/llama/llama-server"
    assert endpoint.engine.env == {"OMP_NUM_THREADS": "8"}
    assert endpoint.service.listen == "127.0.0.1:8080"
    assert "threads" not in endpoint.engine.knobs
    said = reasons(found)
    assert "$(nproc) is not known from the file alone" in said
    assert "the default of MODEL is taken" in said


def test_a_unit_is_read_with_its_drop_ins_and_environment_files(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    (folder / "llm.service.d").mkdir(parents=True)
    env = tmp_path / "llm.env"
    env.write_text('PORT=8123\nLLAMA_ARG_THREADS=6\n# note\nQUOTED="a b"\n')
    (folder / "llm.service").write_text(
        "[Service]\nUser=llm\nEnvironment=CTX=16384\n"
        f"EnvironmentFile={env}\nEnvironmentFile=-/nowhere\nExecStartPre=/bin/true\nCPUAffinity=0-3\nTimeoutStartSec=10min\n"
        "ExecStart=/usr/bin/llama-server --model /models/a.gguf \\\n  --port ${PORT} -c $CTX -np 2\n"
    )
    (folder / "llm.service.d/10.conf").write_text("[Service]\nUser=other\n")
    found = one("llm", root=tmp_path, version="b11434")
    endpoint = load(found, tmp_path)
    assert (endpoint.service.listen, endpoint.service.user) == ("127.0.0.1:8123", "other")
    assert endpoint.service.load_timeout_s == 600
    assert (endpoint.contract.seqs, endpoint.contract.len) == (2, 8192)
    assert endpoint.engine.knobs["threads"] == 6
    said = reasons(found)
    assert "ExecStartPre" in said
    assert "CPUAffinity" in said
    assert "nowhere" not in said


def test_a_running_process_is_read_from_proc(tmp_path: Path) -> None:
    words = ["llama-server", "--model", "/models/x y.gguf", "-c", "8192", "-np", "2", "--port", "8111"]
    code = "import time; print('up', flush=True); time.sleep(60)"
    run = ["bash", "-c", 'exec -a llama-server "$0" "$@"', sys.executable, "-c", code]
    with subprocess.Popen(run, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            with pytest.raises(ArchonError) as refused:
                import_starts(str(process.pid), root=tmp_path)  # another root: there is no such process
            assert refused.value.code == "process-unreadable"
            assert one(str(process.pid), version="b11434").name == f"pid-{process.pid}"
        finally:
            process.kill()
    folder = tmp_path / "proc" / "77"
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")
    (folder / "environ").write_bytes(b"PATH=/bin\0HOME=/root\0CUDA_VISIBLE_DEVICES=1\0HF_TOKEN=s3cret\0")
    (folder / "status").write_text("Name:\tx\nUid:\t0\t0\t0\t0\n")
    (folder / "cgroup").write_text("0::/system.slice/chat.service\n")
    (folder / "exe").symlink_to("/opt/llama/llama-server")
    endpoint = load(found := one("77", root=tmp_path, version="b11434"), tmp_path)
    assert endpoint.engine.binary == "/opt/llama/llama-server"
    assert endpoint.engine.env == {"CUDA_VISIBLE_DEVICES": "1"}
    assert endpoint.model.path == "/models/x y.gguf"
    assert "s3cret" not in found.text
    assert "chat.service" in reasons(found)


def test_the_result_plans(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "docker run --gpus all -v /srv/models:/m ghcr.io/ggml-org/llama.cpp:server-b6000 -m /m/x.gguf -c 4096\n"
    )
    found = one(path)
    out = write_new(tmp_path / "out.toml", {found.name: found.text})[found.name]
    loaded = load_endpoint(out, {}, {})
    assert loaded.endpoint.model.path == "/srv/models/x.gguf"
    with pytest.raises(ArchonError) as missing:
        plan_endpoint(loaded)  # the law needs the header, and the model is not on this machine
    assert missing.value.code == "model-missing"


def test_a_placeholder_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("vllm serve /models/q\n")
    found = one(path)
    assert "contract.seqs" in reasons(found)
    assert "contract.len" in reasons(found)
    assert "engine.version" in reasons(found)
    # what the engine would do without the flag stays as it is
    assert tomllib.loads(found.text)["engine"]["knobs"]["max-num-seqs"] == 256


def test_a_folder_gives_every_engine_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("llama-server -m /m/a.gguf -c 4096 -np 1\n")
    (tmp_path / "b.container").write_text(
        "[Container]\nImage=x/radiance:1.8.1\nExec=--model /m/b.rad --max-model-len 4096\n"
    )
    (tmp_path / "notes.sh").write_text("echo hello\n")
    found = import_starts(str(tmp_path))
    assert [each.name for each in found] == ["a", "b"]
    written = write_new(tmp_path / "out", {each.name: each.text for each in found})
    assert sorted(path.name for path in written.values()) == ["a.toml", "b.toml"]
    with pytest.raises(ArchonError) as refused:
        write_new(tmp_path / "out", {"a": "x"})
    assert refused.value.code == "import-out-exists"
    with pytest.raises(ArchonError) as named:
        import_starts(str(tmp_path), name="x")
    assert named.value.code == "import-name-ambiguous"


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.sh", "echo nothing\n", "import-nothing-found"),
        ("a.sh", "", "import-nothing-found"),
        ("a.service", "[Service]\nExecStart=/bin/true\n", "import-nothing-found"),
        ("a.container", "[Container]\nExec=x\n", "import-nothing-found"),
        ("a.yml", "a: [", "foreign-file-malformed"),
        ("a.yml", "a: b", "foreign-file-malformed"),
        ("a.yml", "services:\n  a: {image: [1]}\n", "import-nothing-found"),
        ("a.yml", "[" * 5000, "foreign-file-malformed"),
        ("a.sh", "x\0y", "foreign-file-not-text"),
    ],
)
def test_what_starts_nothing_is_refused(tmp_path: Path, name: str, text: str, code: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ArchonError) as refused:
        import_starts(str(path))
    assert refused.value.code == code


def test_a_pipe_and_a_missing_file_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.sh")
    for name in ("p.sh", "missing.sh"):
        with pytest.raises(ArchonError) as refused:
            import_starts(str(tmp_path / name))
        assert refused.value.code == "foreign-file-unreadable"


def test_aliases_of_yaml_are_not_multiplied(tmp_path: Path) -> None:
    bomb = "x0: &x0 [a, a]\n" + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 30))
    path = tmp_path / "c.yml"
    path.write_text(bomb + "services:\n  a: {image: 'ghcr.io/x/llama.cpp:server-b6000', command: *x29, labels: *x29}\n")
    assert len(one(path).text) < 100_000


ALPHABET = st.sampled_from(
    [*"ab-= \n\t'\"\\$`{}()[]<>|&;#!*?%@:,./0~", "llama-server ", "vllm serve ", "docker run ", "-c 1 "]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    text=st.lists(ALPHABET, max_size=60).map("".join),
    name=st.sampled_from(["a.sh", "a.service", "a.container", "a.yml"]),
)
def test_anything_is_read_or_refused_in_one_sentence(tmp_path: Path, text: str, name: str) -> None:
    head = {
        "a.service": "[Service]\nExecStart=",
        "a.container": "[Container]\nImage=x/radiance:1.8.1\nExec=",
        "a.yml": "services:\n  a:\n    image: vllm/vllm-openai:v1\n    command: ",
    }
    path = tmp_path / name
    path.write_text(head.get(name, "") + text)
    try:
        found = import_starts(str(path))
    except ArchonError:
        return
    for each in found:
        Endpoint.model_validate(tomllib.loads(each.text))


def test_no_value_of_an_unknown_flag_and_nothing_like_a_key_is_shown(tmp_path: Path) -> None:
    script = tmp_path / "v.sh"
    line = "exec vllm serve m --frobnicate hunter2 sk-4242424242 --max-num-seqs 4 hf_abcdef123 http://u:pass@h/x"
    script.write_text(f"#!/bin/sh\n{line}\n")
    found = one(script, version="0.32.0")
    assert not any(text in found.text for text in ("hunter2", "sk-4242424242", "hf_abcdef123", "u:pass"))
    assert "--frobnicate" in found.text
