"""Every figure that was measured or printed on the archon host, out of the public functions, in one table."""

from __future__ import annotations

import pytest
from radiance_cases import host, law, model

from archonctl.engines.radiance.calibration import calibration
from archonctl.engines.radiance.memory import allreduce_rows, ceiling_mib, exact_rows, pages, ttm_floor_mib
from archonctl.model.rad import Hidden

FP8, BF16, RESOLVER = law("fp8"), law("bf16"), law("fp8", "resolver")
CARD = host().cards[0]
CEILING = ceiling_mib(CARD)
SLAB = dict(calibration().slab_prefill)
FACTS: dict[str, tuple[float, float, float]] = {
    # the KV law, pair era
    "KiB a token, fp8": (FP8.kib_per_token, 7.3125, 0),
    "KiB a token, bf16": (BF16.kib_per_token, 13.8125, 0),
    "bf16 against fp8": (BF16.kib_per_token / FP8.kib_per_token, 1.889, 5e-4),
    "MiB of state a sequence": (FP8.state_mib, 110, 0),
    "MiB of checkpoints": (FP8.checkpoints_mib, 448, 0),
    "tokens of 3,543 MiB, 3 sequences": (FP8.tokens(3543, 3), 387_194, 1),
    "the live boot under the law": (1 - 386_904 / FP8.tokens(3543, 3), 0.00075, 5e-6),
    "sessions of 200,000 in that boot": (386_904 / 200_000, 1.93, 0.005),
    "tokens of 6,912 MiB, 4 sequences": (FP8.tokens(6912, 4), 843_565.9, 0.1),
    "tokens of 5,120 MiB, 3 sequences": (FP8.tokens(5120, 3), 608_028, 1),
    "over the contract": (FP8.tokens(5120, 3) / 600_000 - 1, 0.013, 5e-4),
    "pool for 3 x 200,000": (FP8.pool_mib(600_000, 3), 5062.7, 0.05),
    "pool for 4 x 200,000": (FP8.pool_mib(800_000, 4), 6600.9, 0.05),
    "pool for 2 x 200,000": (FP8.pool_mib(400_000, 2), 3524.4, 0.05),
    "pool for 4 x 200,000, bf16": (BF16.pool_mib(800_000, 4), 11_679.0, 0.05),
    "slab that is left under 29,120": (29_120 - BF16.pool_mib(800_000, 4), 17_441, 0.5),
    "tokens of 6,912 MiB, 2 sequences, bf16": (BF16.tokens(6912, 2), 462_904, 0.5),
    # the card
    "hand ceiling": (CEILING.hand_mib, 29_120, 2),
    "claimable": (CEILING.value.best - 29_120, 1849, 0.5),
    "ceiling of the settle line": (CEILING.value.best, 30_969, 0.5),
    "floor of the engine": (CEILING.floor_mib or 0, 209.19, 0),
    "under the ceiling at 25,600/5,120": (CEILING.value.best - 30_720, 249, 0.5),
    # the resolver era
    "tokens of 4.20 GiB": (RESOLVER.tokens(4.20 * 1024, 3), 556_047, 1),
    "the first boot against the law": (556_348 / RESOLVER.tokens(4.20 * 1024, 3) - 1, 0.0006, 1e-4),
    "sessions of 200,000 in the first boot": (556_348 / 200_000, 2.8, 0.05),
    "KiB a token of that boot": (4.20 * 1024**2 / 556_348, 7.92, 0.005),
    "tokens short of the contract": (600_000 - 556_348, 43_652, 0),
    # pinned memory
    "floor": (ttm_floor_mib(2, 45_568, 48_824, 8192, 2048), 150_200, 0),
    "floor before the raise": (ttm_floor_mib(2, 44_928, 48_824, 8192, 2048), 148_920, 0),
    "floor in pages": (pages(150_200, 4096), 38_451_200, 0),
    "default limit in pages": (pages(125_988, 4096), 32_252_928, 0),
    "target in pages": (pages(204_800, 4096), 52_428_800, 0),
    "target in GiB": (204_800 / 1024, 200, 0),
    # the wire
    "rows of 3 sequences with 2 drafted": (allreduce_rows(3, 2), 9, 0),
    "rows of 4 sequences with 2 drafted": (allreduce_rows(4, 2), 12, 0),
    "exact rows": (exact_rows(Hidden(size=2560, bytes_per_element=2, source="config"), 128), 25, 0),
    # slab against prefill
    "prefill at 22,208": (SLAB[22_208], 3397, 0),
    "prefill at 24,000": (SLAB[24_000], 3290, 0),
    "prefill at 26,071": (SLAB[26_071], 4379, 0),
    # the artefact
    "bytes of the file": (model().file_bytes, 121_969_901_568, 0),
    "GiB of the file": (model().file_bytes / 1024**3, 113.59, 0.005),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_measured_figure_comes_out(name: str) -> None:
    found, measured, within = FACTS[name]
    assert found == pytest.approx(measured, abs=within, rel=0)
