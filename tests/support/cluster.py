"""A declaration for a cluster, its manifests read back, and a cluster's API as far as a sidecar uses it."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trustme
import yaml

from archonctl.deployment.load import load_endpoint
from archonctl.fleet.kubernetes.render import render_kubernetes
from archonctl.release.values import Release

REPOSITORY = Path(__file__).parents[2]
DIGEST = "sha256:" + "ab" * 32
Manifest = dict[str, Any]

TEXTS = {
    "radiance": '[engine]\nkind = "radiance"\nversion = "1.8.1"\n[model]\npath = "/models/m.rad"\n'
    f'manifest = "{REPOSITORY}/env/models/qwen3.8-next-flash.toml"\n'
    f'[host]\nprofile = "{REPOSITORY}/env/hosts/archon.toml"\n',
    "vllm": '[engine]\nkind = "vllm"\nversion = "0.32.0"\n[model]\npath = "/models/qwen3-8b"\n',
    "sglang": '[engine]\nkind = "sglang"\nversion = "0.5.3"\n[model]\npath = "/models/qwen3-8b"\n',
    "llamacpp": '[engine]\nkind = "llamacpp"\nversion = "b11434"\n[model]\npath = "/models/m.gguf"\n',
}


def rendered(folder: Path, kind: str = "vllm", more: str = "", name: str = "box", **flags: object) -> Release:
    """The bundle of one endpoint; ``flags`` are dotted keys with ``__`` for the dot."""
    path = folder / "env" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    text = TEXTS[kind].replace("[model]", f'image = "registry.example/{kind}@{DIGEST}"\n[model]\nbytes = 1_073_741_824')
    dtype = "fp8" if kind == "radiance" else "f16"
    path.write_text(f'[contract]\nseqs = 2\nlen = 4096\nkv_dtype = "{dtype}"\n{text}{more}')
    given: dict[str, object] = {
        "kubernetes.controller_image": f"registry.example/archonctl@{DIGEST}",
        **{key.replace("__", "."): value for key, value in flags.items()},
    }
    return render_kubernetes(load_endpoint(path, given, {}, cwd=folder))[0]


def manifests(release: Release) -> list[Manifest]:
    """Every object of a bundle but the kustomization."""
    return [
        document
        for file, content in release.files.items()
        if file.endswith(".yaml") and file != "kustomization.yaml"
        for document in yaml.safe_load_all(content.content)
    ]


def of_kind(release: Release, kind: str) -> list[Manifest]:
    """The objects of one kind."""
    return [each for each in manifests(release) if each["kind"] == kind]


def expanded(words: list[str], env: dict[str, str]) -> list[str]:
    """``args`` as the kubelet expands them (third_party/forked/golang/expansion of Kubernetes)."""
    return [_expanded(word, env) for word in words]


def _expanded(word: str, env: dict[str, str]) -> str:
    found, at = "", 0
    while at < len(word):
        if word[at] != "$" or at + 1 == len(word):
            found, at = found + word[at], at + 1
        elif word[at + 1] == "(" and (end := word.find(")", at)) > 0:
            name = word[at + 2 : end]
            found, at = found + env.get(name, f"$({name})"), end + 1
        else:
            found, at = found + ("$" if word[at + 1] == "$" else word[at : at + 2]), at + 2
    return found


def as_config_map(data: dict[str, str], folder: Path) -> Path:
    """The data of a ConfigMap as a kubelet mounts it: links to plain files behind ``..data``."""
    behind = folder / "..2026_01_01"
    behind.mkdir(parents=True)
    (folder / "..data").symlink_to(behind.name)
    for name, text in data.items():
        (behind / name).write_text(text, encoding="utf-8")
        (folder / name).symlink_to(f"..data/{name}")
    return folder


@contextmanager
def cluster_api(folder: Path, log: Path, token: str = "t0ken") -> Iterator[dict[str, str]]:
    """An API that serves one pod's log, with its own certificates; gives the variables of the pod.

    ``folder`` gets what a pod's service account has.
    """
    authority = trustme.CA()
    folder.mkdir(parents=True)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    (folder / "token").write_text(token)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            where = urlsplit(self.path)
            sound = self.headers["Authorization"] == f"Bearer {token}"
            asked = parse_qs(where.query).get("container") == ["engine"]
            known = where.path == "/api/v1/namespaces/llm/pods/box-0/log" and asked
            body = log.read_bytes() if sound and known else b'{"kind":"Status","status":"Failure"}'
            self.send_response(403 if not sound else 200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT_HTTPS": str(server.server_port),
            "POD_NAMESPACE": "llm",
            "POD_NAME": "box-0",
        }
    finally:
        server.shutdown()
        server.server_close()
