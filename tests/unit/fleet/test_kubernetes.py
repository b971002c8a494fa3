"""A release in a cluster: by published schemas of three minor versions, in the same words, with the least rights."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from archonctl.deployment.cluster import Cluster
from archonctl.deployment.load import load_endpoint
from archonctl.engines.container import run_argv
from archonctl.errors import ArchonError
from archonctl.fleet.kubernetes.containers import PREFLIGHT
from archonctl.fleet.kubernetes.need import in_pod
from archonctl.fleet.kubernetes.text import documents
from archonctl.release.load import load_release
from archonctl.release.render import command_of
from support.cluster import DIGEST, Manifest, as_config_map, expanded, manifests, of_kind, rendered

MINORS = ("1.35", "1.36", "1.37")
GOLDEN = Path(__file__).parents[2] / "golden"
RADIANCE = '[kubernetes.volumes]\n"/models" = "pvc:models/rad"\n[engine.knobs]\ntp = 2\nhost-pool-mib = 1024\n'
VLLM = f'[kubernetes.volumes]\n"/models/qwen3-8b" = "image:registry.example/qwen3@{DIGEST}"\n'
FROM_HOST = '[kubernetes.volumes]\n"/models" = "hostPath"\n'
LARGE = f"[engine.env]\nA = '{'x' * 600_000}'\n"
SPREAD = "[engine.knobs]\ntensor-parallel-size = 8\npipeline-parallel-size = 2\n"

TWO: dict[str, object] = {"kubernetes__nodes": 2, "kubernetes__memory_mib": 9, "container__gpus": "all"}
CASES: dict[str, tuple[str, str, dict[str, object]]] = {
    "a Deployment that pins memory": ("radiance", RADIANCE + "[container]\ngroups = [44, 992]\n", {}),
    "cards of NVIDIA, a volume from an image": (
        "vllm",
        VLLM,
        {"container__gpus": "0,1", "kubernetes__memory_mib": 4096, "kubernetes__spare_card": True},
    ),
    "replicas, everything that can be declared": (
        "vllm",
        VLLM + '"/root/.cache" = "emptyDir:10Gi"\n"/extra" = "hostPath"\n[kubernetes.secrets]\n'
        'VLLM_API_KEY = "keys/vllm"\n[kubernetes.node_selector]\n"gpu.example/kind" = "1e3"\n'
        '[[kubernetes.tolerations]]\nkey = "gpu"\neffect = "NoSchedule"\n[engine.env]\nA = "on"\n'
        '[container]\ngpus = "all"\nshm = "16g"\noptions = ["--cpuset-cpus=0-3"]\n',
        {
            "kubernetes__replicas": 3,
            "kubernetes__memory_mib": 4096,
            "kubernetes__memory_limit_mib": 8192,
            "kubernetes__hugepages_2mi_mib": 64,
            "kubernetes__runtime_class": "nvidia",
            "kubernetes__priority_class": "serving",
            "kubernetes__namespace": "llm",
            "kubernetes__monitoring": False,
        },
    ),
    "a StatefulSet, with a key in a file": (
        "llamacpp",
        '[kubernetes.volumes]\n"/models" = "template:64Gi:fast"\n[kubernetes.secrets]\n"/etc/key" = "keys/box"\n',
        {"kubernetes__memory_mib": 2048, "service__api_key_file": "/etc/key"},
    ),
    "vLLM over two nodes": (
        "vllm",
        VLLM + SPREAD,
        {"kubernetes__nodes": 2, "kubernetes__memory_mib": 9, "container__gpus": "all"},
    ),
    "SGLang over two nodes": ("sglang", VLLM + "[engine.knobs]\ntp-size = 16\n", TWO),
}


@cache
def crd(kind: str) -> Any:
    """A published schema that takes no field it does not know, which the API server would drop in silence."""
    return _closed(json.loads((GOLDEN / "crds" / f"{kind.lower()}.json").read_text()), root=True)


@cache
def validator(minor: str, kind: str) -> jsonschema.Draft202012Validator:
    """Of a kind as a minor version publishes it; it takes no field that it does not know."""
    published = json.loads((GOLDEN / "kubernetes" / f"{minor}.json").read_text())
    return jsonschema.Draft202012Validator({**published["kinds"][kind], "$defs": published["$defs"]})


def _closed(schema: Any, root: bool = False) -> Any:
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in schema.items()}
    if (
        isinstance(found.get("properties"), dict)
        and not root
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        found.setdefault("additionalProperties", False)
    if "pattern" in found:
        found["pattern"] = found["pattern"].replace("^(?i)", "(?i)^")
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found


def check(manifest: Manifest) -> None:
    """By the schemas of every minor version; a custom resource by its own, and its pods by theirs."""
    if manifest["kind"] in ("LeaderWorkerSet", "ServiceMonitor", "PrometheusRule"):
        body = {**manifest, "metadata": {}}
        # not checked for being a schema itself: its patterns are those of Go
        errors = [each.message for each in jsonschema.Draft202012Validator(crd(manifest["kind"])).iter_errors(body)]
        assert errors == []
        return
    for minor in MINORS:
        errors = validator(minor, f"{manifest['apiVersion']} {manifest['kind']}").iter_errors(manifest)
        assert [f"{minor} {each.json_path}: {each.message}" for each in errors] == []


def test_the_schemas_take_nothing_that_they_do_not_know(tmp_path: Path) -> None:
    (found,) = of_kind(rendered(tmp_path, "radiance", RADIANCE), "Deployment")
    for place in (found, found["spec"], pod := found["spec"]["template"]["spec"], pod["containers"][0]):
        place["surprise"] = 1
        with pytest.raises(AssertionError, match="surprise"):
            check(found)
        del place["surprise"]
    pod["containers"][0]["startupProbe"]["failureThreshold"] = "9"
    with pytest.raises(AssertionError, match="failureThreshold"):
        check(found)


@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid_in_three_minor_versions(tmp_path: Path, case: str) -> None:
    kind, more, flags = CASES[case]
    for manifest in manifests(rendered(tmp_path, kind, more, **flags)):
        # what stands beside the workload is the same but for its names: once is enough
        if "memory" in case or manifest["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet"):
            check(manifest)


@pytest.mark.parametrize("case", CASES)
def test_the_pod_runs_the_very_words_and_variables_of_the_release(tmp_path: Path, case: str) -> None:
    kind, more, flags = CASES[case]
    bundle = rendered(tmp_path, kind, more, **flags)
    given: dict[str, object] = {key.replace("__", "."): value for key, value in flags.items()}
    endpoint = load_endpoint(tmp_path / "env/box.toml", given, {}, cwd=tmp_path)
    spec = command_of(in_pod(endpoint)).container
    assert spec is not None
    engine = engine_of(bundle)
    assert [*engine.get("command", []), *expanded(engine["args"], {})][
        : len(spec.arguments) + bool(spec.entrypoint)
    ] == [
        *([spec.entrypoint] if spec.entrypoint else []),
        *spec.arguments,
    ]
    assert engine["image"] == spec.image
    assert run_argv(spec, "podman")[-len(spec.arguments) :] == spec.arguments
    config, *envs = of_kind(bundle, "ConfigMap")
    assert [each["data"] for each in envs] == (
        [dict(endpoint.endpoint.engine.env)] if endpoint.endpoint.engine.env else []
    )
    stored = load_release(as_config_map(config["data"], tmp_path / "mounted") / "..data")
    assert stored.digest == config["metadata"]["annotations"]["archonctl/release"]
    assert config["metadata"]["name"] == f"box-release-{stored.digest[:16]}"


def pod_of(bundle: Any) -> Manifest:
    """The pod that answers."""
    for kind in ("Deployment", "StatefulSet"):
        for each in of_kind(bundle, kind):
            spec: Manifest = each["spec"]["template"]["spec"]
            return spec
    (group,) = of_kind(bundle, "LeaderWorkerSet")
    leader: Manifest = group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]
    return leader


def engine_of(bundle: Any) -> Manifest:
    (found,) = pod_of(bundle)["containers"]
    engine: Manifest = found
    return engine


def test_a_change_is_another_config_map_and_nothing_else_gives_another_byte(tmp_path: Path) -> None:
    one, same = rendered(tmp_path, "radiance", RADIANCE), rendered(tmp_path, "radiance", RADIANCE)
    assert {name: file.content for name, file in one.files.items()} == {n: f.content for n, f in same.files.items()}
    other = rendered(tmp_path, "radiance", RADIANCE, contract__len=4097)
    assert of_kind(one, "ConfigMap")[0]["metadata"]["name"] != of_kind(other, "ConfigMap")[0]["metadata"]["name"]


def test_how_it_is_placed_in_a_cluster_is_no_other_release(tmp_path: Path) -> None:
    """More replicas must not replace those that run, nor a unit's engine start anew."""
    (one,), (three,) = (
        of_kind(rendered(tmp_path, "radiance", RADIANCE, kubernetes__replicas=count), "Deployment") for count in (1, 3)
    )
    assert three["spec"]["replicas"] == 3
    assert one["spec"]["template"]["metadata"]["annotations"] == three["spec"]["template"]["metadata"]["annotations"]
    declared = json.loads(
        of_kind(rendered(tmp_path, "vllm", VLLM, kubernetes__memory_mib=9), "ConfigMap")[0]["data"]["declaration.json"]
    )
    assert {"kubernetes", "tiers"}.isdisjoint(declared["declared"])
    assert not [key for key in declared["origins"] if key.startswith("kubernetes")]


