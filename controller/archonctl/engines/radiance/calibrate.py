"""Evidence carried over: what a boot that was seen says about today's declaration.

Resolver era: ``tokens(boot) + MiB moved a rank x tokens a MiB``, where 1 MiB of host pool moves 1 MiB of expert
demand off the card. That exchange is the doubtful part, and the sources disagree about it, so it is computed by
every method and the answer spans them all:

- *the law*: the marginal price of a token (7.3125 KiB at fp8);
- *the mean of that boot*: its cache divided by its tokens, state included (4.20 GiB / 556,348 = 7.92 KiB);
- *the quoted rate*, 8.11 KiB a token, and *the quoted exchange*, 44,000 tokens for 640 MiB (``calibration.toml``).

``best`` is the mean of the boot (what was seen) and ``low`` the most cautious of them. A boot with the same
knobs is not carried at all: it is the answer, exactly.

Pair era: the pool is stated, so a boot counts only where the pool and all that is fixed in it are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from archonctl.deployment.schema import Boot, KnobValue
from archonctl.engines.radiance.calibration import calibration
from archonctl.engines.radiance.knobtable import find, parse_version
from archonctl.engines.radiance.kv import KvLaw
from archonctl.engines.radiance.settings import Settings, effective
from archonctl.errors import DeclarationError
from archonctl.memory.interval import Interval

PAIR_SAME = ("vram-kv-mib", "max-num-seqs", "checkpoint-slots", "num-speculative-tokens", "tp")
"""Knobs that decide the tokens of a stated pool."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A boot carried over to today's knobs. ``tokens`` is None where no declared boot counts."""

    tokens: Interval | None
    boot: Boot | None = None
    moved_mib: float = 0.0
    methods: Mapping[str, Interval] | None = None
    notes: tuple[str, ...] = ()
    at_bound: bool = False
    """True if that boot's cache stood at its bound, so that its tokens are only what the budget funds at least."""
    rates: Mapping[str, Interval] | None = None
    """Tokens a MiB by every method, the most trusted first, where something was moved."""
    headroom_mib: float = 0.0
    """Headroom that is declared beyond that boot's."""


def exchange_rates(boot: Boot, law: KvLaw, reference: KvLaw) -> dict[str, Interval]:
    """Tokens a MiB by every method, the most trusted first: the boot's own mean if it printed a size, then what
    was quoted, then the law (the largest gain, so never the one to rest on).

    ``reference`` is the law at the dtype of the quoted figures: for another dtype they are scaled by the
    ratio of the two laws, which is an assumption and is named so.
    """
    rates: dict[str, Interval] = {}
    if size := _printed_mib(boot):
        mean = Interval(boot.kv_tokens / size.high, boot.kv_tokens / size.best, boot.kv_tokens / size.low, "log")
        rates[f"mean of that boot, {_kib(mean)} KiB a token"] = mean
    for quoted in calibration().exchanges:
        scale = 1.0 if quoted.kv_dtype == law.kv_dtype else reference.kib_per_token / law.kib_per_token
        name = f"{quoted.name}, {1024 / quoted.tokens_per_mib:.2f} KiB a token"
        name += "" if quoted.kv_dtype == law.kv_dtype else f", scaled from {quoted.kv_dtype}"
        rates[name] = Interval.exact(quoted.tokens_per_mib * scale, "declared")
    rates[f"KV law, {law.kib_per_token:g} KiB a token"] = Interval.exact(law.tokens_in(1))
    return rates


def _kib(tokens_per_mib: Interval) -> str:
    return f"{1024 / tokens_per_mib.best:.2f}"


def _printed_mib(boot: Boot) -> Interval | None:
    """The cache as the boot printed it ("4.20" GiB), in MiB with its rounding."""
    if not boot.kv_gib:
        return None
    try:
        size = Interval.rounded(boot.kv_gib, scale=1024)
    except ValueError:
        size = None
    if size is None or size.low <= 0 or size.high == float("inf"):
        message = f"boot of {boot.engine_version}: kv_gib is {boot.kv_gib[:40]!r}, expected the printed figure"
        raise DeclarationError("boot-bad-value", message, hint='copy it as it stands in the log, such as "4.20"')
    return size


