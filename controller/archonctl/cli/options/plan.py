"""Options of ``archonctl plan``."""

from __future__ import annotations

import argparse

from archonctl.cli.options.common import endpoint

NOTES = """\
examples:
  archonctl plan --seqs 3 --len 200000
  archonctl plan env/archon.toml --set engine.knobs.host-pool-mib=44928
  archonctl plan env/tiny.toml --explain                the law with the numbers put in
  archonctl plan env/archon.toml --solve host-pool      the least host pool under which it holds
  archonctl plan env/archon.toml --solve len --sweep seqs=1..8
  archonctl plan env/archon.toml --relieve pool=512     what gives the KV pool of each card 512 MiB more
  archonctl plan env/archon.toml --out archon.plan.json and later: archonctl apply archon.plan.json
  archonctl plan env/tiny.toml --sweep len=4k..128k:x2 --sweep kv-dtype=f16,q8_0

NAME is seqs, len, kv-dtype, and what the engine pays with: host-pool, kv-pool, slab (radiance); utilization,
kv-memory, cpu-space, tp, pp, cpu-offload (vLLM); utilization, tp, pp, cpu-offload (SGLang); context, prompt-cache,
gpu-layers, cpu-moe (llama.cpp). KEY is one of these or any dotted key of the declaration.

exit: 0 holds, 1 short, 3 unknown; with --solve whether an answer was found, with --sweep the best point, with
--oracle 1 also where the engine's planner says something else"""


def configure(verb: argparse.ArgumentParser) -> None:
    """Add them."""
    endpoint(verb)
    group = verb.add_argument_group("questions")
    group.add_argument(
        "--explain",
        action="store_true",
        help="the law with the numbers put in, term by term, and where each comes from",
    )
    group.add_argument(
        "--oracle",
        action="store_true",
        help="ask the engine's own planner too (llama-fit-params or vLLM's, beside engine.binary, or engine.oracle)",
    )
    group.add_argument(
        "--relieve",
        metavar="CLASS[=MIB][@CARD|@host]",
        help="a class of memory that ran out (archonctl failures): the least change that gives so much of it back; "
        "'pool' for a KV pool that was there and too small",
    )
    group.add_argument(
        "--solve",
        metavar="NAME[,NAME]",
        help="leave these free and get their best values: the most of seqs or len, the least of what is paid",
    )
    group.add_argument(
        "--sweep",
        metavar="KEY=A..B[:STEP]",
        action="append",
        default=[],
        help="a row for each value: A..B, A..B:STEP, A..B:xFACTOR or a,b,c; repeated: every combination",
    )
    group.add_argument(
        "--out",
        metavar="FILE",
        help="keep the plan too, and all that it stands on: 'archonctl apply FILE' does that or refuses (FILE.json)",
    )
