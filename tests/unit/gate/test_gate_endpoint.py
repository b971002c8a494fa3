"""One declaration: stale knobs, a short contract, the artefact, mounts, what is inherited and what is installed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.findings import Finding
from archonctl.gate import artefact
from archonctl.gate.endpoint import check_endpoint
from archonctl.gate.paths import Options, check_paths
from archonctl.release.render import command_of, render_release
from archonctl.release.store import write_release
from unit.gate.conftest import codes

REPOSITORY = Path(__file__).parents[3]
Load = Callable[..., LoadedEndpoint]


@pytest.fixture
def archon() -> Load:
    """The archon endpoint, with some of its keys set otherwise."""

    def load(**settings: object) -> LoadedEndpoint:
        flags = {key.replace("__", "."): value for key, value in settings.items()}
        return load_endpoint(REPOSITORY / "env" / "archon.toml", flags, {}, cwd=REPOSITORY)

    return load


def serious(found: tuple[Finding, ...]) -> list[str]:
    return codes(found, "error", "warning")


@pytest.mark.parametrize("name", ["archon", "archon-pair", "tiny"])
def test_the_endpoints_of_this_repository_are_clean(name: str) -> None:
    loaded = load_endpoint(REPOSITORY / "env" / f"{name}.toml", {}, {}, cwd=REPOSITORY)
    assert serious(check_endpoint(loaded)) == []


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"engine__knobs__vram-weights-mib": 25_600}, "knob-retired"),
        ({"engine__knobs__prefix-cache-dir": "/data"}, "knob-retired"),
        ({"engine__knobs__prefix-cache-host-mib": 8192}, "knob-retired"),
        ({"engine__knobs__host-pool-mb": 1}, "knob-unknown"),
        ({"engine__knobs__host-pool-mib": "45568x"}, "knob-bad-value"),
        ({"engine__knobs__tp": 3}, "cards-too-few"),
        ({"engine__knobs__host-pool-mib": 44_928}, "contract-short"),
        ({"contract__seqs": 4}, "contract-short"),
        ({"contract__seqs": 9}, "allreduce-rows"),
        ({"engine__knobs__num-speculative-tokens": 8, "contract__seqs": 3}, "allreduce-rows"),
        ({"engine__image": "registry.example/radiance:1.8.1"}, "image-not-pinned"),
        ({"engine__image": "registry.example/radiance"}, "image-not-pinned"),
        ({"engine__mounts": ()}, "mount-missing"),
        ({"engine__env__TTM_FLOOR_MIB": "150000"}, "ttm-floor-low"),
        ({"engine__env__TTM_FLOOR_PAGES": "38400000"}, "ttm-floor-low"),
        ({"engine__env__API_TOKEN": "x"}, "release-inline-secret"),
        ({"engine__env__A": "a b"}, "env-value-unrepresentable"),
        ({"engine__version": ""}, "engine-version-missing"),
    ],
)
def test_a_fault_has_its_code(archon: Load, settings: dict[str, object], code: str) -> None:
    assert code in codes(check_endpoint(archon(**settings)), "error")


@pytest.mark.parametrize(
    "settings",
    [
        {"contract__seqs": 3, "engine__knobs__num-speculative-tokens": 2},
        {"engine__env__TTM_FLOOR_MIB": "150200"},
        {"engine__env__TTM_TARGET_MIB": "204800"},
        {"engine__knobs__tp-wire": "bf16", "engine__knobs__num-speculative-tokens": 2},
        {"engine__mounts": ("/x:/opt/radiance/share",)},
    ],
)
def test_what_is_right_is_left_alone(archon: Load, settings: dict[str, object]) -> None:
    found = serious(check_endpoint(archon(**settings)))
    assert [code for code in found if code in ("allreduce-rows", "ttm-floor-low", "mount-missing")] == []


def test_the_disk_tiers_folder_must_not_be_mounted_since_the_cutover(archon: Load) -> None:
    tune = "/var/lib/radiance/tune:/opt/radiance/share/radiance/tune"
    found = check_endpoint(archon(engine__mounts=(tune, "/data/kv:/data/kv")))
    assert codes(found, "error") == ["mount-forbidden"]
    pair = load_endpoint(REPOSITORY / "env" / "archon-pair.toml", {"engine.mounts": (tune, "/data:/data")}, {})
    assert "mount-forbidden" not in codes(check_endpoint(pair))


def test_every_rendered_form_of_a_mount_that_must_not_exist_is_refused(archon: Load, tmp_path: Path) -> None:
    tune = "/var/lib/radiance/tune:/opt/radiance/share/radiance/tune"
    loaded = archon(engine__mounts=(tune, "/data:/data"))
    release = render_release(loaded, command_of(loaded))
    write_release(release, tmp_path / "out")
    found = check_paths([tmp_path / "out"], Options(verify_units=False)).findings
    places = {Path(one.place.path).name for one in found if one.code == "mount-forbidden"}
    assert places >= {"archon-archon.service", "archon.container", "run-docker", "run-podman"}


TINY = """\
[contract]
seqs = 1
len = 2048

