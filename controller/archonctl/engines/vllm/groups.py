"""How vLLM forms cache groups: layers that share one block table, over one pool of equal blocks.

Read from vLLM 0.32.0 ``v1/core/kv_cache_utils.py`` (``get_kv_cache_groups``, ``unify_kv_cache_spec_page_size``,
``_get_kv_cache_groups_uniform_page_size``, ``_get_kv_cache_bytes_per_block``) and ``v1/kv_cache_interface.py``.
Layouts that pack layers of unlike pages side by side (DeepSeek-V4) are not covered: ``form_groups`` refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from archonctl.errors import DeclarationError

Kind = Literal["full", "mla", "sliding", "chunked", "mamba"]


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What one layer keeps on one rank.

    ``token_bytes`` a token (0 for mamba, whose ``state_bytes`` is one state), ``window`` the sliding window or the
    chunk in tokens. ``page_bytes`` is what one block of this layer takes, padding included.
    """

    kind: Kind
    block_tokens: int
    token_bytes: int = 0
    window: int = 0
    state_bytes: int = 0
    padded_bytes: int = 0
    heads: int = 0
    """KV heads of the rank: layers as wide as each other, but cut otherwise, are not one kind."""

    @property
    def page_bytes(self) -> int:
        """Bytes of one block of one layer."""
        return self.padded_bytes or self.state_bytes or self.block_tokens * self.token_bytes


@dataclass(frozen=True, slots=True)
class Bucket:
    """Layers with one spec, in order; ``stages`` holds the pipeline stage of each (all 0 without pp)."""

    spec: LayerSpec
    stages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """One block table. ``specs`` are its distinct layers; ``stage_bytes`` what one block takes on each stage."""

    specs: tuple[LayerSpec, ...]
    layers: int
    stage_bytes: tuple[int, ...]

    @property
    def block_tokens(self) -> int:
        """Tokens a block of this group (the same for all of its layers)."""
        return self.specs[0].block_tokens


