"""What radiance prints: one letter, the rank where there are several, a message. All on standard error.

A message of several lines is one call: only its first line carries the letter.
"""

from __future__ import annotations

import math
import os
import sys

from support.radiance_sim.budget import (
    CHECKPOINT_MIB,
    GROUP_KIB,
    GROUP_PAD_KIB,
    PAGE_TOKENS,
    STATE_MIB,
    Budget,
    page_kib,
    size,
)
from support.radiance_sim.config import Simulation
from support.radiance_sim.flags import Options

GB = 1_000_000_000
LEVELS = {"error": "E", "warn": "EW", "info": "EWI", "debug": "EWID", "trace": "EWIDT"}
"""Letters that RADIANCE_LOG lets through."""
LOAD_STEP_MIB = 8192


class Log:
    """Where the lines go; ``ranks`` decides whether a rank is printed."""

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self._letters = LEVELS.get(os.environ.get("RADIANCE_LOG", ""), LEVELS["info"])
        self.steps = os.environ.get("RADIANCE_LOG_STEPS", "0") not in ("", "0")

    def say(self, letter: str, text: str, rank: int = 0) -> None:
        """One log call."""
        if letter not in self._letters:
            return
        tag = f"{letter}[{rank}]" if self.ranks > 1 else letter
        sys.stderr.write(f"{tag} {text}\n")
        sys.stderr.flush()

    def every(self, letter: str, text: str) -> None:
        """The same by every rank."""
        for rank in range(self.ranks):
            self.say(letter, text, rank)


def budget_table(budget: Budget) -> str:
    """``VRAM budget, per card``, in the order in which memory is spent."""
    room = budget.experts + budget.kv or 1.0
    backing = 100 * budget.tokens / budget.worst_tokens
    rows = [
        ("card total", budget.total, ""),
        ("already held", budget.held, "measured: driver context, code objects, anything else resident"),
        ("activation arena", budget.arena, "computed from the buffer plan"),
        ("step staging", budget.staging, "block tables and media staging of a step"),
        ("--gpu-headroom-mib", budget.headroom, "left unclaimed on purpose"),
        ("claimable", budget.claimable, ""),
        ("static weights", max(0.0, budget.claimable - room), "off the top"),
        ("elastic", room, ""),
        ("  experts", budget.experts, f"{100 * budget.experts / room:.0f}% of it"),
        (
            "  kv cache",
            budget.kv,
            f"{100 * budget.kv / room:.0f}% of it -- {backing:.0f}% backing of the {budget.seqs} x {budget.length} "
            f"worst case: {budget.sessions:.1f} full-length sessions",
        ),
        ("vram_weights", budget.experts, ""),
        ("vram_kv", budget.kv, "stated by --vram-kv-mib" if budget.kv_stated else "the cache's share"),
        ("unclaimed", budget.settled_free, ""),
    ]
    lines = [f"  {name:<18} {size(mib):>10}   {note}".rstrip() for name, mib, note in rows]
    return "\n".join(["VRAM budget, per card:", *lines])


def kv_report(budget: Budget, options: Options) -> str:
    """The paged groups, each with the tokens of the one axis that they share, then the states and the pool."""
    dtype, seqs = options.text("--kv-cache-dtype", "bf16"), budget.seqs
    pages = budget.tokens // PAGE_TOKENS
    lines = ["kv: KV layer bundles 12/12/36 (60 real layers)"]
    for name, kib in GROUP_KIB.items():
        lines.append(
            f"    {name:<14} full   12 layers  block {PAGE_TOKENS} tok  page {kib[dtype]:.2f} KiB  "
            f"{pages} blocks = {size(pages * kib[dtype] / 1024)}  ({budget.tokens} tokens)"
        )
    copies = 2 if options.depth else 1
    lines.append(
        f"    {'gdn_state':<14} linear 36 layers  state {size(STATE_MIB / copies)}  "
        f"{copies * seqs} slots = {size(STATE_MIB * seqs)}"
    )
    lines.append(
        f"    pool at 0x7f2c00000000, {size(budget.kv)}; groups at +0, "
        f"+{size(pages * GROUP_KIB['kv_attn'][dtype] / 1024 + GROUP_PAD_KIB / 1024)}"
    )
    slots = options.number("--checkpoint-slots", 8)
    lines.append(f"    checkpoints linear {slots} slots x 56.00 MiB = {size(56 * slots)}")
    return "\n".join(lines)


def kv_lines(log: Log, budget: Budget, options: Options) -> None:
    """The share of the worst case (only of a derived pool), the report, and the warning that one request cannot fit."""
    if not budget.kv_stated:
        log.say(
            "I",
            f"kv: the pool backs {100 * budget.tokens / budget.worst_tokens:.0f}% of the worst case ({budget.seqs} "
            f"sequences all at {budget.length} tokens), {budget.sessions:.1f} full-length sessions. That is "
            "concurrency at length, not a bound on any one request.",
        )
    log.every("I", kv_report(budget, options))
    if budget.tokens < budget.length:
        missing = (budget.length - budget.tokens) * page_kib(options.text("--kv-cache-dtype", "bf16")) / 4096
        log.say(
            "W",
            f"kv group 'kv_attn' holds {budget.tokens} tokens but the context limit is {budget.length}: ONE request "
            f"longer than {budget.tokens} tokens is accepted by the API and then refused as too large to ever fit; "
            f"{size(missing)} more would hold it",
        )


def load_line(read_mib: float, total_mib: float, gb_s: float) -> str:
    """Progress over the container."""
    offset = int(read_mib * 1024 * 1024)
    return f"load: {size(read_mib)} of {size(total_mib)} read, {gb_s:.1f} GB/s, at container offset {offset}"


def settle(log: Log, budget: Budget, options: Options, simulation: Simulation) -> None:
    """What stayed free on each card, in the form of the version; a card that is short gives checkpoints back."""
    free = budget.settled_free
    slots = options.number("--checkpoint-slots", 8)
    if (missing := min(slots, math.ceil((budget.floor - free) / CHECKPOINT_MIB))) > 0:
        kept = f"{slots - missing} of {slots} backed ({size(CHECKPOINT_MIB)} each)"
        log.say("W", f"checkpoint slots: {kept}, {missing} withdrawn: the card is short of its headroom")
    for card in range(log.ranks):
        if simulation.release >= (1, 1, 0):
            kept = budget.floor - budget.headroom
            text = (
                f"card {card} settled at {size(free)} free against {size(budget.floor)} (the {size(budget.headroom)} "
                f"--gpu-headroom-mib and {size(kept)} kept for the static region)"
            )
            log.say("I" if free >= budget.floor else "W", text, card)
            continue
        asked = f"against the {size(budget.headroom)} --gpu-headroom-mib asked to keep"
        if free < budget.headroom:
            more = size(budget.headroom - free)
            log.say("W", f"card {card} settled at {size(free)} free {asked}. Raise --gpu-headroom-mib by {more}", card)
        elif free > budget.headroom + 256:
            log.say(
                "W",
                f"card {card} settled at {size(free)} free {asked}, so {size(free - budget.headroom)} is unused",
                card,
            )
        else:
            log.say("I", f"card {card} settled at {size(free)} free, {asked}", card)