def carry(boots: Iterable[Boot], settings: Settings, law: KvLaw, reference: KvLaw) -> Carried:
    """The best declared boot applied to ``settings``.

    Boots count for the same minor version and KV dtype only. Among those that can be carried, one with the same
    knobs wins, else the one from which least must be moved, else the later one.
    Raises DeclarationError ``boot-bad-value`` for a boot that cannot be read.
    """
    found: list[tuple[float, Carried]] = []
    refused: list[str] = []
    for boot in boots:
        why = _why_not(boot, settings)
        if why:
            refused.append(f"boot of {boot.engine_version} ({boot.kv_tokens:,} tokens) does not count: {why}")
            continue
        carried = _carry_one(boot, settings, law, reference)
        found.append((abs(carried.moved_mib) + abs(settings.slots - boot.seqs) * law.state_mib, carried))
    if not found:
        return Carried(None, notes=tuple(refused))
    _, best = min(reversed(found), key=lambda pair: pair[0])
    return replace(best, notes=(*best.notes, *refused))


def _why_not(boot: Boot, settings: Settings) -> str:
    """Why a boot says nothing about today; empty if it does."""
    version = parse_version(boot.engine_version)
    if version[:2] != settings.version[:2]:
        return f"{settings.version[0]}.{settings.version[1]} is declared"
    if boot.kv_dtype != settings.kv_dtype:
        return f"its KV dtype is {boot.kv_dtype}, {settings.kv_dtype} is declared"
    differing = differences(boot, settings)
    rules = calibration()
    moved = _change(differing, "host-pool-mib") if settings.era == "resolver" else 0.0
    if abs(moved) > rules.reach_mib:
        return (
            f"{moved:+,.0f} MiB of host pool a rank are farther from it than {rules.reach_mib:,} MiB; the exchange was "
            "seen for 640"
        )
    if settings.era == "pair":
        changed = sorted(flag for flag in differing if flag in PAIR_SAME)
        changed += ["max-num-seqs"] if boot.seqs != settings.slots else []
    else:
        changed = sorted(flag for flag in differing if flag not in rules.exact | rules.widens | rules.inert)
    return f"no law carries a change of {', '.join(changed)}" if changed else ""


def differences(boot: Boot, settings: Settings) -> dict[str, tuple[KnobValue | None, KnobValue | None]]:
    """Knobs in force at the boot and today, by flag, where they differ."""
    then: dict[str, KnobValue] = {}
    for key, value in boot.knobs.items():
        knob = find(key)
        then[knob.flag if knob else key] = value
    changed = {}
    for flag in then:
        before, now = effective(then, flag), effective(settings.knobs, flag)
        if before != now and flag not in ("max-num-seqs", "max-model-len", "kv-cache-dtype"):
            changed[flag] = (before, now)
    return changed


def _refuse_contradiction(boot: Boot, law: KvLaw) -> None:
    """A size that cannot belong to its tokens: a slip of the pen would otherwise become the price of a lever."""
    size = _printed_mib(boot)
    if size is None:
        return
    mean = size.best * 1024 / boot.kv_tokens
    if not law.kib_per_token / 2 <= mean <= 2 * law.kib_per_token:
        raise DeclarationError(
            "boot-bad-value",
            f"boot of {boot.engine_version}: {boot.kv_gib} GiB for {boot.kv_tokens:,} tokens are {mean:.2f} KiB a "
            f"token, the law says {law.kib_per_token:g}",
            hint="copy kv_gib and kv_tokens from the same line of the boot log",
        )


