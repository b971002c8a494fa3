"""vLLM's cache as a working: memory of a rank, bytes of a block, blocks of a request, concurrency, tokens."""

from __future__ import annotations

from collections.abc import Iterator

from archonctl.engines.beside import Widths, logit_bytes
from archonctl.engines.terms import Term, Working
from archonctl.engines.vllm.assess import Assessment
from archonctl.engines.vllm.groups import Group
from archonctl.engines.vllm.kv import KvSettings, block_bytes, spec_blocks
from archonctl.engines.vllm.pool import Pool
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB
from archonctl.model.geometry import ModelFacts

_UTILS = "v1/core/kv_cache_utils.py"
_SPECS = "v1/kv_cache_interface.py"


def explain(now: Assessment, host: Host, model: ModelFacts | None = None) -> tuple[Term, ...]:
    """The working of one assessment; without a known pool only what a request needs, empty without a geometry."""
    if not now.groups:
        return ()
    work = Working()
    contract = now.endpoint.contract
    work.take("seqs", contract.seqs, "sequences", "promised at once", "declared", key="contract.seqs")
    work.take("len", contract.len, "tokens", "promised to each", "declared", key="contract.len")
    key = _key(now, "max-num-batched-tokens")
    work.take("in_flight", now.kv.in_flight_tokens, "tokens", "of the batches under way", "config", _SPECS, key=key)
    needs = [_group(work, number, group, now) for number, group in enumerate(now.groups, 1)]
    need = sum(max(spec_blocks(spec, contract.len, now.kv) for spec in group.specs) for group in now.groups)
    work.work("request_blocks", need, "blocks", "of one request, over all tables", " + ".join(needs), _UTILS)
    sizes = [f"g{number}_bytes" for number in range(1, len(now.groups) + 1)]
    size = max(block_bytes(now.groups))
    what = "of one block of the pool, on the fullest rank: the widest group decides"
    work.work("block_bytes", size, "bytes", what, _most(sizes), _UTILS)
    if now.best is not None and now.kv_tokens is not None:
        _pool(work, now, now.best, host, model, size)
    return work.terms()


def _most(names: list[str]) -> str:
    return f"max({', '.join(names)})" if len(names) > 1 else names[0]


def _group(work: Working, number: int, group: Group, now: Assessment) -> str:
    """Terms of one block table; the name of what a request takes of it."""
    spec, name = max(group.specs, key=lambda each: spec_blocks(each, now.endpoint.contract.len, now.kv)), f"g{number}"
    kinds = " and ".join(sorted({each.kind for each in group.specs}))
    what = f"of one block over the {group.layers} {kinds} layers of group {number}"
    work.take(f"{name}_bytes", max(group.stage_bytes), "bytes", what, "header", _SPECS)
    need = spec_blocks(spec, now.endpoint.contract.len, now.kv)
    if spec.kind != "mamba":
        work.take(f"{name}_block", spec.block_tokens, "tokens", f"a block of group {number}", "config", _UTILS)
    formula = _blocks(work, name, spec.kind, spec.window, now.kv)
    return work.work(f"{name}_blocks", need, "blocks", f"of one request in group {number}", formula, _SPECS)


def _blocks(work: Working, name: str, kind: str, window: int, kv: KvSettings) -> str:
    if kind == "mamba":
        return str(kv.mamba_states + kv.spec_tokens)
    if kind in ("sliding", "chunked"):
        work.take(f"{name}_window", window, "tokens", "its window", "header", "config.json")
        if kind == "sliding":
            retained = f" + {kv.retained_tokens}" if kv.retained_tokens else ""
            held = f"{name}_window - 1{retained} + in_flight"
            return f"ceil(min({held}, len) / {name}_block) + 1"
        return f"ceil(min({name}_window + in_flight, len) / {name}_block)"
    if kv.context_shards > 1:
        return f"ceil(ceil(len / {kv.context_shards}) / {name}_block)"
    return f"ceil(len / {name}_block)"


