"""`archonctl guard` with `[tiers]`: conversations that outgrow the slots, restarts of either side, what is shown."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from support.guard_process import stand, wait_for
from support.tiering import story

pytestmark = pytest.mark.engine
RunCli = Callable[..., Any]


def ask(url: str, prompt: str, *, stream: bool = False) -> tuple[str, int]:
    """The words, and the tokens that had to be prefilled for them."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=200)
    if stream:
        text, last = "", None
        for event in client.completions.create(model="x", prompt=prompt, max_tokens=4, temperature=0, stream=True):
            text, last = text + event.choices[0].text, event
        assert last is not None
        return text, last.timings["prompt_n"]  # type: ignore[attr-defined]
    answer = client.completions.create(model="x", prompt=prompt, max_tokens=4, temperature=0)
    return answer.choices[0].text, answer.timings["prompt_n"]  # type: ignore[attr-defined]


def samples(admin: str) -> dict[str, float]:
    text = urllib.request.urlopen(f"{admin}/metrics", timeout=60).read().decode()
    rows = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in rows if name.startswith("archon_tiers_")}


def test_conversations_survive_full_slots_and_the_restart_of_either_side(
    llama_server: Path, tiny_gguf: Callable[..., Path], tmp_path: Path, run_cli: RunCli
) -> None:
    dram, disk = tmp_path / "dram", tmp_path / "disk"
    for each in (dram, disk):
        each.mkdir(mode=0o700)
    options = ("-c", "8192", "-np", "2", "--no-kv-unified", "--cache-ram", "0", "--slot-save-path", str(dram))
    tiers = ("prefill_tokens_per_s=1.0", f"dram.path={dram}", "dram.capacity_mib=64", f"disk.path={disk}")
    sets = tuple(word for each in tiers for word in ("--set", f"tiers.{each}"))
    prompts = [story(number) for number in range(4)]
    with stand(llama_server, tiny_gguf("llama"), tmp_path, *options, guard=sets) as both:

        def turn(number: int) -> int:
            prefilled = 0
            for index, prompt in enumerate(prompts):
                text, tokens = ask(both.url, prompt, stream=index % 2 == 0)
                prefilled += tokens
                prompts[index] += f"{text} turn {number}"
            return prefilled

        assert turn(0) >= 4 * 200
        assert turn(1) < 200
        found = samples(both.admin)
        assert found['archon_tiers_requests_total{how="restored"}'] >= 2
        assert found["archon_tiers_reprefilled_tokens_total"] == 0
        declaration = str(tmp_path / "guarded.toml")
        shown = run_cli("tiers", "status", declaration, *sets, "--json")
        value = json.loads(shown.stdout)
        assert sum(place["conversations"] for place in value["places"]) >= 2
        refused = run_cli("tiers", "clean", declaration, *sets)
        assert (refused.code, "tiers-folder-in-use" in refused.stderr) == (5, True)

        both.guard.kill()
        both.guard.start()
        assert turn(2) < 2 * 260 + 200  # the two that were only in slots are not known any more
        staged = len(list(dram.glob("*.kv")))
        assert staged >= 2
        both.engine.kill()
        both.engine.start()
        assert turn(3) < 2 * 280 + 200
        # stopped in order, the guard leaves what is in slots in files: nothing is lost with either side
        assert both.guard.stop() == 0
        both.engine.kill()
        both.engine.start()
        both.guard.start()
        assert turn(4) < 200
        assert both.guard.stop() == 0
    assert json.loads((tmp_path / "state" / "guarded" / "tiers-measured.json").read_bytes())["tiers"]["dram"]
    assert run_cli("tiers", "clean", declaration, *sets, "--older-than", "0").code == 0
    assert not [*dram.iterdir(), *disk.iterdir()]


def test_a_folder_that_cannot_be_trusted_is_said_and_the_guard_serves_without(
    llama_server: Path, tiny_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    dram = tmp_path / "dram"
    dram.mkdir()
    dram.chmod(0o777)
    options = ("-c", "2048", "-np", "2", "--slot-save-path", str(dram))
    guard = ("--set", f"tiers.dram.path={dram}")
    with stand(llama_server, tiny_gguf("llama"), tmp_path, *options, guard=guard) as both:
        assert ask(both.url, "hello there")[0]
        wait_for(lambda: "tiers-folder-unsafe" in both.guard.text(), what="its log says why")
    assert not list(dram.iterdir())
