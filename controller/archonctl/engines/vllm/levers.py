"""What would make a short contract hold: each change is run through the law before it is offered.

Order: what costs nothing of the promise (flags, memory), then precision (an fp8 cache), then the promise itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from archonctl.engines.base import Lever
from archonctl.engines.change import Change, changed
from archonctl.engines.search import largest
from archonctl.engines.vllm.assess import Assessment, assess
from archonctl.engines.vllm.settings import CPU_SPACE
from archonctl.host.profile import Host
from archonctl.memory.interval import GIB, MIB
from archonctl.model.geometry import ModelFacts

Try = Callable[[Change], Assessment]
MOST_UTILISATION = 95
"""Per cent of a card beyond which vLLM leaves nothing for what it does not count."""
LEN_STEP = 256
_PROMISE = "part of the promise"


def levers(now: Assessment, host: Host, model: ModelFacts | None) -> tuple[Lever, ...]:
    """Changes after which the contract holds; empty if it holds already, if it is unknown, or if none was found."""
    if now.holds or (now.kv_tokens is None and not now.problems):
        return ()

    def attempt(change: Change) -> Assessment:
        return assess(changed(now.endpoint, change), host, model)

    found: list[Lever] = []
    flags = _flags(now)
    offers = [*_offers(now, flags, attempt, host)]
    for change, text, costs in offers:
        then = attempt(change)
        if then.holds:
            found.append(_lever(now, then, change, text, costs))
    return (*found, *_promise(now, attempt))


def _key(now: Assessment, knob: str) -> str:
    return f"engine.knobs.{now.settings.keys.get(knob, knob)}"


def _flags(now: Assessment) -> dict[str, int | float | str | bool]:
    """Declared knobs that stand against the contract, with the value that would not."""
    contract, settings, change = now.endpoint.contract, now.settings, dict[str, int | float | str | bool]()
    if settings.max_num_seqs < contract.seqs:
        change[_key(now, "max-num-seqs")] = contract.seqs
    if settings.max_model_len < contract.len:
        change[_key(now, "max-model-len")] = contract.len
    return change


def _offers(now: Assessment, flags: Change, attempt: Try, host: Host) -> Iterator[tuple[Change, str, str]]:
    base = attempt(flags) if flags else now
    if flags:
        yield flags, "set " + ", ".join(f"{key.rpartition('.')[2]} to {value:,}" for key, value in flags.items()), ""
    if base.holds:
        return
    length, declared = now.endpoint.contract.len, now.settings.max_model_len
    if declared > length:
        knob = {**flags, _key(now, "max-model-len"): length}
        yield knob, f"set max-model-len to the contract's {length:,} instead of {declared:,}", "longer requests"
    yield from _memory(now, base, flags, attempt, host)
    if now.settings.kv_dtype == "auto":
        change = {**flags, "contract.kv_dtype": "fp8"}
        if now.settings.declares("kv-cache-dtype"):
            change[_key(now, "kv-cache-dtype")] = "fp8"
        yield change, "store KV as fp8", "some precision of the cache"


def _memory(
    now: Assessment, base: Assessment, flags: Change, attempt: Try, host: Host
) -> Iterator[tuple[Change, str, str]]:
    settings, need = now.settings, base.needed_bytes
    if not need:
        return
    more = f"{need / GIB:.2f} GiB of cache a rank"
    if settings.blocks_override:
        blocks = base.needed_blocks
        yield {**flags, _key(now, "num-gpu-blocks-override"): blocks}, f"override with {blocks:,} blocks ({more})", ""
    elif settings.kv_memory_bytes:
        if _card_has_room(now, need, host):
            change = {**flags, _key(now, "kv-cache-memory-bytes"): need}
            yield change, f"set kv-cache-memory-bytes to {need:,} ({more})", f"{_added(now, need)} of the card"
    elif settings.cpu:
        space = math.ceil(need / GIB)
        change = {**flags, f"engine.env.{CPU_SPACE}": str(space)}
        yield change, f"set {CPU_SPACE} to {space} GiB (now {settings.cpu_space_gib})", f"{_added(now, need)} of RAM"
    else:
        first = math.floor(settings.utilisation * 100) + 1
        shares = [each / 100 for each in range(first, MOST_UTILISATION + 1)]
        knob = _key(now, "gpu-memory-utilization")
        for share in shares:
            if attempt({**flags, knob: share}).holds:
                text = f"let vLLM use {share:.0%} of each card instead of {settings.utilisation:.0%}"
                yield {**flags, knob: share}, text, "room for what vLLM does not count"
                return


def _added(now: Assessment, need: int) -> str:
    have = now.memory.size.best if now.memory.size else 0
    return f"{max(0, need - have) / MIB:,.0f} MiB"


def _card_has_room(now: Assessment, need: int, host: Host) -> bool:
    """False where a known card would not hold weights, cache and the likely rest."""
    cards = host.cards[: now.settings.ranks]
    if not cards or now.weights is None or now.rest is None:
        return True
    return min(card.total_mib for card in cards) * MIB >= need + now.weights.high + now.rest.all.best


def _promise(now: Assessment, attempt: Try) -> Iterator[Lever]:
    """The largest number of sequences, and the longest sequences, that would hold."""
    contract = now.endpoint.contract

    def fewer(seqs: int) -> Change:
        return {"contract.seqs": seqs}

    def shorter(steps: int) -> Change:
        declared = {_key(now, "max-model-len"): steps * LEN_STEP} if now.settings.declares("max-model-len") else {}
        return {"contract.len": steps * LEN_STEP, **declared}

    if seqs := largest(contract.seqs - 1, lambda n: attempt(fewer(n)).holds):
        text = f"promise {seqs} sequence{'s' if seqs > 1 else ''} instead of {contract.seqs}"
        yield _lever(now, attempt(fewer(seqs)), fewer(seqs), text, _PROMISE)
    if steps := largest((contract.len - 1) // LEN_STEP, lambda n: attempt(shorter(n)).holds):
        text = f"promise {steps * LEN_STEP:,} tokens each instead of {contract.len:,}"
        yield _lever(now, attempt(shorter(steps)), shorter(steps), text, _PROMISE)


def _lever(now: Assessment, then: Assessment, change: Change, text: str, costs: str) -> Lever:
    before, after = now.kv_tokens, then.kv_tokens
    wins = int(after.best - before.best) if before and after and after.best > before.best else None
    quality = "an fp8 cache: answers may differ a little" if now.settings.kv_dtype != then.settings.kv_dtype else ""
    return Lever(text, change, wins_tokens=wins, costs=costs, quality=quality)
