"""Which of vLLM's rules hold at which version: what is printed, what is held back, what a block is by default.

A version that cannot be read (a fork, a date) is taken by its year where there is one, else as the newest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from archonctl.engines.vllm.kv import Meaning
from archonctl.model.geometry import Geometry

Version = tuple[int, ...]
NEWEST: Version = (0, 33, 0)

_RELEASES: tuple[tuple[int, int, Version], ...] = (
    (2023, 6, (0, 1, 0)),
    (2024, 1, (0, 2, 7)),
    (2024, 4, (0, 4, 0)),
    (2024, 8, (0, 5, 4)),
    (2024, 12, (0, 6, 4)),
    (2025, 1, (0, 7, 0)),
    (2025, 3, (0, 7, 3)),
    (2025, 4, (0, 8, 2)),
    (2025, 6, (0, 9, 1)),
    (2025, 8, (0, 10, 1)),
    (2025, 10, (0, 11, 0)),
    (2025, 12, (0, 12, 0)),
    (2026, 1, (0, 14, 0)),
    (2026, 3, (0, 18, 0)),
    (2026, 4, (0, 19, 0)),
    (2026, 5, (0, 20, 1)),
    (2026, 6, (0, 21, 0)),
    (2026, 7, (0, 24, 0)),
    (2026, 8, (0, 27, 0)),
    (2026, 9, (0, 29, 0)),
    (2026, 10, (0, 32, 0)),
)
"""Year and month from which a boot of "that month" is taken to run this release (release dates on PyPI, rounded)."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

DEFAULT_BLOCK = 16
"""CacheConfig.block_size on CUDA and ROCm in all versions."""
CPU_BLOCK = 128
CPU_BLOCK_SINCE: Version = (0, 12)
"""CPU: 16 tokens in a boot of 0.11, 128 in boots of 0.32 (16 for MLA): vllm/platforms/cpu.py."""
INDEXER_BLOCK = 64
"""CUDA, sparse MLA: what the indexer and the sparse kernels take (v1/attention/backends/mla/indexer.py)."""
BACKEND_BLOCK = {"FLASHMLA": 64, "CUTLASS_MLA": 128, "FLASHINFER_MLA": 32, "TOKENSPEED_MLA": 32}
"""Smallest size of the backends that do not take 16 (get_supported_kernel_block_sizes of v1/attention/backends/mla).
"""
ASCEND_BLOCK = 128
"""vllm-ascend platform.py: block_size 128 unless set."""
MEANING_SINCE: Version = (0, 20, 1)
ALIGN_SINCE: Version = (0, 28)
"""From here prefix caching is on for recurrent models unless switched off, and then keeps a second state (cache mode
"align"). Seen off by default in boots of 0.19 and 0.27, on in boots of September 2026."""
CHECKPOINT_SINCE: Version = (0, 31)
"""From here Mamba2 layers keep one more aligned state, of a prefill (mamba_mixer2.py ``num_prefill_checkpoint_blocks``
in the source of 0.32.0; vllm pull request 57329 was opened on 2026-09-17, 0.30.0 is of 2026-09-22). Gated delta nets do
not.
"""
NULL_BLOCK_SINCE: Version = (0, 30)
"""Seen in the source of 0.32.0; boots of 0.29 do not tell (rounding of the printed memory is wider than a block)."""
SPREAD_SINCE: Version = (0, 20)
"""Kinds of layers that are padded to one another: within 1.25 before, within 1.5 in the source of 0.32.0."""
TWO_BATCHES_SINCE: Version = (0, 26)
"""From here windows also hold the tokens of a second, overlapping batch: vllm pull request 47728 (2026-07), which
0.26.0 has and 0.25.1 has not (vllm issue 49878, with the needs of both)."""
STAGES_AND_ONE_SINCE: Version = (0, 30)
"""From here the newer model runner overlaps batches of pipeline stages as well: one more than there are stages
(config/vllm.py ``max_concurrent_batches`` in the source of 0.32.0)."""
PACKED_LATENTS: tuple[Version, Version] = ((0, 11), (0, 12))
"""Models with an indexer kept their latents as fp8_ds_mla unless told otherwise (vllm pull request 25988, 2025-09-30);
later sources leave "auto" as it is, as does a boot of 0.19.1 (GLM-5.1)."""
PADDED_LATENTS: tuple[Version, Version] = ((0, 7, 2), (0, 8))
"""Each latent row was padded to 256 bytes: from vllm pull request 12676 (2025-02) to 14842 (2025-03)."""
LATENT_STEP = 128
"""Elements of two bytes that a padded row is rounded up to (``align_to_256bytes`` in vllm/utils.py)."""
PREFILL_SHARDS_UNTIL: Version = (0, 30)
"""Ranks of prefill context parallelism shared the length of a request too (v1/kv_cache_interface.py of 2026-04); in the
source of 0.32.0 those of decode context parallelism alone do."""
LATENTS_SINCE: Version = (0, 7)
"""Before, models with latent attention were run as if they had none: every head had keys and values."""
WITHOUT_LATENTS = frozenset({"minicpm3"})
"""Architectures with latent attention that vLLM 0.32.0 runs so still (model_executor/models/minicpm3.py)."""
BY_GROUPS_SINCE: Version = (0, 8, 5)
"""Before, every layer of a model was charged in full whatever its window (no hybrid cache manager)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one version."""

    version: Version
    meaning: Meaning
    null_block: bool
    spread: float
    batches: int
    aligned_states: bool
    by_groups: bool
    packed_latents: bool
    latent_step: int
    prefill_shards: bool