def _carry_one(boot: Boot, settings: Settings, law: KvLaw, reference: KvLaw) -> Carried:
    _refuse_contradiction(boot, law)
    differing = differences(boot, settings)
    moved = _change(differing, "host-pool-mib") if settings.era == "resolver" else 0.0
    freed = (boot.seqs - settings.slots) * law.state_mib
    rates = exchange_rates(boot, law, reference)
    at_bound = settings.era == "resolver" and boot.kv_tokens >= boot.seqs * boot.len
    base = Interval.exact(boot.kv_tokens, "log")
    if freed:
        # the state of a sequence is in the pool: what it frees is paged blocks, at the law's own price
        base = _around(boot.kv_tokens + law.tokens_in(freed), calibration().law_within)
    methods = {name: _moved(base, moved, rate) for name, rate in rates.items()} if moved else {}
    tokens = _span(methods) if methods else base
    how = f"{moved:+,.0f} MiB of host pool a rank" if moved else "nothing moved"
    notes = [f"from the boot of {boot.engine_version} with {boot.kv_tokens:,} tokens, {how} ({boot.source})"]
    notes += _unrecorded(boot, settings)
    tokens, headroom_notes = _widen(tokens, differing, law)
    notes += headroom_notes
    if not methods and (size := _printed_mib(boot)):
        methods = _cross_check(boot, size, law)
    notes += _rate_note(boot, law)
    return Carried(tokens, boot, moved, methods, tuple(notes), at_bound, rates if moved else None,
                   _change(differing, "gpu-headroom-mib"))  # fmt: skip


def _unrecorded(boot: Boot, settings: Settings) -> list[str]:
    """Knobs of today's split that the boot does not record: taken as equal, and said so."""
    rules = calibration()
    recorded = {knob.flag for key in boot.knobs if (knob := find(key))} | {"max-num-seqs", "max-model-len"}
    open_ = sorted(flag for flag in settings.knobs if flag not in recorded | rules.inert | {"kv-cache-dtype"})
    return [f"that boot does not record {', '.join(open_)}: taken as today's"] if open_ else []


def _change(differing: Mapping[str, tuple[KnobValue | None, KnobValue | None]], flag: str) -> float:
    before, now = differing.get(flag, (0, 0))
    return float(now or 0) - float(before or 0)


def _around(value: float, share: float) -> Interval:
    value = max(0.0, value)
    return Interval(value * (1 - share), value, value * (1 + share))


def _moved(base: Interval, mib: float, rate: Interval) -> Interval:
    """``base`` with ``mib`` of cache won (or lost, if negative) at a rate; never below 0."""
    low, high = sorted((mib * rate.low, mib * rate.high))
    return Interval(
        max(0.0, base.low + low), max(0.0, base.best + mib * rate.best), max(0.0, base.high + high), "computed"
    )


def _span(methods: Mapping[str, Interval]) -> Interval:
    """All methods at once; the first is the best estimate."""
    best = next(iter(methods.values())).best
    return Interval(min(m.low for m in methods.values()), best, max(m.high for m in methods.values()))


def _widen(
    tokens: Interval, differing: Mapping[str, tuple[KnobValue | None, KnobValue | None]], law: KvLaw
) -> tuple[Interval, list[str]]:
    """Headroom is taken off what is claimable; whether slab or cache pays is not public, so both are allowed."""
    change = _change(differing, "gpu-headroom-mib")
    if not change:
        return tokens, []
    effect = law.tokens_in(-change)
    low, high = max(0.0, tokens.low + min(0.0, effect)), tokens.high + max(0.0, effect)
    best = max(low, tokens.best + min(0.0, effect))
    note = f"gpu-headroom-mib differs from that boot by {change:+,.0f} MiB: slab or cache pays, both are in the range"
    return Interval(low, best, high), [note]


def _cross_check(boot: Boot, size: Interval, law: KvLaw) -> dict[str, Interval]:
    """The boot's own figure beside the law applied to the size it printed."""
    by_law = Interval(
        law.tokens(size.low, boot.seqs), law.tokens(size.best, boot.seqs), law.tokens(size.high, boot.seqs)
    )
    return {"boot ledger": Interval.exact(boot.kv_tokens, "log"), f"KV law on the printed {boot.kv_gib} GiB": by_law}


def _rate_note(boot: Boot, law: KvLaw) -> list[str]:
    size = _printed_mib(boot)
    if size is None:
        return []
    mean = size.best * 1024 / boot.kv_tokens
    quoted = [
        f"{1024 / q.tokens_per_mib:.2f} by the {q.name}" for q in calibration().exchanges if q.kv_dtype == law.kv_dtype
    ]
    others = f", {' and '.join(quoted)}" if quoted else ""
    return [
        f"KiB a token do not agree: {law.kib_per_token:g} by the law, {mean:.2f} as the mean of that boot "
        f"({boot.kv_gib} GiB / {boot.kv_tokens:,}){others}; the boot ledger decides"
    ]