def test_only_the_file_of_the_limit_is_writable_and_no_capability_is_held(tmp_path: Path) -> None:
    pod = pod_of(rendered(tmp_path, "radiance", RADIANCE))
    preflight, inside, sidecar = pod["initContainers"]
    for each in (preflight, inside, sidecar, *pod["containers"]):
        context = each["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
        assert not context.get("privileged")
        assert (context.get("runAsNonRoot") is True) == (each is not preflight)
    assert [each["mountPath"] for each in preflight["volumeMounts"] if not each.get("readOnly")] == [
        "/sys/module/ttm/parameters"
    ]
    assert [each["hostPath"] for each in pod["volumes"] if "hostPath" in each] == [
        {"path": "/sys/module/ttm/parameters", "type": "Directory"}
    ]
    assert pod["automountServiceAccountToken"] is False
    holders = [
        each["name"]
        for each in (*pod["initContainers"], *pod["containers"])
        if "api" in {m["name"] for m in each["volumeMounts"]}
    ]
    assert holders == ["verdict"]
    assert of_kind(rendered(tmp_path, "radiance", RADIANCE), "Role")[0]["rules"] == [
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
    ]


def test_the_node_is_checked_only_where_the_endpoint_needs_something_of_it(tmp_path: Path) -> None:
    names = [
        each["name"] for each in pod_of(rendered(tmp_path, "vllm", VLLM, kubernetes__memory_mib=1))["initContainers"]
    ]
    assert names == ["verdict"]


def test_the_verdict_is_the_startup_probe_and_nothing_kills_an_engine_that_loads(tmp_path: Path) -> None:
    engine = engine_of(rendered(tmp_path, "radiance", RADIANCE, service__load_timeout_s=900))
    assert engine["startupProbe"]["httpGet"] == {"path": "/startup", "port": 9488}
    assert engine["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 9488}
    assert "livenessProbe" not in engine
    # the load, and at least ten minutes for the probe
    assert engine["startupProbe"]["failureThreshold"] * engine["startupProbe"]["periodSeconds"] == 900 + 600
    assert "memory" not in engine["resources"]["limits"]
    assert engine["resources"]["limits"]["amd.com/gpu"] == "2"


@pytest.mark.parametrize(
    ("flags", "strategy"),
    [
        ({}, {"type": "Recreate"}),
        ({"kubernetes__replicas": 2}, {"maxSurge": 0, "maxUnavailable": 1}),
        ({"kubernetes__spare_card": True}, {"maxSurge": 1, "maxUnavailable": 0}),
    ],
)
def test_a_new_copy_never_needs_a_card_that_is_not_there(
    tmp_path: Path, flags: dict[str, object], strategy: dict[str, object]
) -> None:
    (found,) = of_kind(rendered(tmp_path, "radiance", RADIANCE, **flags), "Deployment")
    assert found["spec"]["strategy"].get("rollingUpdate", found["spec"]["strategy"]) == strategy


def test_nodes_are_told_their_rank_and_only_the_first_one_answers(tmp_path: Path) -> None:
    kind, more, flags = CASES["vLLM over two nodes"]
    bundle = rendered(tmp_path, kind, more, **flags)
    group = of_kind(bundle, "LeaderWorkerSet")[0]["spec"]["leaderWorkerTemplate"]
    env = {"LWS_LEADER_ADDRESS": "box-0.box", "LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": "1"}
    (worker,) = group["workerTemplate"]["spec"]["containers"]
    said = expanded(worker["args"], env)
    assert said[-9:] == [
        "--nnodes",
        "2",
        "--node-rank",
        "1",
        "--master-addr",
        "box-0.box",
        "--master-port",
        "29501",
        "--headless",
    ]
    assert "startupProbe" not in worker
    assert "initContainers" not in group["workerTemplate"]["spec"]
    assert (
        engine_of(bundle)["resources"]["limits"]["nvidia.com/gpu"]
        == worker["resources"]["limits"]["nvidia.com/gpu"]
        == "8"
    )
    chosen = {each["metadata"]["name"]: each["spec"]["selector"] for each in of_kind(bundle, "Service")}
    assert all(selector["archonctl/role"] == "leader" for selector in chosen.values())


def test_no_secret_is_in_any_file(tmp_path: Path) -> None:
    kind, more, flags = CASES["replicas, everything that can be declared"]
    engine = engine_of(rendered(tmp_path, kind, more, **flags))
    key = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "vllm"}}}
    assert key in engine["env"]
    text = more.replace('[engine.env]\nA = "on"', '[engine.env]\nA = "on"\nHF_TOKEN = "hf_secretsecretsecret"')
    with pytest.raises(ArchonError) as refused:
        rendered(tmp_path, kind, text, **flags)
    assert refused.value.code == "release-inline-secret"


