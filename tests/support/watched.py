"""What ``archonctl watch`` may have to show, as values."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC
from pathlib import Path

from archonctl.cli.watch_text import View, frame, text_of
from archonctl.observe.watch import Blind, Memory, Note, Planned, Snapshot, Watched

AT = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC."""
_GIB = 1 << 30

ARCHON = Watched(
    name="archon",
    verdict="holds",
    evidence_age_s=7_500.0,
    engine="radiance",
    version="1.2.0",
    release="1a2b3c4d5e6f7081",
    seqs=3,
    len_tokens=200_000,
    margin=0.02,
    planned_tokens=(611_000, 612_352, 613_000),
    live_tokens=612_352,
    unit="active",
    active_at=AT - 400_000,
    restarts=0,
    runs_release=True,
    refused=None,
    kv_usage=0.41,
    running=2,
    waiting=0,
    preemptions=0,
    turned_away=0,
    engine_age_s=1.2,
    blind=(),
)
TWO_CARDS = (
    Memory(
        "0",
        95.6 * _GIB,
        91.3 * _GIB,
        _two := (
            Planned("archon", "weights", 63.1 * _GIB),
            Planned("archon", "kv_cache", 24.0 * _GIB),
            Planned("archon", "activation", 3.4 * _GIB),
        ),
    ),
    Memory("1", 95.6 * _GIB, 92.9 * _GIB, _two),
    Memory("host", 125.7 * _GIB, 61.0 * _GIB, (Planned("archon", "ddr_cache", 44.5 * _GIB),)),
)
HOST = (
    Memory(
        "host",
        125.7 * _GIB,
        21.0 * _GIB,
        (Planned("tiny", "weights", 4.1 * _GIB), Planned("tiny", "kv_cache", 2 * _GIB)),
    ),
)
TINY = replace(
    ARCHON,
    name="tiny",
    engine="llamacpp",
    version="b11434",
    seqs=2,
    len_tokens=512,
    planned_tokens=(1024, 1024, 1024),
    live_tokens=1024,
    margin=0.0,
    kv_usage=None,
    release="99aabbccddeeff00",
    evidence_age_s=41.0,
    active_at=AT - 95,
)
DRIFT = Note(AT - 600, "archon", "warn", "kernel since the verdict: expected 6.1, found 6.12", "drift-kernel")
RAN_OUT = Note(
    AT - 90_000,
    "archon",
    "bad",
    "out of memory (kv_cache, says the engine): CUDA error: out of memory",
    "alert-memory-failures",
)
BROKEN = replace(
    TINY, verdict="broken", live_tokens=512, refused=("contract-short", AT - 40), restarts=1, evidence_age_s=12.0
)
DOWN = replace(
    TINY,
    verdict="down",
    live_tokens=None,
    unit="failed",
    active_at=None,
    restarts=5,
    runs_release=None,
    refused=("ttm-below-floor", AT - 200),
    kv_usage=None,
    running=None,
    waiting=None,
    engine_age_s=None,
    blind=(Blind("engine", None),),
)
NO_EVIDENCE = replace(
    TINY,
    verdict="no evidence",
    live_tokens=None,
    engine_age_s=34.0,
    blind=(Blind("engine", 34.0),),
    evidence_age_s=90_001,
)
_WORDS = ("holds", "holds", "holds", "broken", "no evidence", "down", "unverified", "half done")
MANY = tuple(
    replace(
        (ARCHON, TINY)[n % 2],
        name=f"endpoint-{n:02}",
        verdict=_WORDS[n % 8],
        kv_usage=None if n % 2 else n / 20,
        running=n,
    )
    for n in range(20)
)
_REFUSED = Note(AT - 40, "tiny", "bad", "a start was refused: contract-short", "contract-short")

CASES = {
    "holds": Snapshot(AT, True, HOST, (TINY,)),
    "broken": Snapshot(AT, True, HOST, (BROKEN,), (Note(AT - 12, "tiny", "bad", "holds -> broken"), _REFUSED)),
    "down": Snapshot(
        AT,
        True,
        HOST,
        (DOWN,),
        (Note(AT - 200, "tiny", "bad", "a start was refused: ttm-below-floor", "ttm-below-floor"),),
    ),
    "no-evidence": Snapshot(AT, True, HOST, (NO_EVIDENCE,)),
    "none": Snapshot(AT, True, (Memory("host", 125.7 * _GIB, 21.0 * _GIB, ()),), ()),
    "first": Snapshot(AT, False, (Memory("host", None, None, ()),), ()),
    "twenty": Snapshot(AT, True, TWO_CARDS, MANY, (RAN_OUT, DRIFT)),
    "archon": Snapshot(
        AT, True, TWO_CARDS, (ARCHON, TINY), (RAN_OUT, DRIFT, Note(AT - 3, "", "info", "journal: well again"))
    ),
}
"""By what there is to see."""

SIZES = ((80, 24), (120, 40), (40, 12))
"""Of the golden frames."""


def golden(name: str) -> str:
    """The frames of a case as they lie in ``tests/golden/watch``; one size also without Unicode."""
    looks = [(size, True) for size in SIZES] + [((80, 24), False)]
    frames = []
    for (width, height), unicode in looks:
        lines = frame(CASES[name], View("host", unicode=unicode, zone=UTC), width, height)
        frames.append(f"{width}x{height}{'' if unicode else ' ascii'}\n{text_of(lines)}\n")
    return "\n".join(frames)


def main(folder: str) -> None:
    """Write them anew: ``python -m support.watched tests/golden/watch``; then look at them."""
    for name in CASES:
        (Path(folder) / f"{name}.txt").write_text(golden(name), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
