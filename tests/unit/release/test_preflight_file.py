"""preflight.env: rendered from a plan, and read the same by Python and by root's script."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from archonctl.deployment.load import load_endpoint
from archonctl.engines.base import CommandLine, Forecast, HostNeed, Pinned
from archonctl.errors import DeclarationError
from archonctl.host.load import load_host
from archonctl.host.profile import Card, Host
from archonctl.memory.demand import Demand
from archonctl.memory.interval import MIB
from archonctl.plan.build import plan_endpoint
from archonctl.release.preflight_file import FLOOR_KEYS, floor_mib, parse_preflight, preflight_text
from archonctl.release.render import command_of

SCRIPT = Path(__file__).parents[3] / "scripts" / "ttm-preflight.sh"


def rendered(repository: Path, name: str, **flags: object) -> dict[str, str | int]:
    loaded = load_endpoint(Path(f"env/{name}.toml"), dict(flags), {})
    forecast = plan_endpoint(loaded).forecast
    text = preflight_text(loaded.name, loaded.endpoint.engine.kind, command_of(loaded), forecast, load_host(loaded))
    return dict(parse_preflight(text.encode()))


@pytest.mark.parametrize(("pool_mib", "floor"), [(45_568, 150_200), (44_928, 148_920)])
def test_the_archon_endpoint_names_the_terms_of_its_floor(
    repository: Path, monkeypatch: pytest.MonkeyPatch, pool_mib: int, floor: int
) -> None:
    monkeypatch.chdir(repository)
    values = rendered(repository, "archon", **{"engine.knobs.host-pool-mib": pool_mib})
    assert [values[key] for key in FLOOR_KEYS] == [2, pool_mib, 48_824, 8_192, 2_048]
    assert floor_mib(Pinned(2, pool_mib, 48_824, 8_192, 2_048)) == floor == values["RAM_NEED_MIB"]
    assert values["TTM_TARGET_MIB"] == 204_800
    assert (values["DEVICES"], values["RENDER_NODES"]) == ("/dev/kfd", 2)


def llamacpp(*argv: str, host: Host | None = None, forecast: Forecast | None = None) -> dict[str, str | int]:
    demands = (
        Demand("weights", "host", "q8_0", 1000 * MIB),
        Demand("kv_cache", "host", "f16", 100 * MIB + 1),
        Demand("ddr_cache", "host", "", 8192 * MIB),
    )
    seen = forecast or Forecast("law", None, None, None, (), demands)
    return dict(
        parse_preflight(
            preflight_text(
                "x", "llamacpp", CommandLine(argv, {}, pinned="--mlock" in argv), seen, host or Host()
            ).encode()
        )
    )


def test_an_engine_on_the_cpu_needs_what_it_allocates_at_boot_and_no_device() -> None:
    assert llamacpp("llama-server") == {"FORMAT": 1, "ENDPOINT": "x", "RAM_NEED_MIB": 101}


def test_mapped_weights_count_where_they_are_held() -> None:
    assert llamacpp("llama-server", "--no-mmap")["RAM_NEED_MIB"] == 1101
    assert llamacpp("llama-server", "--mlock")["MEMLOCK_NEED_MIB"] == 1101


def test_devices_are_those_of_the_host_and_only_for_engines_on_cards() -> None:
    card = Card(index=0, name="card", total_mib=1000)
    nvidia = Host(cards=(card,), devices=("/dev/nvidiactl", "/dev/nvidia-uvm"))
    assert llamacpp(host=nvidia)["DEVICES"] == "/dev/nvidiactl,/dev/nvidia-uvm"
    assert "RENDER_NODES" not in llamacpp(host=nvidia)
    shared = Host(cards=(card,), devices=("/dev/kfd",), cards_shared=True)
    assert llamacpp(host=shared)["SHARED_CARDS"] == "yes"
    assert "DEVICES" not in llamacpp(host=Host(devices=("/dev/kfd",)))


def test_a_figure_that_the_grammar_does_not_hold_is_refused() -> None:
    pinned = Pinned(2, 10**9, 0, 0, 0)
    forecast = replace(Forecast("law", None, None, None, (), ()), host_need=HostNeed(pinned=pinned))
    with pytest.raises(DeclarationError, match="HOST_POOL_MIB") as caught:
        llamacpp(forecast=forecast)
    assert caught.value.code == "preflight-file-invalid"


def test_every_refusal_of_the_script_has_a_page(repository: Path) -> None:
    rows = tomllib.loads((repository / "controller/archonctl/release/preflight_codes.toml").read_text())["refusal"]
    for row in rows:
        assert row["source"]
        assert row["class"] in ("final", "passing", "either")
        assert f"{row['code']} " in SCRIPT.read_text() or f"{row['code']}]" in SCRIPT.read_text(), row["code"]
        assert (repository / "runbooks" / f"{row['code']}.md").exists()


@pytest.fixture(scope="module")
def trusted_folder() -> Iterator[Path]:
    """A folder that only root can write, as the script asks for."""
    if os.geteuid() != 0:
        pytest.skip("the script reads only what is root's: as root only")
    folder = Path(tempfile.mkdtemp(prefix="archon-test-", dir="/run"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def bash_reads(content: bytes, folder: Path) -> dict[str, str | int] | None:
    path = folder / "x.env"
    path.write_bytes(content)
    done = subprocess.run([SCRIPT, "--print", path], capture_output=True, text=True, check=False)
    if done.returncode:
        assert done.returncode == 1, done.stderr
        assert "refused: preflight-file-invalid: " in done.stderr
        return None
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    values = {key: int(value) if value.isdigit() and key != "ENDPOINT" else value for key, _, value in pairs}
    floor = values.pop("floor_mib")
    assert floor == (floor_mib(Pinned(*(int(values[key]) for key in FLOOR_KEYS))) if "RANKS" in values else 0)
    return values


def python_reads(content: bytes) -> dict[str, str | int] | None:
    try:
        return dict(parse_preflight(content))
    except DeclarationError:
        return None


_KEYS = st.sampled_from(
    [*FLOOR_KEYS, "TTM_TARGET_MIB", "RAM_NEED_MIB", "WAIT_S", "DEVICES", "SHARED_CARDS", "PATH", "_X"]
)
_VALUES = st.one_of(
    st.integers(0, 2_000_000_000).map(str),
    st.sampled_from(["", "0", "00", "010", "+5", "-1", " 1", "1 ", "0x10", "1e3", "601", "yes", "no", "YES", "$(id)"]),
    st.sampled_from(["/dev/kfd", "/dev/dri/renderD128,/dev/kfd", "/dev/..", "/dev/a,", "/dev", "/dev/a//b", "/etc/x"]),
    st.text(st.characters(codec="latin-1"), max_size=8),
)
_LINES = st.one_of(
    st.builds(lambda key, value: f"{key}={value}", _KEYS, _VALUES),
    st.sampled_from(["", "#", "# comment", " ", "export A=1", "FORMAT=1", "ENDPOINT=y", "=", "[a]", "value[$(id)]=1"]),
)
_FLOOR = "".join(f"{key}=5\n" for key in FLOOR_KEYS)
_FILES = st.builds(
    lambda head, floor, lines, end: (head + floor + "\n".join(lines) + end).encode("latin-1"),
    st.sampled_from(["FORMAT=1\nENDPOINT=x\n", "# c\n\nFORMAT=1\nENDPOINT=archon-1.x\n", "ENDPOINT=x\n", ""]),
    st.sampled_from(["", "", _FLOOR]),
    st.lists(_LINES, max_size=3),
    st.sampled_from(["\n", "\n", "\n", "", "\r\n"]),
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(content=st.one_of(_FILES, st.binary(max_size=40)))
@example(content=b"FORMAT=1\nENDPOINT=x\n" + _FLOOR.encode() + b"TTM_TARGET_MIB=204800\nWAIT_S=600\n")
@example(content=b"FORMAT=1\nENDPOINT=x\nWAIT_S=601\n")
@example(content=b"FORMAT=1\nENDPOINT=" + b"x" * 101 + b"\n")
@example(content=b"FORMAT=1\nENDPOINT=x\n\0\n")
@example(content=b"FORMAT=1\nENDPOINT=x\nDEVICES=/dev/" + b"x" * 1995 + b"\n")
@example(content=b"FORMAT=1\nENDPOINT=x\nDEVICES=/dev/" + b"x" * 1996 + b"\n")
@example(content=b"FORMAT=1\nENDPOINT=x\n#" + b"x" * 16362 + b"\n")
@example(content=b"FORMAT=1\nENDPOINT=x\n#" + b"x" * 16363 + b"\n")
def test_bash_and_python_read_the_same_or_both_refuse(trusted_folder: Path, content: bytes) -> None:
    assert bash_reads(content, trusted_folder) == python_reads(content)
