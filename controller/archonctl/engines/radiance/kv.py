"""The KV law of radiance: MiB of pool against tokens, for one rank.

``pool = tokens x KiB_per_token / 1024 + state x seqs [+ checkpoints]``, checkpoints only in the pair era (see
the package's docstring). Every rank holds the same share, so the tokens of one rank are the tokens of all.

Source: the formula reproduces the archon host's boots (386,904 tokens in 3,543 MiB at 3 sequences, 0.075 %
under the law; 556,348 in "4.20 GiB") and is radiance 1.0.5 ``core/mem/kv.cpp``:
``tokens = floor((pool - fixed) / sum over paged groups of bytes_per_block / block_size)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from archonctl.errors import DeclarationError
from archonctl.model.rad import RadManifest

Era = Literal["pair", "resolver"]
DTYPES = ("bf16", "fp8")
"""All that ``--kv-cache-dtype`` takes; K and V cannot be told apart."""

RESOLVER_SINCE = (1, 3, 0)


@dataclass(frozen=True, slots=True)
class KvLaw:
    """The law for one model, dtype and era. ``kib_per_token`` in KiB, the fixed parts in MiB, all for one rank."""

    kv_dtype: str
    kib_per_token: float
    state_mib: float
    """Recurrent state of one sequence."""
    checkpoints_mib: float
    """Snapshots inside the pool: 0 in the resolver era."""

    def fixed_mib(self, seqs: int) -> float:
        """MiB that ``seqs`` sequences take before the first token."""
        return self.state_mib * seqs + self.checkpoints_mib

    def pool_mib(self, tokens: float, seqs: int) -> float:
        """MiB of pool that ``tokens`` shared by ``seqs`` sequences need."""
        return tokens * self.kib_per_token / 1024 + self.fixed_mib(seqs)

    def tokens(self, pool_mib: float, seqs: int) -> float:
        """Tokens that a pool funds; 0 where the fixed parts alone fill it."""
        return max(0.0, self.tokens_in(pool_mib - self.fixed_mib(seqs)))

    def tokens_in(self, mib: float) -> float:
        """Tokens that ``mib`` of paged blocks hold, nothing fixed taken off; negative for negative ``mib``."""
        return mib * 1024 / self.kib_per_token


def era_of(version: tuple[int, ...]) -> Era:
    """The era of an engine version such as ``(1, 8, 1)``."""
    return "resolver" if version >= RESOLVER_SINCE else "pair"


def kv_law(manifest: RadManifest, kv_dtype: str, era: Era, checkpoint_slots: int | None = None) -> KvLaw:
    """The law for a model at one KV dtype.

    ``checkpoint_slots`` replaces the manifest's count (``--checkpoint-slots``); it matters in the pair era only.
    Raises DeclarationError ``kv-dtype-unknown`` for anything but bf16 and fp8, and ``manifest-contradicts``
    where the manifest does not price the dtype.
    """
    check_dtype(kv_dtype)
    if any(kv_dtype not in group.kib_per_page for group in manifest.paged.group):
        raise DeclarationError("manifest-contradicts", f"the manifest has no KiB a page for {kv_dtype}")
    slots = manifest.checkpoints.slots if checkpoint_slots is None else checkpoint_slots
    return KvLaw(
        kv_dtype=kv_dtype,
        kib_per_token=sum(group.kib_per_page[kv_dtype] for group in manifest.paged.group) / manifest.paged.page_tokens,
        state_mib=manifest.state.mib_per_sequence,
        checkpoints_mib=slots * manifest.checkpoints.mib_per_slot if era == "pair" else 0.0,
    )


def superseded_law(manifest: RadManifest, law: KvLaw) -> KvLaw | None:
    """The law with readings that were corrected later, to be shown beside ``law``; None if there are none."""
    dtype = law.kv_dtype
    if not any(dtype in group.superseded_kib_per_page for group in manifest.paged.group):
        return None
    pages = (group.superseded_kib_per_page.get(dtype, group.kib_per_page[dtype]) for group in manifest.paged.group)
    return KvLaw(dtype, sum(pages) / manifest.paged.page_tokens, law.state_mib, law.checkpoints_mib)


def check_dtype(kv_dtype: str) -> None:
    """Raise DeclarationError ``kv-dtype-unknown`` unless the engine has this dtype."""
    if kv_dtype not in DTYPES:
        raise DeclarationError(
            "kv-dtype-unknown",
            f"radiance has no KV dtype {kv_dtype!r}: {' or '.join(DTYPES)}",
            where="contract.kv_dtype",
            hint="set [contract] kv_dtype; K and V cannot differ in this engine",
        )