def _pool(work: Working, now: Assessment, best: Pool, host: Host, model: ModelFacts | None, size: int) -> None:
    if now.settings.blocks_override:
        key = _key(now, "num-gpu-blocks-override")
        work.take("blocks", best.plan.blocks, "blocks", "stated", "declared", key=key)
    else:
        _memory(work, now, host, model)
        binding = best.plan.block_bytes
        if binding != size:  # a stage with smaller blocks may still have fewer of them
            work.take("binding_bytes", binding, "bytes", "of one block on the stage that binds", "header", _UTILS)
        divisor = "block_bytes" if binding == size else "binding_bytes"
        work.work("blocks", best.plan.blocks, "blocks", "of the pool", f"max(0, floor(memory)) // {divisor}", _UTILS)
    tokens = "floor(blocks / request_blocks * len)"
    work.work("kv_tokens", best.tokens, "tokens", "concurrency x length", tokens, _UTILS)
    whole = "max(0, blocks - 1) // request_blocks"
    work.work("whole", best.seqs, "sequences", "beside the block that is held back", whole, "v1/core/block_pool.py")


def _memory(work: Working, now: Assessment, host: Host, model: ModelFacts | None) -> None:
    """Bytes of one rank; from a card only where the card was what it was worked out from."""
    memory = now.memory.size
    if memory is None:
        return
    if not now.memory.blind or now.weights is None:
        work.estimate("memory", memory, "bytes", "of one rank's cache", origin=now.memory.method)
        return
    total = min(card.total_mib for card in host.cards[: now.settings.ranks]) * MIB
    key = _key(now, "gpu-memory-utilization")
    work.take("card", total, "bytes", "of the smallest card", "declared", "host profile")
    share = now.settings.utilisation
    work.take("share", share, "", "of it that vLLM may use", "config", "vllm/config/cache.py", key=key)
    work.estimate("weights", now.weights, "bytes", "of the fullest rank", origin="safetensors headers")
    formula = " - ".join(["card * share - weights", *_rest(work, now, model)])
    work.estimate("memory", memory, "bytes", "of one rank's cache", formula, "v1/worker/gpu_worker.py")


def _rest(work: Working, now: Assessment, model: ModelFacts | None) -> Iterator[str]:
    """Terms of what the share has to pay for beside them; their names."""
    rest = now.rest
    if rest is None:
        return
    if rest.floor is not None:
        yield work.estimate("rest", rest.floor, "bytes", rest.words, origin="public boots: the widths are not known")
        return
    for part in rest.counted:
        formula = _activation(work, now, model) if part.kind == "activation" else ""
        yield work.estimate(part.kind, part.size, "bytes", part.text, formula, "engines/beside.toml")


def _activation(work: Working, now: Assessment, model: ModelFacts | None) -> str:
    """Terms of the larger of two stages, layers and logits; the formula over them."""
    widths, geometry = Widths.of(model), model.geometry if model else None
    if widths is None or geometry is None:
        return ""
    settings, config = now.settings, "config.json"
    key = _key(now, "max-num-batched-tokens")
    work.take("batched", settings.batched_tokens, "tokens", "of the largest batch", "config", "config.py", key=key)
    key = _key(now, "max-num-seqs")
    work.take("most_seqs", settings.max_num_seqs, "sequences", "at once", "declared", "contract.seqs", key=key)
    work.take("element", settings.model_bytes, "bytes", "of the model's dtype", "config", "dtype")
    key = _key(now, "tensor-parallel-size")
    work.take("tp", settings.tp, "ranks", "that share a layer", "config", "vllm/config/parallel.py", key=key)
    work.take("vocab", geometry.vocab, "tokens", "of the vocabulary", "header", config)
    work.take("hidden", widths.hidden, "elements", "of the residual stream", "header", config)
    work.take("ff", widths.ff, "elements", "of a dense feed-forward layer", "header", config)
    widest = "3 * ff / tp"
    if widths.expert_ff:
        work.take("expert_ff", widths.expert_ff, "elements", "of an expert", "header", config)
        work.take("used", widths.experts_used, "experts", "of one token", "header", config)
        widest = f"max({widest}, used * (max(2 * expert_ff / tp, hidden) + expert_ff / tp))"
    what = "alive at once for one token"
    work.work("row", widths.row(settings.tp), "elements", what, f"3 * hidden + {widest}", "engines/beside.toml")
    work.take(
        "logit", logit_bytes(), "bytes", "a token of the vocabulary while sampling", "assumed", "engines/beside.toml"
    )
    return "max(batched * element * row, most_seqs * vocab * logit)"


def _key(now: Assessment, knob: str) -> str:
    """The declaration key of a knob; "" where it is not declared."""
    key = now.settings.keys.get(knob)
    return f"engine.knobs.{key}" if key else ""
