"""Restoring a conversation against prefilling it again, and a mix that outgrows the slots, with and without tiers.

Everything on the real llama-server and in one run, so that the ratios are of this machine and this moment.

usage: ARCHON_TEST_LLAMA_SERVER=.../llama-server PYTHONPATH=tests python benchmarks/tiers_restore.py
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from archonctl.model.demo_gguf import write_tiny_gguf
from support.staged import MIB
from support.tiering import PATH, Desk, bench, story

LENGTHS = (500, 1000, 2000, 4000, 7000)
CONVERSATIONS, TURNS = 6, 4


async def lengths(desk: Desk) -> None:
    """Save, restore and prefill again, at several lengths."""
    print(f"{'tokens':>7} {'MiB':>6} {'prefill':>10} {'save':>9} {'restore':>9} {'prefill / restore':>18}")
    client, store = desk.executor.client, desk.store
    for tokens in LENGTHS:
        prompt = story(tokens, tokens)[:tokens]
        await client.erase(0)
        began = time.perf_counter()
        await desk.http.post(PATH, json={"prompt": prompt, "max_tokens": 1, "id_slot": 0})
        prefill, name = time.perf_counter() - began, store.new_id()
        began = time.perf_counter()
        saved = await client.save(0, f"{name}.kv")
        save = time.perf_counter() - began
        began = time.perf_counter()
        await client.restore(1, f"{name}.kv")
        restore = time.perf_counter() - began
        store.discard(name)
        print(
            f"{tokens:7,} {saved.bytes / MIB:6.1f} {prefill * 1000:7.0f} ms {save * 1000:6.1f} ms "
            f"{restore * 1000:6.1f} ms {prefill / restore:17.0f}x"
        )


async def mix(desk: Desk, placed: bool) -> tuple[int, list[float]]:
    """Tokens prefilled in all, and seconds to the first token of every turn after the first, each in its turn."""
    prompts = [story(number, 300)[:1500] for number in range(CONVERSATIONS)]
    tokens, firsts = 0, []
    for turn in range(TURNS):
        for index, prompt in enumerate(prompts):
            began = time.perf_counter()
            answer = await (desk.ask(prompt, 1) if placed else desk.plain(prompt, 1, cache_prompt=True))
            took = time.perf_counter() - began
            if turn:
                tokens += answer.prefilled
                firsts.append(took)
            prompts[index] += f"{answer.text} and turn {turn} of it goes on"
    return tokens, firsts


def measure(server: Path, model: Path, root: Path, *options: str, placed: bool) -> tuple[int, list[float]]:
    """One mix on an engine of its own."""
    with bench(server, model, root, *options) as running:
        return running.run(lambda desk: mix(desk, placed), bytes_per_token=None)


def main() -> None:
    """Measure and print."""
    server = Path(os.environ["ARCHON_TEST_LLAMA_SERVER"])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as ram, tempfile.TemporaryDirectory() as slow:
        root = Path(ram)
        model = write_tiny_gguf(Path(slow, "m.gguf"), "llama", layers=8, hidden=256, ff=1024, heads=8, kv_heads=4)
        with bench(server, model, root) as running:
            running.run(lengths)
        print(f"\n{CONVERSATIONS} conversations on 2 slots, {TURNS} turns each; turns after the first:")
        rows = (
            ("without tiers", ("--cache-ram", "0"), False),
            ("llama-server's own --cache-ram", ("--cache-ram", "1024"), False),
            ("with tiers", ("--cache-ram", "0"), True),
        )
        for label, options, placed in rows:
            tokens, firsts = measure(server, model, root, *options, placed=placed)
            p50, worst = statistics.median(firsts) * 1000, max(firsts) * 1000
            print(f"{label:32} {tokens:7,} tokens prefilled   first token p50 {p50:6.0f} ms   worst {worst:6.0f} ms")


if __name__ == "__main__":
    main()
