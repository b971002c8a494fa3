"""radiance: an engine whose cards hold an expert slab and a KV pool side by side.

Two eras, and nothing that is true of one may be assumed of the other:

**Pair era (before 1.3.0).** The operator states both budgets of every card: ``--vram-weights-mib`` (the slab)
and ``--vram-kv-mib`` (the pool). Capacity is arithmetic: the pool minus what is fixed, divided by the price of
a token. 448 MiB of prefix checkpoints (8 slots of 56 MiB) sit in the pool and are paid before the first token.
What can go wrong is stating a pair that the card cannot hold, or a pool that cannot hold the contract: the
engine boots, answers ``/health``, and refuses the long request.

**Resolver era (1.3.0 and later).** Both knobs are gone: giving one is a boot refusal. The engine's budget
resolver derives the split from ``--gpu-headroom-mib``, the cache bound (``--max-num-seqs`` times
``--max-model-len``) and ``--host-pool-mib``: the expert plane takes what the pinned host pool cannot hold, the
cache takes the rest, and idle cache blocks are lent to the slab. The capacity is therefore a figure of the
boot ledger, not of the declaration, and a plan can only carry a boot that was seen over to today's knobs.
The 448 MiB no longer sit in the pool: 4.20 GiB less 3 x 110 MiB at 7.3125 KiB a token is 556,047 tokens, and
that boot printed 556,348, which the rounding of "4.20" covers; with the 448 MiB it would have been 493,311.
The lever is the host pool: every MiB of it takes a MiB of expert demand off the card, and the cache wins it.

Modules: ``kv`` (the KV law), ``memory`` (ceilings, pinned memory, all-reduce rows), ``settings`` (knobs read
and checked), ``calibrate`` (a seen boot carried over), ``forecast``, ``levers``, ``demands``, ``command`` and
``adapter``. Data: ``knobs.toml`` (the knob table by version), ``calibration.toml`` (quoted and measured rates).
"""
