"""Random caches for a differential test: what vLLM's planner says of them against what the law here says."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from archonctl.engines.vllm.groups import Bucket, Group, Kind, LayerSpec, form_groups
from archonctl.engines.vllm.kv import KvSettings, block_bytes, estimate_max_len, plan_kv
from archonctl.errors import DeclarationError

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "vllm" / "kv_cases.jsonl.gz"
REFERENCE = Path(__file__).with_name("vllm_reference.py")
Case = Mapping[str, Any]
_NEED = re.compile(r"max seq len \((\d+)\), \(([\d.]+) GiB KV.*?memory \(([-\d.]+) GiB\)\.(?:.*?length is (\d+))?")


def random_case(seed: int) -> Case:
    """A cache of one to four kinds of layers over one to four pipeline stages; the same seed gives the same."""
    dice = random.Random(seed)
    block = dice.choice((16, 16, 16, 32, 64, 128, 400, 544))
    kinds, rows = _kinds(dice, block)
    pattern = [dice.randrange(len(kinds)) for _ in range(dice.randint(1, 6))] + list(range(len(kinds)))
    count = dice.choice((1, 2, 3, 8, 17, 24, 36, 48, 62))
    order = [pattern[at % len(pattern)] for at in range(max(count, len(pattern)))]
    pp = dice.choice((1, 1, 1, 2, 3, 4)) if len(order) >= 8 else 1
    cuts = sorted(dice.sample(range(1, len(order)), pp - 1))
    stages = [sum(at >= cut for cut in cuts) for at in range(len(order))]
    local = any(kind == "sliding" for kind in kinds)
    memory = dice.randint(1, 1 << dice.randint(24, 38))
    same = dice.random() < 0.6
    return {
        "block": block,
        "kinds": kinds,
        "rows": rows,
        "layers": list(zip(order, stages, strict=True)),
        "memory": [memory if same else dice.randint(memory // 2, memory) for _ in range(pp)],
        "len": dice.choice((1, 100, 2048, 8192, 32_768, 40_960, 131_072, 262_144, dice.randint(1, 300_000))),
        "in_flight": dice.choice((1, 2)) * dice.choice((256, 2048, 8192, dice.randint(16, 20_000))),
        "dcp": 1 if local or dice.random() < 0.8 else dice.choice((2, 3, 4, 8)),
        "mode": dice.choice(("align", "none")),
        "spec_tokens": dice.choice((0, 0, 0, 1, 3)),
        "retained": dice.choice((0, 0, 0, 0, 2)),
        "manager": dice.random() < 0.85,
        "override": dice.choice((0, 0, 0, 0, 0, 1, 2, dice.randint(3, 5000))),
    }


def _kinds(dice: random.Random, block: int) -> tuple[list[Kind], list[list[int]]]:
    width = dice.choice((1, 2, 2, 2, 4))
    heads, size = dice.choice((1, 2, 4, 8, 16)), dice.choice((64, 80, 96, 128, 192, 256, 512))
    windows = (128, 512, 1024, 4096, 8192, dice.randint(2, 9000))
    full: list[int] = [heads, size, width, 0, 0, 0]
    choice = dice.choice(("plain", "plain", "local", "local", "local", "latent", "states", "states", "zoo"))
    if choice == "plain":
        return ["full"], [full]
    if choice == "latent":
        rows = [[1, dice.choice((576, 512, 320)), width, 0, 0, 0]]
        return (["mla", "mla"], [*rows, [1, 132, 1, 0, 0, 0]]) if dice.random() < 0.5 else (["mla"], rows)
    if choice == "local":
        wide, head = heads * dice.choice((1, 1, 1, 2, 3)), dice.choice((size, size, 64))
        narrow = [wide, head, width, dice.choice(windows), 0, 0]
        kinds: list[Kind] = [dice.choice(("full", "full", "sliding")), dice.choice(("sliding", "sliding", "chunked"))]
        first = full if kinds[0] == "full" else [heads, size, width, dice.choice(windows), 0, 0]
        return kinds, [first, narrow]
    if choice == "states":
        latent = dice.random() < 0.3
        row = [1, 576, width, 0, 0, 0] if latent else full
        page = block * row[0] * row[1] * width * (1 if latent else 2)
        padded = page if dice.random() < 0.8 else 0
        state = dice.randint(page // 2 + 1, page) if padded else page
        mamba = [0, 0, 0, 0, state, padded]
        return (["mamba"], [mamba]) if dice.random() < 0.1 else (["mla" if latent else "full", "mamba"], [row, mamba])
    found: list[Kind] = [dice.choice(("full", "mla", "sliding", "chunked", "full")) for _ in range(dice.randint(2, 4))]
    own = {"full": 0, "mla": 0}
    return found, [
        [1 if k == "mla" else dice.choice((1, 2, 4, 8)), size, width, own.get(k, dice.choice(windows)), 0, 0]
        for k in found
    ]


def read_cases(path: Path = GOLDEN) -> list[tuple[int, Mapping[str, Any]]]:
    """Seeds with the answers that vLLM gave."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return [(int(seed), answer) for seed, answer in map(json.loads, lines)]