def form_groups(
    buckets: Sequence[Bucket], *, stages: int = 1, hybrid_manager: bool = True, spread: float = 1.5
) -> tuple[Group, ...]:
    """Groups of a model's layers, as the engine forms them.

    ``hybrid_manager`` False is ``--disable-hybrid-kv-cache-manager``: local layers are then charged in full.
    ``spread``: below this ratio of the largest to the smallest kind, all kinds are padded to the largest
    (1.5 in vLLM 0.32.0, 1.25 in 0.11). Raises DeclarationError ``kv-pages-unlike`` or ``kv-manager-needed`` where vLLM
    would not boot either.
    """
    buckets = _merged(buckets)
    if not buckets:
        return ()
    if _same_type([bucket.spec for bucket in buckets]):
        return (_group(buckets, stages),)
    if not hybrid_manager:
        return (_group(_promoted(buckets), stages),)
    unified = _unified(buckets)
    if unified is None:
        return (_group(_in_full(buckets), stages),)
    if len({bucket.spec for bucket in unified}) < len(unified):
        unified = _merged(unified)
    counts = [len(bucket.stages) for bucket in unified]
    size = max(counts) if max(counts) < min(counts) * spread else min(counts)
    groups: list[Group] = []
    for bucket in unified:
        groups += _tables(bucket, -(-len(bucket.stages) // size), stages)
    return tuple(groups)


def _tables(bucket: Bucket, tables: int, stages: int) -> list[Group]:
    """The layers of one kind dealt out over some tables, one after the other."""
    layers, specs, size = len(bucket.stages), (bucket.spec,), bucket.spec.page_bytes
    if stages > 1:
        dealt = [bucket.stages[i::tables] for i in range(tables)]
        return [Group(specs, len(part), tuple([part.count(s) * size for s in range(stages)])) for part in dealt]
    shares = [(layers - i - 1) // tables + 1 for i in range(tables)]
    return [Group(specs, share, (share * size,)) for share in shares]


def _group(buckets: Sequence[Bucket], stages: int) -> Group:
    if stages == 1:
        share: tuple[int, ...] = (sum(len(b.stages) * b.spec.page_bytes for b in buckets),)
    else:
        share = tuple(sum(b.stages.count(s) * b.spec.page_bytes for b in buckets) for s in range(stages))
    return Group(tuple(b.spec for b in buckets), sum(len(b.stages) for b in buckets), share)


def _merged(buckets: Sequence[Bucket]) -> list[Bucket]:
    if len(buckets) < 2:
        return [bucket for bucket in buckets if bucket.stages]
    merged: dict[LayerSpec, tuple[int, ...]] = {}
    for bucket in buckets:
        if bucket.stages:
            merged[bucket.spec] = merged.get(bucket.spec, ()) + bucket.stages
    return [Bucket(spec, stages) for spec, stages in merged.items()]


def _same_type(specs: Sequence[LayerSpec]) -> bool:
    """All need the same number of token slots: one table serves them whatever their widths."""
    first = specs[0]
    if any(spec.block_tokens != first.block_tokens for spec in specs):
        return False
    if first.kind in ("full", "mla"):
        return all(spec.kind in ("full", "mla") for spec in specs)
    if first.kind == "mamba":
        return all(spec.kind == "mamba" and spec.page_bytes == first.page_bytes for spec in specs)
    return all(spec.kind == first.kind and spec.window == first.window for spec in specs)


def _unified(buckets: Sequence[Bucket]) -> list[Bucket] | None:
    """All pages as large as the largest: longer blocks where that divides, padding where it does not.

    None where a latent layer's page does not divide: its rows cannot be padded to just any page.
    """
    largest = max(bucket.spec.page_bytes for bucket in buckets)
    unified: list[Bucket] = []
    for bucket in buckets:
        spec = bucket.spec
        if spec.page_bytes == largest:
            pass
        elif spec.kind != "mamba" and largest % spec.page_bytes == 0:
            spec = replace(spec, block_tokens=spec.block_tokens * (largest // spec.page_bytes))
        elif spec.kind != "mla":
            spec = replace(spec, padded_bytes=largest)
        else:
            return None
        unified.append(Bucket(spec, bucket.stages))
    return unified


def _in_full(buckets: Sequence[Bucket]) -> list[Bucket]:
    """What is left where pages cannot be made equal: windows beside latent layers are charged in full."""
    if any(bucket.spec.kind == "sliding" for bucket in buckets):
        with suppress(DeclarationError):
            if all(bucket.spec.kind != "chunked" for bucket in buckets):
                return _promoted(buckets)
    pages = " and ".join(f"{size:,}" for size in sorted({bucket.spec.page_bytes for bucket in buckets}))
    raise DeclarationError(
        "kv-pages-unlike",
        f"pages of {pages} bytes cannot share one pool of blocks",
        hint="vLLM stores such models in a layout of its own, which no law here covers",
    )


def _promoted(buckets: Sequence[Bucket]) -> list[Bucket]:
    """Local layers beside full ones, charged like them: one table for all. Raises where other kinds remain."""
    blocks = {bucket.spec.block_tokens for bucket in buckets if bucket.spec.kind in ("full", "mla")}
    promoted = [_charged_in_full(bucket, blocks) if blocks else bucket for bucket in buckets]
    windows = {(bucket.spec.kind, bucket.spec.window) for bucket in buckets if bucket.spec.window}
    mixed = len(windows) > len({kind for kind, _ in windows}) and all(bucket.spec.kind != "mla" for bucket in buckets)
    if mixed or not _same_type([bucket.spec for bucket in promoted]):
        kinds = ", ".join(sorted({bucket.spec.kind for bucket in buckets}))
        raise DeclarationError(
            "kv-manager-needed",
            f"without the hybrid cache manager one table must serve all layers; {kinds} layers cannot share one",
            hint="take --disable-hybrid-kv-cache-manager out",
        )
    return promoted


def _charged_in_full(bucket: Bucket, blocks: set[int]) -> Bucket:
    if bucket.spec.kind not in ("sliding", "chunked"):
        return bucket
    size = next(iter(blocks)) if len(blocks) == 1 else bucket.spec.block_tokens
    return Bucket(replace(bucket.spec, kind="full", window=0, block_tokens=size), bucket.stages)