def rules_for(version: Version) -> Rules:
    """The rules that hold at a version."""
    return Rules(
        version=version,
        meaning="concurrency" if version >= MEANING_SINCE else "blocks",
        null_block=version >= NULL_BLOCK_SINCE,
        spread=1.5 if version >= SPREAD_SINCE else 1.25,
        batches=2 if version >= TWO_BATCHES_SINCE else 1,
        aligned_states=version >= ALIGN_SINCE,
        by_groups=version >= BY_GROUPS_SINCE,
        packed_latents=PACKED_LATENTS[0] <= version < PACKED_LATENTS[1],
        latent_step=LATENT_STEP if PADDED_LATENTS[0] <= version < PADDED_LATENTS[1] else 1,
        prefill_shards=version < PREFILL_SHARDS_UNTIL,
    )


def default_block(version: Version, *, cpu: bool, latent: bool, indexer: bool, backend: str = "") -> int:
    """Tokens a block where none is asked for. ``backend`` is --attention-backend; "" where vLLM chooses."""
    if cpu:
        return CPU_BLOCK if version >= CPU_BLOCK_SINCE and not latent else DEFAULT_BLOCK
    if indexer:
        return INDEXER_BLOCK
    return BACKEND_BLOCK.get(backend.upper(), DEFAULT_BLOCK)


def latents(rules: Rules, architecture: str) -> bool:
    """Whether a model with latent attention keeps one row a token."""
    return rules.version >= LATENTS_SINCE and architecture not in WITHOUT_LATENTS


def batches_in_flight(rules: Rules, pp: int, *, overlapped: bool) -> int:
    """Batches under way at once; ``overlapped`` with asynchronous scheduling."""
    if not overlapped:
        return max(1, pp)
    return pp + 1 if rules.version >= STAGES_AND_ONE_SINCE else max(rules.batches, pp)


def aligned_states(rules: Rules, asked: bool | None, mode: str, geometry: Geometry | None) -> bool:
    """Whether prefix caching keeps aligned states. ``asked`` None: by default, which is off without attention."""
    if mode in ("align", "none"):
        return mode == "align"
    if asked is not None:
        return asked
    kinds = {layer.attention for layer, _ in geometry.kinds} if geometry else {"full"}
    return rules.aligned_states and not kinds <= {"recurrent", "none"}


def states_kept(rules: Rules, aligned: bool, kind: str) -> int:
    """Recurrent states of one request in each table, without drafts. ``kind`` as in ``Recurrent``."""
    if not aligned:
        return 1
    return 3 if kind == "mamba2" and rules.version >= CHECKPOINT_SINCE else 2


def version_of(text: str) -> Version | None:
    """A version in free text: "0.20.1rc1.dev16+g7a1eb8a" is before 0.20.1; "July 2025" is what was released then."""
    match = re.search(r"(?<![\d.])v?0\.(\d{1,2})(?:\.(\d+|x))?(rc|a|b|\.dev)?", text)
    if match and not (match[1] == "1" and "dev" in text):
        patch = int(match[2]) if match[2] and match[2] != "x" else 0
        version = (0, int(match[1]), patch)
        return _before(version) if match[3] else version
    dated = re.search(r"(20\d\d)-(\d\d)", text)
    if dated:
        return _released(int(dated[1]), int(dated[2]))
    named = re.search(rf"\b({'|'.join(_MONTHS)})[a-z]*\.? (20\d\d)", text.lower())
    if named:
        return _released(int(named[2]), _MONTHS.index(named[1]) + 1)
    return None


def _before(version: Version) -> Version:
    major, minor, patch = version
    return (major, minor, patch - 1) if patch else (major, minor - 1, 99)


def _released(year: int, month: int) -> Version:
    running = _RELEASES[0][2]
    for since_year, since_month, version in _RELEASES:
        if (year, month) >= (since_year, since_month):
            running = version
    return running