[engine]
kind = "llamacpp"
version = "b11434"
binary = "/usr/bin/llama-server"

[model]
path = "{path}"
bytes = {size}
sha256 = "{sha}"

[host]
profile = "host.toml"
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., LoadedEndpoint]:
    content = b"not a real model" * 1000
    (tmp_path / "host.toml").write_text('name = "box"\nram_mib = 16_000\n')
    (tmp_path / "m.bin").write_bytes(content)

    def load(size: int = len(content), sha: str = hashlib.sha256(content).hexdigest()) -> LoadedEndpoint:
        path = tmp_path / "tiny.toml"
        path.write_text(TINY.format(path=tmp_path / "m.bin", size=size, sha=sha))
        return load_endpoint(path, {}, {})

    return load


def test_the_artefact_is_compared_by_bytes_and_by_digest(
    tiny: Callable[..., LoadedEndpoint], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "model-bytes-differ" in codes(check_endpoint(tiny(size=5)), "error")
    wrong = tiny(sha="0" * 64)
    assert "model-sha256-differs" not in codes(check_endpoint(wrong))
    found = [one for one in check_endpoint(wrong, verify_files=True) if one.code == "model-sha256-differs"]
    assert [(one.severity, one.place.line, one.place.column) for one in found] == [("error", 13, 11)]
    seen: list[int] = []
    good = tiny()
    check_endpoint(good, verify_files=True, progress=lambda _path, done, _total: seen.append(done))
    assert seen == []  # remembered
    (tmp_path / "m.bin").write_bytes(b"changed" * 1000)
    assert "model-bytes-differ" in codes(check_endpoint(good, verify_files=True))


def test_a_missing_artefact_is_a_note_until_it_is_asked_for(archon: Load) -> None:
    assert codes(check_endpoint(archon()), "error") == []
    assert codes(check_endpoint(archon(), verify_files=True), "error") == ["artefact-not-checked"]


def test_a_digest_is_read_on_from_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m"
    path.write_bytes(bytes(range(256)) * 200_000)
    monkeypatch.setattr(artefact, "_SAVE_EVERY", 8 << 20)
    monkeypatch.setattr(artefact, "_CHUNK", 1 << 20)

    class Stop(Exception):
        pass

    def stop(_path: str, done: int, _total: int) -> None:
        if done >= 20 << 20:
            raise Stop

    with pytest.raises(Stop):
        artefact.sha256_of(path, tmp_path / "cache", stop)
    seen: list[int] = []
    found = artefact.sha256_of(path, tmp_path / "cache", lambda _path, done, _total: seen.append(done))
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert seen[0] == 17 << 20
    assert artefact.sha256_of(path, tmp_path / "cache").remembered
    for note in (tmp_path / "cache").iterdir():
        note.write_text('{"done": 99, "state": "zz"}')
    assert artefact.sha256_of(path, tmp_path / "cache").sha256 == found.sha256


def test_the_inherited_environment_is_judged(tiny: Callable[..., LoadedEndpoint]) -> None:
    environ = {"LLAMA_ARG_CTX_SIZE": "512", "LLAMA_ARG_MADE_UP": "1", "PATH": "/bin", "VLLM_USE_V1": "0"}
    found = [one for one in check_endpoint(tiny(), environ=environ) if one.place.path.startswith("environment")]
    assert {(one.place.path, one.code) for one in found} == {
        ("environment LLAMA_ARG_CTX_SIZE", "knob-inherited"),
        ("environment LLAMA_ARG_MADE_UP", "knob-unknown"),
    }


def test_the_configuration_files_of_llama_server_are_judged(
    tiny: Callable[..., LoadedEndpoint], tmp_path: Path
) -> None:
    for folder in ("etc", "home/me/.config"):
        path = tmp_path / "root" / folder / "llama.cpp" / "config.ini"
        path.parent.mkdir(parents=True)
        path.write_text("version = 1\n[*]\nctx-size = 512\n; x = 1\n[named]\nthreads = 4\n[default]\nmade-up = 1\n")
    found = check_endpoint(tiny(), environ={"HOME": "/home/me"}, root=tmp_path / "root")
    said = [(one.code, one.place.line, one.place.column) for one in found if "config.ini" in one.place.path]
    assert said == [("knob-inherited", 3, 1), ("knob-unknown", 8, 1)] * 2
    assert not [one for one in check_endpoint(tiny()) if "config.ini" in one.place.path]


def install(loaded: LoadedEndpoint, root: Path) -> Path:
    release = render_release(loaded, command_of(loaded))
    written = write_release(release, root / "var/lib/archon/archon/releases")
    units = root / "etc/systemd/system/archon@archon.service.d"
    units.mkdir(parents=True)
    (units / "10-release.conf").write_bytes(release.files["drop-in.conf"].content)
    return written.path


def test_what_is_installed_as_declared_is_clean(archon: Load, tmp_path: Path) -> None:
    install(archon(), tmp_path)
    assert serious(check_endpoint(archon(), installed=tmp_path)) == []


def test_what_is_not_installed_is_said(archon: Load, tmp_path: Path) -> None:
    assert serious(check_endpoint(archon(), installed=tmp_path)) == ["drift-not-installed"]


def test_an_edit_by_hand_is_found_with_both_lines(archon: Load, tmp_path: Path) -> None:
    folder = install(archon(), tmp_path)
    path = folder / "argv.json"
    path.write_text(path.read_text().replace('"45568"', '"44928"'))
    drop_ins = tmp_path / "etc/systemd/system/archon@archon.service.d"
    (drop_ins / "20-mine.conf").write_text("[Service]\nMemoryMax=8G\n")
    (drop_ins / "10-release.conf").write_text("[Service]\n")
    found = {Path(one.place.path).name: one for one in check_endpoint(archon(), installed=tmp_path)}
    assert "44928" in found["argv.json"].message
    assert "45568" in found["argv.json"].message
    assert (
        found["argv.json"].place.line
        == json.dumps(json.loads(path.read_text()), indent=2).split('"44928"')[0].count("\n") + 1
    )
    assert found["10-release.conf"].code == "drift-file"
    assert found["20-mine.conf"].code == "drift-drop-in"


def test_a_changed_declaration_is_drift_until_it_is_applied(archon: Load, tmp_path: Path) -> None:
    install(archon(), tmp_path)
    found = check_endpoint(archon(**{"engine__knobs__prefix-cache-mib": 4096}), installed=tmp_path)
    assert "drift-file" in codes(found, "error")
