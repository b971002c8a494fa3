"""Random caches that nobody asked about yet, against the planner of the installed vLLM."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from support.kv_cases import ask_vllm, difference, random_case

pytestmark = [pytest.mark.engine, pytest.mark.optional]


def test_the_law_says_what_the_installed_vllm_says() -> None:
    program = os.environ.get("ARCHON_TEST_VLLM", "")
    if not program:
        pytest.skip("ARCHON_TEST_VLLM names no vllm")
    seeds = random.sample(range(10**6, 10**9), 500)
    answers = ask_vllm(Path(program).with_name("python"), seeds)
    differing = [
        (seed, found)
        for seed, answer in zip(seeds, answers, strict=True)
        if (found := difference(random_case(seed), answer))
    ]
    assert not differing, differing[:3]