def write_cases(answers: Iterable[tuple[int, Mapping[str, Any]]], path: Path = GOLDEN) -> None:
    """The same answers give the same bytes."""
    text = "".join(json.dumps([seed, answer], sort_keys=True) + "\n" for seed, answer in answers)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def ask_vllm(python: Path, seeds: Sequence[int], seconds: float = 600) -> list[Mapping[str, Any]]:
    """What the planner of the vLLM of this Python says of random cases. Raises RuntimeError where it does not."""
    asked = "".join(json.dumps(random_case(seed)) + "\n" for seed in seeds)
    done = subprocess.run(
        [python, REFERENCE], input=asked, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def groups_of(case: Case) -> tuple[Group, ...]:
    """The law's groups of a case. Raises DeclarationError where it has none."""
    specs = [_spec(kind, case["block"], row) for kind, row in zip(case["kinds"], case["rows"], strict=True)]
    order: dict[LayerSpec, list[int]] = {}
    for which, stage in case["layers"]:
        order.setdefault(specs[which], []).append(stage)
    buckets = [Bucket(spec, tuple(stages)) for spec, stages in order.items()]
    return form_groups(buckets, stages=len(case["memory"]), hybrid_manager=case["manager"])


def _spec(kind: Kind, block: int, row: Sequence[int]) -> LayerSpec:
    heads, size, width, window, state, padded = row
    token = heads * size * width * (1 if kind == "mla" else 2)
    return LayerSpec(kind, block, token, window, state, padded, heads)


def settings_of(case: Case) -> KvSettings:
    """The law's settings of a case."""
    return KvSettings(
        max_model_len=case["len"],
        in_flight_tokens=case["in_flight"],
        context_shards=case["dcp"],
        mamba_states=2 if case["mode"] == "align" else 1,
        spec_tokens=case["spec_tokens"],
        retained_tokens=case["retained"],
        blocks_override=case["override"],
    )


def difference(case: Case, answer: Mapping[str, Any]) -> str:
    """What the law says otherwise than vLLM did; "" where they agree to the token."""
    said = str(answer.get("refused", ""))
    try:
        groups = groups_of(case)
    except DeclarationError as err:
        return "" if said and not _NEED.search(said) and "No available" not in said else f"{err.code}, not {answer}"
    settings = settings_of(case)
    plan = plan_kv(groups, case["memory"], settings)
    if said:
        return _refusal_differs(said, plan.refusal, groups, case, settings)
    ours = {
        "blocks": plan.blocks,
        "sizes": list(block_bytes(groups)),
        "groups": sorted([group.layers, group.block_tokens] for group in groups),
        "tokens": plan.kv_tokens,
        "concurrency": f"{plan.max_concurrency:.2f}",
    }
    theirs = {**answer, "groups": ours["groups"] if len(case["memory"]) > 1 else answer["groups"]}
    return "" if not plan.refusal and ours == theirs else f"{plan.refusal} {ours}, not {theirs}"


def _refusal_differs(said: str, refusal: str, groups: Sequence[Group], case: Case, settings: KvSettings) -> str:
    if "No available memory" in said:
        return "" if refusal == "kv-no-memory" else f"{refusal or 'boots'}, not {said[:60]}"
    match = _NEED.search(said)
    if not match or refusal != "kv-request-too-long":
        return f"{refusal or 'boots'}, not {said[:120]}"
    plan = plan_kv(groups, case["memory"], settings)
    longest = estimate_max_len(groups, plan.refused_blocks, settings, case["len"])
    ours = (f"{plan.needed_bytes / 2**30:.2f}", longest)
    theirs = (f"{float(match[2]):.2f}", int(match[4] or 0))
    return "" if ours == theirs else f"needs and fits {ours}, not {theirs}"


def main(arguments: Sequence[str]) -> int:
    """``collect-vllm-kv PYTHON [HOW_MANY]``: keep what vLLM says of the first seeds."""
    seeds = range(int(arguments[1]) if len(arguments) > 1 else 4000)
    answers = ask_vllm(Path(arguments[0]), seeds)
    write_cases(zip(seeds, answers, strict=True))
    print(f"{len(answers)} cases, {sum('refused' in answer for answer in answers)} of them refused")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
