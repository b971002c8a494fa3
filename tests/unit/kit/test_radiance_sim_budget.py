"""The radiance simulator computes what was seen, and parses as the engine does."""

from __future__ import annotations

import pytest

from archonctl.engines.knobs import edition, load_table
from support.radiance_sim.budget import Refused, pinned_mib, resolve
from support.radiance_sim.config import Simulation, read
from support.radiance_sim.flags import FLAGS, BadCommandLine, Options, parse
from support.radiance_sim.requests import BadRequest, tokens
from support.radiance_sim.requests import parse as parse_request

SHAPE = ["--model", "m.rad", "--max-num-seqs", "3", "--max-model-len", "200000", "--kv-cache-dtype", "fp8"]
SHAPE += ["--tp", "2", "--max-num-batched-tokens", "2048", "--gpu-headroom-mib", "96"]


def options(version: str, *more: str) -> tuple[Options, Simulation]:
    simulation = Simulation(version=version)
    return parse([*SHAPE, *more], simulation.release), simulation


def tokens_of(version: str, *more: str) -> int:
    return resolve(*options(version, *more)).tokens


def test_both_boots_that_were_seen_are_met_to_the_token() -> None:
    pair = ("--vram-weights-mib", "26071", "--vram-kv-mib", "3543", "--host-pool-mib", "44928")
    assert tokens_of("1.2.0", *pair) == 386_904
    assert tokens_of("1.8.1", "--host-pool-mib", "44928") == 556_348


def test_the_lever_ends_at_the_bound_of_the_cache() -> None:
    assert tokens_of("1.8.1", "--host-pool-mib", "45568") == 600_000
    assert tokens_of("1.8.1", "--host-pool-mib", "60000") == 600_000


def test_a_stated_pool_is_not_cut_to_the_worst_case() -> None:
    pair = ("--vram-weights-mib", "25600", "--vram-kv-mib", "5120", "--host-pool-mib", "44928")
    assert tokens_of("1.2.0", *pair) == 607_740


def test_a_shortfall_ends_the_boot() -> None:
    with pytest.raises(Refused, match="SHORT BY"):
        resolve(*options("1.8.1", "--host-pool-mib", "1000"))
    with pytest.raises(Refused, match=r"SHORT BY +151\.19 MiB"):
        resolve(*options("1.2.0", "--vram-weights-mib", "26000", "--vram-kv-mib", "5120", "--host-pool-mib", "44928"))
    with pytest.raises(Refused, match="DID NOT FIT"):
        resolve(*options("1.2.0", "--vram-weights-mib", "22208", "--vram-kv-mib", "6912", "--host-pool-mib", "40960"))


def test_pinned_memory_is_the_floor_that_was_computed_by_hand() -> None:
    found, _ = options("1.8.1", "--host-pool-mib", "45568", "--prefix-cache-mib", "8192")
    assert pinned_mib(found) == 150_200


@pytest.mark.parametrize(
    ("version", "flag", "known"),
    [
        ("1.0.5", "--vram-kv-mib", True),
        ("1.3.0", "--vram-kv-mib", False),
        ("1.0.5", "--prefix-cache-mib", False),
        ("1.8.1", "--prefix-cache-mib", True),
        ("1.8.1", "--prefix-cache-host-mib", False),
        ("1.3.0", "--prefix-cache-host-mib", True),
        ("1.2.0", "--busy-prefill-chunk", False),
        ("1.3.0", "--busy-prefill-chunk", True),
        ("1.8.1", "--vram-kv-mib=4", False),
    ],
)
def test_flags_come_and_go_with_the_version(version: str, flag: str, known: bool) -> None:
    release = Simulation(version=version).release
    if known:
        parse([*SHAPE, flag, "1"], release)
        return
    with pytest.raises(BadCommandLine, match="unknown option"):
        parse([*SHAPE, flag, "1"], release)


@pytest.mark.parametrize("version", ["1.0.5", "1.1.1", "1.2.0", "1.3.0", "1.8.1"])
def test_the_simulator_and_the_knob_table_know_the_same_flags(version: str) -> None:
    release = Simulation(version=version).release
    ours = {name for name, flag in FLAGS.items() if flag.since <= release < flag.removed}
    elsewhere = {"--help", "-h", "--kld-record", "--kld-ref", "--kld-corpus", "--kld-out"}
    assert ours == {name for name, found in edition(load_table("radiance"), version).options.items()} - elsewhere


def test_numbers_are_read_as_c_reads_them_and_words_are_checked() -> None:
    found = parse([*SHAPE, "--host-pool-mib", "junk", "--port", "80x", "--port", " 81"], (1, 8, 1))
    assert (found.number("--host-pool-mib"), found.number("--port")) == (0, 81)
    for bad in (["--kv-cache-dtype", "q8_0"], ["--temp", "3"], ["--tp", "0"], ["--draft-model", "x"], ["--port"]):
        with pytest.raises(BadCommandLine):
            parse([*SHAPE, *bad], (1, 8, 1))


def test_what_to_simulate_comes_from_options_before_the_environment() -> None:
    simulation, rest = read(
        ["--simulate-version", "1.2.0", "--model", "m"], {"RADIANCE_SIM_VERSION": "1.8.1", "RADIANCE_SIM_LOAD_S": "2.5"}
    )
    assert (simulation.version, simulation.load_s, rest) == ("1.2.0", 2.5, ["--model", "m"])


def test_a_request_is_refused_by_the_name_of_the_field_and_an_answer_is_cut_to_the_window() -> None:
    with pytest.raises(BadRequest, match="logit_bias"):
        parse_request(b'{"prompt": "a", "logit_bias": {}}', chat=False, window=10, model="m")
    with pytest.raises(BadRequest, match="shorten the prompt by at least 1 tokens"):
        parse_request(b'{"prompt": "a b c"}', chat=False, window=3, model="m")
    wanted = parse_request(b'{"prompt": "a b c", "max_tokens": 99}', chat=False, window=10, model="m")
    assert (wanted.prompt, wanted.answer) == (3, 7)
    assert tokens("word " * 1000) == 1000
