"""The 1.8.1 cutover of the archon endpoint, found short before the boot; and moves of the other engines."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archonctl.deployment.load import load_endpoint
from archonctl.errors import ArchonError
from archonctl.migration.edit import Edits
from archonctl.migration.propose import propose
from archonctl.migration.values import Proposal

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def cutover() -> Proposal:
    return propose(load_endpoint(REPOSITORY / "env" / "archon-pair.toml", {}, {}), "1.8.1")


def steps(found: Proposal, action: str) -> dict[str, Any]:
    return {step.key.removeprefix("engine.knobs."): step for step in found.steps if step.action == action}


def test_the_pair_and_the_disk_tier_go_and_the_prefix_cache_is_renamed(cutover: Proposal) -> None:
    gone = {"vram-weights-mib", "vram-kv-mib", "prefix-cache-disk-mib", "prefix-cache-dir"}
    assert set(steps(cutover, "drop")) == gone
    assert all(step.source and step.why for step in steps(cutover, "drop").values())
    assert steps(cutover, "rename")["prefix-cache-host-mib"].renamed_to == "engine.knobs.prefix-cache-mib"
    assert steps(cutover, "add")["busy-prefill-chunk"].after == "auto"


def test_three_times_200_000_is_found_short_before_the_boot(cutover: Proposal) -> None:
    assert cutover.before.verdict == "holds"
    assert cutover.moved.verdict == "short"
    assert cutover.moved.kv_tokens is not None
    assert cutover.moved.kv_tokens[1] == 556_348
    assert cutover.moved.sessions is not None
    assert f"{cutover.moved.sessions:.1f}" == "2.8"
    assert cutover.moved.ttm_floor_mib == 148_920


def test_the_lever_and_the_floor_are_proposed_and_the_promise_stays(cutover: Proposal) -> None:
    assert steps(cutover, "set")["host-pool-mib"].after == 45_568
    assert cutover.proposed.verdict == "holds"
    assert cutover.proposed.ttm_floor_mib == 150_200
    data = tomllib.loads(cutover.text)
    assert data["contract"] == tomllib.loads((REPOSITORY / "env/archon-pair.toml").read_text())["contract"]


def test_the_proposed_text_has_the_knobs_of_the_declaration_that_ran_after_it(cutover: Proposal) -> None:
    after = tomllib.loads((REPOSITORY / "env" / "archon.toml").read_text())
    knobs = {key: value for key, value in after["engine"]["knobs"].items() if key != "prefill-interleave"}
    proposed = tomllib.loads(cutover.text)
    assert proposed["engine"]["knobs"] == knobs
    assert proposed["engine"]["version"] == "1.8.1"
    assert proposed["boot"] == after["boot"]


def test_every_comment_stays_where_it_was(cutover: Proposal) -> None:
    before = (REPOSITORY / "env" / "archon-pair.toml").read_text().splitlines()
    kept = [line for line in before if line.lstrip().startswith("#")]
    assert [line for line in cutover.text.splitlines() if line in kept] == kept
    assert "host-pool-mib = 45_568                    # pinned, a rank" in cutover.text


def test_without_a_seen_boot_the_move_is_unknown_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "env" / "alone.toml"
    path.parent.mkdir()
    text = (REPOSITORY / "env" / "archon-pair.toml").read_text()
    path.write_text(text.replace('"env/', f'"{REPOSITORY}/env/'))
    found = propose(load_endpoint(path, {}, {}), "1.8.1")
    assert found.moved.verdict == "unknown"
    assert not steps(found, "set")
    named = propose(load_endpoint(path, {}, {}), "1.8.1", REPOSITORY / "env" / "archon.toml")
    assert named.moved.verdict == "short"


def test_nothing_is_written(cutover: Proposal) -> None:
    assert "vram-kv-mib" in Path(cutover.path).read_text()


VLLM = """\
[contract]
seqs = 4
len = 8192
[engine]
kind = "vllm"
version = "0.9.2"
binary = "/v/bin/vllm"
[engine.knobs]
kv-cache-memory-bytes = 17_181_966_336    # a comment
swap_space = 4
disable-log-requests = true
tensor-parallel-size = 2
[engine.env]
VLLM_USE_V1 = "1"
OMP_NUM_THREADS = "8"
[model]
path = "/models/none"
"""


def moved(tmp_path: Path, text: str, to: str) -> Proposal:
    path = tmp_path / "x.toml"
    path.write_text(text)
    return propose(load_endpoint(path, {}, {}), to)


def test_vllm_0_9_2_to_0_32_0(tmp_path: Path) -> None:
    found = moved(tmp_path, VLLM, "0.32.0")
    assert set(steps(found, "drop")) == {"swap-space", "disable-log-requests", "engine.env.VLLM_USE_V1"}
    data = tomllib.loads(found.text)
    assert data["engine"]["knobs"] == {"kv-cache-memory-bytes": 17_181_966_336, "tensor-parallel-size": 2}
    assert data["engine"]["env"] == {"OMP_NUM_THREADS": "8"}
    assert "# a comment" in found.text
    assert "gpu-memory-utilization" in steps(found, "default")
    assert found.proposed.verdict is None  # the model is not there to read
    assert "model-missing" in found.proposed.reasons[0]


LLAMA = """\
[contract]
seqs = 2
len = 4096
[engine]
kind = "llamacpp"
version = "b6000"
binary = "/opt/llama-server"
[engine.knobs]
mlock = true
no-mmap = true
threads = 4
[model]
path = "/models/none.gguf"
"""


def test_llamacpp_b6000_to_b11434(tmp_path: Path) -> None:
    found = moved(tmp_path, LLAMA, "b11434")
    assert {"mlock", "no-mmap"} <= set(steps(found, "drop")) | set(steps(found, "rename"))
    assert tomllib.loads(found.text)["engine"]["knobs"]["threads"] == 4


def test_a_text_that_cannot_be_changed_by_line_is_refused(tmp_path: Path) -> None:
    text = VLLM.replace("[engine.knobs]\nkv-cache-memory-bytes = 17_181_966_336    # a comment\nswap_space = 4\n", "")
    text = text.replace("disable-log-requests = true\ntensor-parallel-size = 2\n", "knobs = { swap-space = 4 }\n")
    with pytest.raises(ArchonError) as refused:
        moved(tmp_path, text, "0.32.0")
    assert refused.value.code == "migrate-layout"


@pytest.mark.parametrize("to", ["", "newest", "1.8.1; rm -rf /"])
def test_a_version_that_is_none_is_refused(tmp_path: Path, to: str) -> None:
    with pytest.raises(ArchonError) as refused:
        moved(tmp_path, VLLM, to)
    assert refused.value.code in ("engine-version-invalid", "engine-version-missing")


def test_dotted_keys_and_odd_spacing_are_followed(tmp_path: Path) -> None:
    text = (
        VLLM.replace("[engine.knobs]\n", "")
        .replace("swap_space = 4\n", "")
        .replace("disable-log-requests = true\n", "")
    )
    text = text.replace("kv-cache-memory-bytes = 17_181_966_336    # a comment\ntensor-parallel-size = 2\n", "")
    text = text.replace('version = "0.9.2"', "version = '0.9.2' # old\n  knobs . 'swap-space'   =  4 # gone")
    found = moved(tmp_path, text, "0.32.0")
    assert '"0.32.0" # old' in found.text
    assert "swap-space" not in found.text


VALUES = st.one_of(
    st.integers(-(10**6), 10**6),
    st.booleans(),
    st.text(alphabet="ab #'\"\\=é", max_size=8),
    st.sampled_from([0.5, 1.25]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    table=st.dictionaries(st.text(alphabet="abc-_", min_size=1, max_size=6), VALUES, min_size=1, max_size=6),
    comment=st.text(alphabet="ab #'\"=[", max_size=10),
    value=VALUES,
    data=st.data(),
)
def test_an_edit_changes_one_key_and_nothing_else(
    table: dict[str, Any], comment: str, value: Any, data: st.DataObject
) -> None:
    import tomli_w

    lines = [f"{line} # {comment}" for line in tomli_w.dumps(table).splitlines()]
    text = "\n".join(["# head", "[engine.knobs]", *lines, "", "[model]", 'path = "x"'])
    key = data.draw(st.sampled_from(sorted(table)))
    edits = Edits(text, "x.toml")
    edits.set(("engine", "knobs", key), value)
    assert tomllib.loads(edits.text)["engine"]["knobs"] == table | {key: value}
    assert edits.text.count(f"# {comment}") >= len(table)
    edits.rename(("engine", "knobs", key), "zz-new")
    edits.remove(("engine", "knobs", "zz-new"))
    edits.add(("engine", "knobs"), "added", value)
    rest = {name: one for name, one in table.items() if name != key}
    found = tomllib.loads(edits.text)
    assert found.get("engine", {}).get("knobs", {}) == rest | {"added": value}
    assert found["model"] == {"path": "x"}