@pytest.mark.parametrize(
    ("code", "kind", "more", "flags"),
    [
        ("kubernetes-image-missing", "vllm", VLLM, {"engine__image": "", "engine__binary": "/opt/vllm"}),
        ("kubernetes-image-missing", "vllm", VLLM, {"kubernetes__controller_image": ""}),
        ("kubernetes-name", "vllm", VLLM, {"name": "A_b"}),
        ("kubernetes-volume-missing", "vllm", "", {"kubernetes__memory_mib": 1}),
        ("kubernetes-memory-unknown", "llamacpp", FROM_HOST, {}),
        (
            "kubernetes-cards-unknown",
            "llamacpp",
            '[kubernetes.volumes]\n"/models" = "hostPath"\n[container]\ngpus = "all"\n',
            {},
        ),
        (
            "kubernetes-cards-unknown",
            "vllm",
            VLLM + '[container]\ndevices = ["/dev/dri"]\n',
            {"kubernetes__memory_mib": 1},
        ),
        ("container-memory-limit", "radiance", RADIANCE, {"kubernetes__memory_limit_mib": 1}),
        ("nodes-unsupported", "radiance", RADIANCE, {"kubernetes__nodes": 2}),
        ("nodes-unsupported", "vllm", VLLM + SPREAD, {"kubernetes__nodes": 2, "engine__version": "0.9.2"}),
        ("nodes-uneven", "vllm", VLLM + SPREAD, {"kubernetes__nodes": 3}),
        (
            "kubernetes-release-too-large",
            "vllm",
            VLLM + f"[engine.env]\nA = '{'x' * 600_000}'\n",
            {"kubernetes__memory_mib": 1},
        ),
    ],
)
def test_what_a_declaration_misses_is_refused(
    tmp_path: Path, code: str, kind: str, more: str, flags: dict[str, Any]
) -> None:
    with pytest.raises(ArchonError) as refused:
        rendered(tmp_path, kind, more, **flags)
    assert refused.value.code == code
    assert refused.value.hint
    assert refused.value.where


