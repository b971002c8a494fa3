"""``archonctl tiers plan`` against a real llama-server that holds two conversations."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.engines import wait_for

pytestmark = pytest.mark.engine

DECLARATION = """
[contract]
seqs = 2
len = 1024
[engine]
kind = "llamacpp"
version = "b11434"
binary = {binary}
[engine.knobs]
threads = 1
cache-ram = 0
[model]
path = {model}
[host]
detect = true
[service]
listen = "127.0.0.1:{port}"
[tiers.dram]
capacity_mib = 16
[tiers.disk]
path = {disk}
capacity_mib = 16
"""


def test_the_slots_of_a_running_engine_are_weighed_by_its_own_figures(
    llama_server: Path, tiny_gguf: Any, free_port: int, tmp_path: Path, run_cli: Any
) -> None:
    model, path = tiny_gguf("llama"), tmp_path / "small.toml"
    words = {"binary": llama_server, "model": model, "disk": tmp_path}
    path.write_text(DECLARATION.format(port=free_port, **{key: json.dumps(str(value)) for key, value in words.items()}))
    argv = [llama_server, "-m", model, "--port", free_port, "-np", 2, "-c", 2048, "-t", 1, "--metrics", "--slots"]
    with (tmp_path / "log").open("wb") as out:
        engine = subprocess.Popen([str(word) for word in argv], stdout=out, stderr=subprocess.STDOUT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{free_port}", timeout=120) as http:
            wait_for(lambda: b"listening" in (tmp_path / "log").read_bytes(), seconds=180)
            for slot, words_ in ((0, "one two three"), (1, "some longer text " * 20)):
                body = {"prompt": words_, "n_predict": 4, "id_slot": slot, "cache_prompt": True}
                assert http.post("/completion", json=body).status_code == 200
            held = {each["id"]: each["n_prompt_tokens"] for each in http.get("/slots").json()}
        done = run_cli("tiers", "plan", path, "--json")
        text = run_cli("tiers", "plan", path)
    finally:
        engine.kill()
        engine.wait(120)
    assert done.code == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["live"]["prefill_tokens_per_s"] > 0
    assert value["unknown"] == []
    now = {each["conversation"]: each for each in value["now"]["decisions"]}
    assert {name: each["tokens"] for name, each in now.items()} == {f"slot {n}": tokens for n, tokens in held.items()}
    for each in now.values():
        assert each["bytes"] == round(each["tokens"] * value["kv"]["bytes_per_token"])
        assert each["recompute_s"] == pytest.approx(each["tokens"] / value["live"]["prefill_tokens_per_s"])
        assert set(each["round_trip_s"]) == {"dram", "disk"}
    first = value["arrival"]["decisions"][0]
    assert (first["conversation"], first["reason"]) == ("slot 0", "retain_cheaper"), "its request is the older one"
    assert [step["do"] for step in value["arrival"]["steps"]] == ["stage", "verify", "drop"]
    assert "demote to dram" in text.stdout

    gone = run_cli("tiers", "plan", path, "--json")
    assert gone.code == 3, "nothing answers, and nothing says how fast it prefills"
    assert json.loads(gone.stdout)["live"] is None
