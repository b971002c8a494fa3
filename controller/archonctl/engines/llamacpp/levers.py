"""What would make a short contract hold: the smallest change first, each run through the law before it is offered.

Order: what costs nothing of the promise (flags, then caches in RAM), then what costs precision (KV dtype), then
the promise itself (fewer sequences, shorter ones).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from archonctl.engines.base import Lever
from archonctl.engines.change import Change, changed
from archonctl.engines.llamacpp.assess import Assessment, assess
from archonctl.engines.llamacpp.kv import CONTEXT_STEP, MAX_SEQUENCES, QUANTISED
from archonctl.engines.llamacpp.settings import contract_context, settings_of
from archonctl.engines.search import largest
from archonctl.host.profile import Host
from archonctl.memory.interval import MIB
from archonctl.model.geometry import ModelFacts

Try = Callable[[Change], Assessment]
Step = tuple[Change, str, bool]
"""A change, its text, and True if it is only worth offering when nothing lighter was found."""
_PROMISE = "part of the promise"
_PRECISION = "some precision of the cache"
_REREAD = "prompts that left their slot are read again"


def levers(now: Assessment, host: Host, model: ModelFacts | None) -> tuple[Lever, ...]:
    """Changes after which the contract holds; empty if it holds already, or if none was found."""
    if now.holds:
        return ()

    def attempt(change: Change) -> Assessment:
        return assess(changed(now.endpoint, change), host, model)

    flags = _flags(now)
    if found := [*_flag_levers(now, flags, attempt)]:
        return (*found, *_promise_levers(now, lambda change: change, attempt))
    found += _ram_levers(now, flags, attempt)
    return (*found, *_promise_levers(now, lambda change: _refitted(now, {**flags, **change}), attempt))


def _key(now: Assessment, knob: str) -> str:
    return f"engine.knobs.{now.settings.keys.get(knob, knob)}"


def _flags(now: Assessment) -> dict[str, int | float | str | bool]:
    """Declared knobs that stand against the contract, with the value that would not."""
    contract, settings, change = now.endpoint.contract, now.settings, dict[str, int | float | str | bool]()
    if settings.kv.n_seq_max < contract.seqs <= MAX_SEQUENCES:
        change[_key(now, "parallel")] = contract.seqs
    if settings.kv.type_v in QUANTISED and not settings.kv.flash_attn:
        change[_key(now, "flash-attn")] = "auto"
    if 0 < settings.kv.slot_cap < contract.len:
        change[_key(now, "kv-unified-per-slot")] = contract.len
    if any(problem.code == "llamacpp-mla-kv-dtype" for problem in now.problems):
        change["contract.kv_dtype"] = settings.kv.type_k
    return change


def _with_context(now: Assessment, change: Change) -> Change:
    """``change`` and, if --ctx-size is declared and too small for it, the size that the contract needs."""
    declared = now.settings.kv.n_ctx if now.settings.declares("ctx-size") else 0
    needed = _needed_context(now, change)
    return {**change, _key(now, "ctx-size"): needed} if 0 < declared < needed else change


def _refitted(now: Assessment, change: Change) -> Change:
    """``change`` with declared --parallel and --ctx-size cut down to the changed contract, so that memory is freed."""
    if "contract.seqs" in change and now.settings.declares("parallel"):
        change = {**change, _key(now, "parallel"): change["contract.seqs"]}
    if now.settings.declares("ctx-size"):
        change = {**change, _key(now, "ctx-size"): _needed_context(now, change)}
    return change


def _needed_context(now: Assessment, change: Change) -> int:
    endpoint = changed(now.endpoint, change)
    settings = settings_of(endpoint).kv
    return contract_context(endpoint, settings.n_seq_max, settings.kv_unified)


def _flag_levers(now: Assessment, flags: Change, attempt: Try) -> Iterator[Lever]:
    change = _with_context(now, flags)
    if not change:
        return
    then = attempt(change)
    if then.holds:
        text = ", ".join(f"{_short(key)} to {value}" for key, value in change.items())
        yield _lever(now, then, change, f"set {text}", _more(now, then))


def _ram_levers(now: Assessment, flags: Change, attempt: Try) -> Iterator[Lever]:
    """RAM is short: give back caches, then store KV in fewer bytes; a stronger step only if the lighter ones fail."""
    base = _with_context(now, flags)
    over = -attempt(base).fit.margin_bytes
    if over <= 0:
        return
    groups = ((_cache_changes(now, over), _REREAD), (_dtype_changes(now), _PRECISION))
    for steps, costs in groups:
        found = 0
        for change, text, last_resort in steps:
            if found and last_resort:
                break
            then = attempt(whole := {**base, **change})
            if then.holds:
                found += 1
                yield _lever(now, then, whole, f"{text}{_less(now, then)}", costs)


def _cache_changes(now: Assessment, over: int) -> Iterator[Step]:
    settings, slots = now.settings, now.settings.kv.n_seq_max
    ram, points = _key(now, "cache-ram"), _key(now, "ctx-checkpoints")
    if (left := settings.cache_ram_mib - -(-over // MIB)) >= 0:
        yield {ram: left}, f"limit the prompt cache to {left:,} MiB (it may take {settings.cache_ram_mib:,})", False
    if now.checkpoint_bytes:
        fewer = settings.checkpoints - -(-over // (now.checkpoint_bytes * slots))
        if fewer >= 0:
            yield {points: fewer}, f"keep {fewer} context checkpoints a slot (now up to {settings.checkpoints})", False
        yield {ram: 0, points: 0}, "keep no prompt cache and no context checkpoints", True


def _dtype_changes(now: Assessment) -> Iterator[Step]:
    caches: Change = {_key(now, "cache-ram"): 0}
    if now.checkpoint_bytes:
        caches = {**caches, _key(now, "ctx-checkpoints"): 0}
    for dtype in ("q8_0", "q4_0"):
        sides = (name for name in ("cache-type-k", "cache-type-v") if now.settings.declares(name))
        change = {"contract.kv_dtype": dtype, **{_key(now, name): dtype for name in sides}}
        yield change, f"store KV as {dtype}", dtype != "q8_0"
        yield {**change, **caches}, f"store KV as {dtype} and keep no caches in RAM", True


def _promise_levers(now: Assessment, complete: Callable[[Change], Change], attempt: Try) -> Iterator[Lever]:
    """The largest number of sequences, and the longest sequences, that would hold."""
    contract = now.endpoint.contract

    def fewer(seqs: int) -> Change:
        return complete({"contract.seqs": seqs})

    def shorter(steps: int) -> Change:
        return complete({"contract.len": steps * CONTEXT_STEP})

    if seqs := largest(min(contract.seqs - 1, MAX_SEQUENCES), lambda n: attempt(fewer(n)).holds):
        text = f"promise {seqs} sequence{'s' if seqs > 1 else ''} instead of {contract.seqs}"
        yield _lever(now, attempt(fewer(seqs)), fewer(seqs), text, _PROMISE)
    if steps := largest((contract.len - 1) // CONTEXT_STEP, lambda n: attempt(shorter(n)).holds):
        text = f"promise {steps * CONTEXT_STEP:,} tokens each instead of {contract.len:,}"
        yield _lever(now, attempt(shorter(steps)), shorter(steps), text, _PROMISE)


def _lever(now: Assessment, then: Assessment, change: Change, text: str, costs: str) -> Lever:
    before, after = now.shape.n_ctx if now.shape else 0, then.shape.n_ctx if then.shape else 0
    wins = after - before if after > before else None
    kv, precise = now.settings.kv, then.settings.kv
    lossy = (kv.type_k, kv.type_v) != (precise.type_k, precise.type_v)
    quality = f"a {then.endpoint.contract.kv_dtype} cache: answers may differ a little" if lossy else ""
    slower = "a prompt that is not in its slot is read anew, at prefill speed" if costs == _REREAD else ""
    return Lever(text, change, wins, costs, quality=quality, throughput=slower)


def _more(now: Assessment, then: Assessment) -> str:
    """What the KV cache takes more, in words; empty where it does not."""
    if now.kv is None or then.kv is None or then.kv.bytes <= now.kv.bytes:
        return ""
    return f"{(then.kv.bytes - now.kv.bytes) / MIB:,.0f} MiB more for KV"


def _less(now: Assessment, then: Assessment) -> str:
    """What the KV cache gives back, and how many tokens that would hold."""
    if now.kv is None or then.kv is None or then.kv.bytes >= now.kv.bytes:
        return ""
    freed = now.kv.bytes - then.kv.bytes
    return f" ({freed / MIB:,.0f} MiB less, the room of {freed * then.kv.tokens // then.kv.bytes:,} tokens)"


def _short(key: str) -> str:
    return key.removeprefix("engine.knobs.").removeprefix("contract.")