def test_the_images_script_is_the_one_that_ships(repository: Path) -> None:
    text = (repository / "packaging/Containerfile").read_text(encoding="utf-8")
    (code,) = re.findall(r"python -c '([^']+)'", text)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert os.access(Path(done.stdout.strip()) / "ttm-preflight.sh", os.X_OK)
    (place,) = re.findall(r"ttm-preflight.sh\" (/\S+)", text)
    assert place == PREFLIGHT


def test_every_key_is_explained(repository: Path) -> None:
    page = (repository / "docs/declaration.md").read_text(encoding="utf-8")
    part = page.split("## `[kubernetes]`")[1].split("\n## ")[0]
    missing = {key for key in Cluster.model_fields if f"`{key}`" not in part and f"[kubernetes.{key}]" not in part}
    assert not missing


def test_kustomize_builds_the_base(tmp_path: Path) -> None:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl: apt-get install kubernetes-client")
    bundle = rendered(tmp_path, "radiance", RADIANCE, kubernetes__namespace="llm")
    folder = tmp_path / "base"
    folder.mkdir()
    for name, file in bundle.files.items():
        (folder / name).write_bytes(file.content)
    done = subprocess.run([program, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    built = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)}
    for each in manifests(bundle):
        assert built[each["kind"], each["metadata"]["name"]] == each


TRAPS = [
    "on",
    "y",
    "NO",
    "1e3",
    "0x1f",
    "0o17",
    "010",
    "1:30",
    "1_000",
    "~",
    "null",
    ".inf",
    "=",
    "<<",
    "",
    " a",
    "a: b",
    "#a",
]


@given(st.lists(st.sampled_from(TRAPS) | st.text(), max_size=8))
def test_a_text_stays_a_text_in_every_reader(texts: list[str]) -> None:
    told = documents([{"value": texts, "more": {text: text for text in texts}}])
    assert yaml.safe_load(told) == {"value": texts, "more": {text: text for text in texts}}
    for trap in TRAPS:
        assert f"- {trap}\n" not in told or trap == ""
