"""Kubernetes manifests in the gate: retired flags with their place, limits and probes that end a load."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archonctl.errors import UsageError
from archonctl.foreign.manifest import read_manifest
from archonctl.gate.foreign_files import manifest_findings
from archonctl.gate.paths import Options, check_paths
from archonctl.gate.source import Source
from support.cluster import rendered

DIGEST = "sha256:" + "ab" * 32
BAD = f"""\
apiVersion: v1
kind: ConfigMap
metadata: {{name: other}}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      initContainers: [{{name: wait, image: busybox}}]
      containers:
        - name: engine
          image: vllm/vllm-openai@{DIGEST}
          command: ["vllm", "serve"]
          args: ["/models/m", "--max-model-len", "$(LEN)", "--disable-log-requests", "--host=$(POD_IP)"]
          env:
            - {{name: LEN, value: "4096"}}
            - {{name: POD_IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
          livenessProbe: {{httpGet: {{path: /health, port: 8000}}}}
          resources: {{limits: {{memory: 64Gi}}}}
"""


def gated(tmp_path: Path, text: str) -> dict[str, int]:
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    report = check_paths([path], Options(engine="vllm", engine_version="0.32.0"))
    return {each.code: each.place.line for each in report.findings}


def test_what_is_wrong_in_a_manifest_is_found_where_it_stands(tmp_path: Path) -> None:
    found = gated(tmp_path, BAD)
    assert found["knob-retired"] == 15
    assert found["manifest-liveness-load"] == 19
    assert found["container-memory-limit"] == 20


def test_a_startup_probe_gives_the_load_its_time(tmp_path: Path) -> None:
    text = BAD.replace("livenessProbe", "startupProbe: {httpGet: {path: /, port: 1}}\n          livenessProbe")
    assert "manifest-liveness-load" not in gated(tmp_path, text)


def test_references_are_filled_from_the_containers_own_values() -> None:
    engine = read_manifest(BAD, "x")[1]
    assert engine.command.argv[3:5] == ("--max-model-len", "4096")
    assert engine.command.words[-1].unresolved == ("$(POD_IP)",)


def test_what_is_rendered_passes_and_is_counted_as_one_engine(tmp_path: Path) -> None:
    more = '[kubernetes]\nmemory_mib = 1\n[kubernetes.volumes]\n"/models/qwen3-8b" = "pvc:m"\n'
    text = rendered(tmp_path, "vllm", more).files["workload.yaml"].content.decode()
    path = tmp_path / "workload.yaml"
    findings, engines = manifest_findings(Source(path=path, shown="workload.yaml", text=text))
    assert engines == 1
    assert [each for each in findings if each.severity == "error"] == []


@given(st.text(alphabet="ab:-[]{}&*<\n \t$()'\"0", max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        read_manifest(f"kind: Pod\nspec:\n  containers:\n{text}", "x")


def test_aliases_of_aliases_end() -> None:
    lines = ["a0: &a0 {containers: [{image: x}]}"] + [
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)
    ]
    assert len(read_manifest("\n".join(lines), "x")) < 20_000
    with pytest.raises(UsageError):
        read_manifest("[" * 5000, "x")
