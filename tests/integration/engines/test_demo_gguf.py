"""The small models that archonctl writes are models to the engine too: it loads them and answers from them."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from archonctl.model.demo_gguf import write_tiny_gguf
from support.tiny_gguf import ARCHITECTURES

pytestmark = pytest.mark.engine

TinyGguf = Callable[..., Path]


@contextmanager
def serving(binary: Path, model: Path, port: int, log: Path) -> Iterator[str]:
    """A running llama-server; yields its base URL once it is healthy."""
    command = [
        str(binary),
        "-m",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "-c",
        "1024",
        "-np",
        "1",
        "-t",
        "1",  # two would wait for each other by spinning, where something else runs too
    ]
    base = f"http://127.0.0.1:{port}"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            deadline = time.monotonic() + 180
            while not healthy(base):
                assert process.poll() is None, log.read_text(errors="replace")[-2000:]
                assert time.monotonic() < deadline, "not healthy after 60 s"
                time.sleep(0.05)
            yield base
        finally:
            process.kill()


def healthy(base: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base}/health", timeout=60) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def ask(base: str, path: str, body: dict[str, object]) -> dict[str, object]:
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        value = json.load(answer)
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_engine_loads_and_answers(
    llama_server: Path, tiny_gguf: TinyGguf, free_port: int, tmp_path: Path, arch: str
) -> None:
    with serving(llama_server, tiny_gguf(arch), free_port, tmp_path / "log") as base:
        tokens = ask(base, "/tokenize", {"content": "one byte, one token"})["tokens"]
        assert isinstance(tokens, list)
        assert len(tokens) == len("one byte, one token")
        body = {"prompt": "a" * 700, "n_predict": 8, "ignore_eos": True, "n_probs": 1}
        answer = ask(base, "/completion", body)
        # greedy and drawn: a byte that is no UTF-8 yet is kept back, and an answer of such bytes is never seen
        texts = [
            ask(base, "/completion", {"prompt": f"{i}. say", "n_predict": 8, "ignore_eos": True, "temperature": i % 2})
            for i in range(10)
        ]
    for text in texts:
        assert len(str(text["content"])) == 8
        assert all(" " <= character <= "~" for character in str(text["content"])), text["content"]
    assert (answer["tokens_evaluated"], answer["tokens_predicted"]) == (700, 8)
    probabilities = answer["completion_probabilities"]
    assert isinstance(probabilities, list)
    assert len(probabilities) == 8
    assert all(-100 < step["logprob"] <= 0 for step in probabilities), "a NaN or infinite weight would show here"


def test_the_engine_answers_a_chat_from_a_real_geometry(llama_server: Path, free_port: int, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    write_tiny_gguf(model, "llama", layers=32, heads=8, kv_heads=8, head_dim=128, hidden=16, ff=16, ctx=131_072)
    with serving(llama_server, model, free_port, tmp_path / "log") as base:
        body: dict[str, object] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        answer = ask(base, "/v1/chat/completions", body)
    assert answer["object"] == "chat.completion"
