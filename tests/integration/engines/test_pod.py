"""A pod without a cluster: the very words of its manifests, a real llama-server, the sidecar, and what probes hear."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archonctl.fleet.sidecar.answers import app, keep_looking
from archonctl.fleet.sidecar.pod_log import PodLog
from archonctl.fleet.sidecar.watch import Watch
from archonctl.observe.board import Board
from archonctl.observe.serve import serving_app
from archonctl.release.load import load_release
from support.cluster import Manifest, as_config_map, cluster_api, expanded, of_kind, rendered
from support.engines import wait_for

pytestmark = pytest.mark.engine

TinyGguf = Callable[..., Path]


class Pod:
    """The engine container of a Deployment as a process of this machine."""

    def __init__(self, workload: Manifest, program: Path, log: Path) -> None:
        (self.container,) = workload["spec"]["template"]["spec"]["containers"]
        self._program, self._log = program, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = expanded(self.container["args"], {})
        with self._log.open("wb") as file:  # a new start of a container is a new log
            self._process = subprocess.Popen([str(self._program), *words], stdout=file, stderr=file)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def ask(port: int, path: str) -> tuple[int, str]:
    """As a kubelet does."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as err:
        with err:
            return err.code, err.read().decode()


@contextlib.contextmanager
def sidecar(watch: Watch) -> Iterator[int]:
    stop, board = threading.Event(), Board()
    threads = [
        threading.Thread(target=watch.run, args=(stop,)),
        threading.Thread(target=keep_looking, args=(watch, board, stop, 0.2)),
    ]
    with serving_app(app(watch, board), "127.0.0.1", 0, "--listen") as port:
        for thread in threads:
            thread.start()
        try:
            yield port
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_startup_and_readiness_follow_the_verdict_on_each_start_of_the_engine(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path, free_port: int
) -> None:
    model = tiny_gguf("llama")
    bundle = rendered(
        tmp_path,
        "llamacpp",
        f'[kubernetes.volumes]\n"{model.parent}" = "pvc:models"\n',
        contract__len=256,
        model__path=str(model),
        model__bytes=model.stat().st_size,
        service__listen=f"127.0.0.1:{free_port}",
        engine__knobs__threads=1,
    )
    (workload,), config = of_kind(bundle, "Deployment"), of_kind(bundle, "ConfigMap")[0]
    release = load_release(as_config_map(config["data"], tmp_path / "mounted") / "..data")
    pod = Pod(workload, llama_server, tmp_path / "engine.log")
    probes = {name: pod.container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness")}
    with cluster_api(tmp_path / "account", tmp_path / "engine.log") as environ:
        engine = release.loaded.endpoint.engine
        log = PodLog.of("engine", environ, tmp_path / "account")
        watch = Watch(release, lambda: log.boot(engine.kind, engine.version), recheck_s=0)
        with sidecar(watch) as port:
            assert ask(port, probes["startup"]) == (503, "loading\n")
            try:
                pod.start()
                wait_for(lambda: ask(port, probes["startup"])[0] == 200, 120)
                assert ask(port, probes["readiness"]) == (200, "the contract holds\n")
                verdict = json.loads(ask(port, "/verdict")[1])
                assert (verdict["word"], verdict["release"]) == ("holds", release.digest)
                assert verdict["probe"]["facts"]["kv_tokens_logged"] >= 512
                wait_for(lambda: 'archon_verdict{endpoint="box",verdict="holds"} 1.0' in ask(port, "/metrics")[1], 120)
                assert 'archon_engine_requests_running{endpoint="box"} 0.0' in ask(port, "/metrics")[1]
                pod.stop()
                status, why = ask(port, probes["readiness"])
                assert status == 503, why
                pod.start()
                wait_for(lambda: watch.state.word != "holds", 60)
                assert ask(port, probes["startup"])[0] == 503, "an earlier start's verdict is not this one's"
                wait_for(lambda: ask(port, probes["readiness"])[0] == 200, 120)
            finally:
                pod.stop()


def test_a_start_that_does_not_hold_is_never_ready_and_says_why(
    llama_server: Path, tiny_gguf: TinyGguf, tmp_path: Path, free_port: int
) -> None:
    model = tiny_gguf("llama")
    bundle = rendered(
        tmp_path,
        "llamacpp",
        f'[kubernetes.volumes]\n"{model.parent}" = "pvc:models"\n',
        contract__len=1024,
        model__path=str(model),
        service__listen=f"127.0.0.1:{free_port}",
        **{"engine__knobs__ctx-size": 1024, "engine__knobs__threads": 1},
    )
    folder = as_config_map(of_kind(bundle, "ConfigMap")[0]["data"], tmp_path / "mounted")
    pod = Pod(of_kind(bundle, "Deployment")[0], llama_server, tmp_path / "engine.log")
    words = [sys.executable, "-m", "archonctl", "sidecar", str(folder), "--log", str(tmp_path / "engine.log"), "--once"]
    pod.start()
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    finally:
        pod.stop()
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("box: broken\n  ledger: the boot log says 1,024 KV tokens, the contract needs 2,048")


def test_the_sidecar_serves_until_it_is_told_to_end(tmp_path: Path, free_port: int) -> None:
    more = '[kubernetes]\nmemory_mib = 1\n[kubernetes.volumes]\n"/models/qwen3-8b" = "pvc:m"\n'
    bundle = rendered(tmp_path, "vllm", more, service__listen="127.0.0.1:1")  # where nothing listens
    folder = as_config_map(of_kind(bundle, "ConfigMap")[0]["data"], tmp_path / "mounted")
    words = [sys.executable, "-m", "archonctl", "sidecar", str(folder), "--listen", f"127.0.0.1:{free_port}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"archonctl: answers at 127.0.0.1 port {free_port}\n"
        assert ask(free_port, "/startup") == (503, "loading\n")
        assert ask(free_port, "/ready") == (503, "loading\n")
        assert ask(free_port, "/else")[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
