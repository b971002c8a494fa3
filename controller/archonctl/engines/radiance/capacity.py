"""Tokens that a declaration funds: by the law where the pool is stated, by a carried boot where it is derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from archonctl.deployment.schema import Boot, Contract
from archonctl.engines.radiance.calibrate import Carried, carry
from archonctl.engines.radiance.calibration import calibration
from archonctl.engines.radiance.kv import KvLaw, kv_law, superseded_law
from archonctl.engines.radiance.settings import Settings
from archonctl.memory.interval import Interval
from archonctl.model.rad import RadManifest

EVIDENCE = (
    "boot once and write its `kv:` line down as [[boot]] (engine_version, kv_tokens, kv_gib, seqs, len, kv_dtype, "
    "the knobs, the source): then a plan has something to carry"
)


@dataclass(frozen=True, slots=True)
class Funds:
    """``tokens`` of one rank's pool (None: unknown), the pool in MiB that goes with the best estimate, and how."""

    tokens: Interval | None
    pool_mib: float | None
    method: str
    law: KvLaw | None
    methods: Mapping[str, Interval] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    carried: Carried | None = None
    """The boot that ``tokens`` rests on, where it is one."""


def funds(settings: Settings, manifest: RadManifest | None, boots: tuple[Boot, ...], contract: Contract) -> Funds:
    """What the declaration funds.

    Raises DeclarationError for a boot or a dtype that cannot be read.
    """
    if manifest is None:
        note = "no manifest is declared ([model] manifest), so no KV law applies to this file"
        return Funds(None, None, "unknown: no manifest", None, notes=(note,))
    if settings.tp != manifest.paged.measured_at_tp:
        note = (
            f"the manifest's KiB a page were measured at tp {manifest.paged.measured_at_tp}, {settings.tp} is "
            "declared: a rank's share at another number of ranks is not known"
        )
        return Funds(None, None, "unknown: no law at this number of ranks", None, notes=(note,))
    law = kv_law(manifest, settings.kv_dtype, settings.era, settings.checkpoint_slots)
    reference = kv_law(manifest, calibration().exchanges[0].kv_dtype, settings.era, settings.checkpoint_slots)
    carried = carry(boots, settings, law, reference)
    if settings.era == "pair":
        return _stated(settings, manifest, law, carried)
    return _derived(settings, law, carried, contract)


def _stated(settings: Settings, manifest: RadManifest, law: KvLaw, carried: Carried) -> Funds:
    """Pair era: the pool is a knob, so the law answers; a boot of the very same pool answers better."""
    if settings.pool_mib is None:
        note = f"vram-kv-mib is not set, so the engine derives the pool from the card; state it, or {EVIDENCE}"
        word = "declared boot" if carried.tokens else "unknown"
        return Funds(carried.tokens, None, word, law, notes=(note,), carried=carried)
    by_law, band = law.tokens(settings.pool_mib, settings.slots), law_band(settings, law)
    methods = {f"KV law, {law.kib_per_token:g} KiB a token": Interval.exact(by_law)}
    notes = []
    if old := superseded_law(manifest, law):
        methods[f"superseded reading, {old.kib_per_token:g} KiB a token"] = Interval.exact(
            old.tokens(settings.pool_mib, settings.slots)
        )
        notes.append(
            f"{law.kib_per_token:g} KiB a token at {law.kv_dtype}; an earlier reading of {old.kib_per_token:g} doubled "
            "the block keys too and is superseded: they keep their width at either dtype"
        )
    for boot in calibration().law_boots:
        if (boot.pool_mib, boot.seqs, boot.kv_dtype) == (settings.pool_mib, settings.slots, settings.kv_dtype):
            methods["live boot of this shape on the archon host"] = Interval.exact(boot.tokens, "log")
    if carried.tokens is not None:
        methods["boot ledger"] = carried.tokens
        pool = float(settings.pool_mib)
        return Funds(carried.tokens, pool, "declared boot of this pool", law, methods, carried.notes, carried)
    notes += carried.notes
    return Funds(band, float(settings.pool_mib), "KV law on the declared pool", law, methods, tuple(notes))


def law_band(settings: Settings, law: KvLaw) -> Interval:
    """The law with what it is known to be wrong by: 0.1 % either way, and never less below than a boot that
    was seen fell short of it (386,904 against 387,194)."""
    value = law.tokens(settings.pool_mib or 0, settings.slots)
    rules = calibration()
    seen = max(
        (law.tokens(b.pool_mib, b.seqs) - b.tokens for b in rules.law_boots if b.kv_dtype == law.kv_dtype), default=0.0
    )
    off = value * rules.law_within
    return Interval(max(0.0, value - max(off, seen)), value, value + off)


def _derived(settings: Settings, law: KvLaw, carried: Carried, contract: Contract) -> Funds:
    """Resolver era: only a boot knows; without one nothing is claimed."""
    tokens, notes = carried.tokens, list(carried.notes)
    if tokens is None or carried.boot is None:
        notes.append(f"the engine derives the pool itself since 1.3.0 and no declared boot applies: {EVIDENCE}")
        return Funds(None, None, "unknown: no boot ledger to carry", law, notes=tuple(notes))
    methods = dict(carried.methods or {})
    if carried.at_bound and tokens.best < contract.tokens_with_margin:
        methods["boot ledger, at its bound: at least"] = tokens
        notes.append(
            f"that boot's cache stood at its bound of {carried.boot.seqs:,} x {carried.boot.len:,} tokens: it shows "
            f"that {int(tokens.best):,} are funded, not how many more; {contract.tokens_with_margin:,} are wanted"
        )
        return Funds(None, None, "unknown: the boot stood at its bound", law, methods, tuple(notes))
    bound = settings.slots * settings.window if settings.window else None
    if bound is not None and tokens.best > bound:
        notes.append(
            f"{settings.slots:,} x {settings.window:,} = {bound:,} tokens bound the cache: the budget funds more, and "
            f"the boot may print {bound:,} and leave the rest to the slab"
        )
    same = not carried.moved_mib and tokens.is_exact
    method = "boot ledger with the same knobs" if same else "boot ledger carried over to today's knobs"
    pool = law.pool_mib(tokens.best, settings.slots)
    return Funds(tokens, pool, method, law, methods, tuple(notes), carried)
