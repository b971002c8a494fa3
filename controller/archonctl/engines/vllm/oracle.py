"""The installed vLLM as an oracle: ``ask_planner.py``, run by its Python, plans the same memory with vLLM's own code.

It needs no GPU and no weights (10 to 30 s, most of it importing). A declaration for a GPU may be asked of a vLLM for
CPUs: the planner is the same, and what the platform decides (block size, batches in flight) is told to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from archonctl.deployment.schema import Endpoint
from archonctl.engines.oracle import Figure, Question
from archonctl.engines.vllm.assess import Assessment, asked_block, assess
from archonctl.engines.vllm.command import engine_words
from archonctl.engines.vllm.kv import estimate_max_len
from archonctl.host.profile import Host
from archonctl.memory.interval import GIB, Interval
from archonctl.model.geometry import ModelFacts

SCRIPT = Path(__file__).with_name("ask_planner.py")
_READY = "set engine.oracle to the Python of an environment with vLLM in it (one for CPUs will do)"
_LONGEST = re.compile(r"estimated maximum model length is (\d+)")
_NEEDED = re.compile(r"\(([\d.]+) GiB KV")


class InstalledVllm:
    """The oracle of ``vllm serve``."""

    name = "vLLM's planner"

    def question(self, endpoint: Endpoint, host: Host, model: ModelFacts | None) -> Question:
        """Python beside engine.binary, or engine.oracle, with this script, the plan's memory and the engine's flags."""
        now = assess(endpoint, host, model)
        python = endpoint.engine.oracle or (_beside(endpoint.engine.binary) if endpoint.engine.binary else "")
        size = max(0, int(now.memory.size.best)) if now.memory.size else 0
        geometry = model.geometry if model else None
        block = asked_block(geometry, now.settings) if geometry and not now.settings.cpu else 0
        argv = (python, str(SCRIPT), str(size), str(block), "--model", endpoint.model.path, *engine_words(endpoint))
        return Question(argv, dict(endpoint.engine.env), unaskable=_unaskable(now, model), ready=_READY)

    def read(self, text: str, endpoint: Endpoint, host: Host, model: ModelFacts | None) -> tuple[Figure, ...]:
        """Blocks, tokens and concurrency exactly; or the refusal, with the length that it names."""
        try:
            said = json.loads(text.strip().splitlines()[-1])
        except (ValueError, IndexError):
            return ()
        if not isinstance(said, dict):
            return ()
        return tuple(_figures(said, assess(endpoint, host, model)))


ORACLE = InstalledVllm()


def _beside(binary: str) -> str:
    """The Python that a ``vllm`` program of a virtual environment lies beside."""
    folder = Path(binary).parent
    return str(next((folder / name for name in ("python", "python3") if (folder / name).exists()), folder / "python"))


def _unaskable(now: Assessment, model: ModelFacts | None) -> str:
    if model is None or model.geometry is None or not now.groups:
        return "the plan knows no geometry to compare with"
    if now.settings.drafts.layers:
        return "the planner is asked about the model alone, without the layers of its draft"
    if now.best is None:
        return f"the plan knows no memory to give to it: {now.memory.method}"
    return ""


def _figures(said: dict[str, object], now: Assessment) -> Iterator[Figure]:
    assert now.best is not None
    plan = now.best.plan
    ours = {
        "block_tokens": ("tokens a block", "tokens", now.groups[0].block_tokens if len(now.groups) == 1 else None),
        "block_bytes": ("bytes a block", "bytes", plan.block_bytes),
        "groups": ("cache groups", "groups", len(now.groups)),
        "blocks": ("blocks", "blocks", plan.blocks),
        "tokens": ("printed tokens", "tokens", plan.served_tokens),
        "concurrency": ("concurrency", "x", round(plan.max_concurrency, 2)),
    }
    refused = str(said.get("refused", ""))
    yield Figure("boots", "", float(not refused), Interval.exact(float(not _refuses(plan.refusal))))
    for key, (what, unit, value) in ours.items():
        found = said.get(key)
        if isinstance(found, int | float) and not isinstance(found, bool):
            yield Figure(what, unit, float(found), None if value is None else Interval.exact(value))
    if match := _NEEDED.search(refused):
        yield Figure("one request needs", "GiB", float(match[1]), Interval.exact(round(plan.needed_bytes / GIB, 2)))
    if match := _LONGEST.search(refused):
        longest = estimate_max_len(now.groups, plan.refused_blocks, now.kv, now.settings.max_model_len)
        yield Figure("longest request", "tokens", float(match[1]), Interval.exact(longest))


def _refuses(code: str) -> bool:
    """Whether the planner itself would refuse: sequences over the blocks are refused later, by the graphs."""
    return code in ("kv-no-memory", "kv-request-too-long")
