"""Podman, docker and Quadlet files of a release: the same container three times, by the parsers of the real tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.errors import ArchonError
from archonctl.foreign.units import read_unit
from archonctl.release.render import command_of, render_release
from archonctl.release.targets import files_of
from archonctl.release.values import Release

REPOSITORY = Path(__file__).parents[3]
DIGEST = "sha256:" + "a" * 64

Make = Callable[..., Release]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """A release of an image; dotted keys with ``__`` for the dot, and any text of TOML behind."""

    def make(kind: str = "vllm", text: str = "", **settings: object) -> Release:
        version, model = {
            "vllm": ("0.9.2", "/models/qwen3-8b"),
            "llamacpp": ("b11434", "/models/m.gguf"),
            "radiance": ("1.8.1", "/models/m.rad"),
            "sglang": ("0.5.3", "/models/qwen3-8b"),
        }[kind]
        path = tmp_path / "env" / "box.toml"
        path.parent.mkdir(exist_ok=True)
        dtype = "fp8" if kind == "radiance" else "f16"
        path.write_text(
            f'[contract]\nseqs = 2\nlen = 4096\nkv_dtype = "{dtype}"\n'
            f'[engine]\nkind = "{kind}"\nversion = "{version}"\n'
            f'image = "registry.example/{kind}@{DIGEST}"\n[model]\npath = "{model}"\nbytes = 1_073_741_824\n{text}'
        )
        flags = {key.replace("__", "."): value for key, value in settings.items()}
        loaded = load_endpoint(path, flags, {}, cwd=tmp_path)
        return render_release(loaded, command_of(loaded), home=Path("/srv/archon 100%/box"))

    return make


def text(release: Release, name: str) -> str:
    return release.files[name].content.decode("utf-8")


def argv(release: Release, runtime: str) -> list[str]:
    return [str(word) for word in json.loads(text(release, f"{runtime}.json"))]


def tool(name: str) -> str:
    """A tool of scripts/get-podman-tools."""
    folder = Path(os.environ.get("ARCHON_TEST_PODMAN") or Path.home() / ".cache/archonctl/podman") / "bin"
    if not (folder / name).exists():
        pytest.skip(f"no {name}: run scripts/get-podman-tools")
    return str(folder / name)


CASES: list[tuple[str, dict[str, Any], str]] = [
    ("radiance", {"service__user": "archon"}, ""),
    ("radiance", {}, "[container]\ngroups = [44, 992]\ndevices = ['/dev/kfd', '/dev/dri/renderD128']\nstop_s = 120\n"),
    ("vllm", {"container__gpus": "0,1", "engine__knobs__tensor-parallel-size": 2}, "[engine.env]\nA = 'b,c%d'\n"),
    ("vllm", {"container__network": "llm", "container__shm": "16g", "service__listen": "[::1]:8100"}, ""),
    ("llamacpp", {"container__gpus": "all", "container__health": "off"}, ""),
    ("llamacpp", {"container__options": ()}, "[container]\noptions = ['--cpuset-cpus=0-3', '--label', 'a=$x%y']\n"),
    ("sglang", {"container__gpus": "all"}, ""),
]


@pytest.mark.parametrize(("kind", "settings", "more"), CASES)
def test_real_podman_takes_every_flag(made: Make, kind: str, settings: dict[str, Any], more: str) -> None:
    words = argv(made(kind, more, **settings), "podman")
    at = next(index for index, word in enumerate(words) if DIGEST in word)
    # --help in front of the image: every flag and value is parsed, and nothing is run
    checked = [tool("podman"), *words[1:at], "--help", *words[at:]]
    done = subprocess.run(checked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.optional
@pytest.mark.skipif(not shutil.which("docker"), reason="no docker client: Debian has none without its daemon")
@pytest.mark.parametrize(("kind", "settings", "more"), CASES)
def test_real_docker_takes_every_flag(made: Make, kind: str, settings: dict[str, Any], more: str) -> None:
    words = argv(made(kind, more, **settings), "docker")
    at = next(index for index, word in enumerate(words) if DIGEST in word)
    checked = [*words[:at], "--help", *words[at:]]
    done = subprocess.run(checked, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("kind", "settings", "more"), CASES)
def test_real_quadlet_makes_the_same_container(
    made: Make, tmp_path: Path, kind: str, settings: dict[str, Any], more: str
) -> None:
    release = made(kind, more, **settings)
    folder = tmp_path / "quadlets"
    folder.mkdir()
    (folder / "box.container").write_text(text(release, "box.container"))
    done = subprocess.run(
        [tool("quadlet"), "-dryrun"],
        env={"QUADLET_UNIT_DIRS": str(folder), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    unit = read_unit(done.stdout)
    (command,) = [each for each in unit.commands() if each.label == "ExecStart"]
    words = [word.text for word in command.words]
    wanted = argv(release, "podman")
    image, own = next(word for word in wanted if DIGEST in word), wanted.index(next(w for w in wanted if DIGEST in w))
    at = words.index(image)
    assert words[at:] == wanted[own:]
    pairs, named = set(pairwise(words[:at])), set(pairwise(wanted[:own]))
    for flag in ("--device", "--group-add", "--ulimit", "--stop-signal", "--stop-timeout", "--network", "--entrypoint"):
        assert {pair for pair in pairs if pair[0] == flag} == {pair for pair in named if pair[0] == flag}
    assert {value for flag, value in pairs if flag == "-v"} == {value for flag, value in named if flag == "--volume"}
    assert "--init" in words[:at]
    if "[engine.env]" in more:
        assert ("--env-file", "/srv/archon 100%/box/engine.env") in pairs


def test_the_unit_runs_the_declared_runtime_and_nothing_is_rendered_twice(made: Make) -> None:
    podman, docker = made(), made(container__runtime="docker")
    assert list(podman.argv) == argv(podman, "podman")
    assert docker.argv[0] == "docker"
    assert text(docker, "run-podman") == text(podman, "run-podman")
    assert json.loads(text(docker, "argv.json")) == list(docker.argv)


def test_an_engine_that_pins_gets_no_memory_limit_and_the_files_say_why(made: Make) -> None:
    release = made("radiance")
    for name in ("run-podman", "run-docker", "box.container"):
        assert "No --memory on purpose" in text(release, name)
    for words in (argv(release, "podman"), argv(release, "docker")):
        assert ("--ulimit", "memlock=-1:-1") in set(pairwise(words))
        assert not any(word.startswith("--memory") for word in words)
    with pytest.raises(ArchonError) as refused:
        made("radiance", "[container]\noptions = ['--memory=200g']\n")
    assert refused.value.code == "container-memory-limit"


def test_groups_come_by_number_from_the_host_profile(made: Make, tmp_path: Path) -> None:
    (tmp_path / "env").mkdir(exist_ok=True)
    (tmp_path / "env" / "host.toml").write_text('name = "h"\n[groups]\nvideo = 39\nrender = 105\n')
    release = made("radiance", '[host]\nprofile = "env/host.toml"\n')
    assert [v for f, v in pairwise(argv(release, "docker")) if f == "--group-add"] == ["39", "105"]
    quadlet = text(release, "box.container")
    assert "GroupAdd=39" in quadlet
    assert "GroupAdd=105" in quadlet


def test_a_rootless_podman_keeps_the_groups_of_its_user(made: Make) -> None:
    release = made("radiance", "[container]\ngroups = [39]\n", service__user="archon")
    assert ("--group-add", "keep-groups") in set(pairwise(argv(release, "podman")))
    assert ("--group-add", "39") in set(pairwise(argv(release, "docker")))


def test_a_published_port_lets_the_engine_listen_within_the_container(made: Make) -> None:
    release = made("vllm", container__network="llm", service__listen="127.0.0.1:8100")
    words = argv(release, "podman")
    assert ("--publish", "127.0.0.1:8100:8100") in set(pairwise(words))
    assert ("--host", "0.0.0.0") in set(pairwise(words))
    assert "--publish" not in argv(made("vllm"), "podman")


def test_a_model_of_a_hubs_cache_is_mounted_with_its_blobs(made: Make) -> None:
    folder = "/hub/models--Qwen--Qwen3-8B/snapshots/0123"
    words = argv(made("vllm", model__path=folder), "podman")
    # a path that is not there may also be the name of a repository: only a whole path is mounted
    assert "/hub/models--Qwen--Qwen3-8B:/hub/models--Qwen--Qwen3-8B:ro" in words


def test_the_grace_of_the_container_ends_before_that_of_the_unit(made: Make) -> None:
    release = made("radiance", "[container]\nstop_s = 300\n")
    assert ("--stop-timeout", "300") in set(pairwise(argv(release, "podman")))
    assert "TimeoutStopSec=330" in release.unit_text
    assert "TimeoutStopSec=330" in text(release, "box.container")


def test_the_health_check_waits_for_the_load(made: Make) -> None:
    words = argv(made(service__load_timeout_s=777), "docker")
    assert ("--health-start-period", "777s") in set(pairwise(words))
    assert "HealthStartPeriod=777s" in text(made(service__load_timeout_s=777), "box.container")


def test_scripts_pass_every_word_exactly(made: Make, tmp_path: Path) -> None:
    release = made("llamacpp", "[container]\noptions = ['--label', \"it's $HOME `x` \\\\\"]\n[engine.env]\nA = 'b'\n")
    fake = tmp_path / "bin" / "podman"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nprintf "%s\\0" "$A" "$@"\n')
    fake.chmod(0o755)
    script = tmp_path / "run"
    script.write_text(text(release, "run-podman"))
    done = subprocess.run(
        ["/bin/sh", str(script)],
        env={"PATH": f"{fake.parent}:/bin:/usr/bin"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode().split("\0")[:-1] == ["b", *argv(release, "podman")[1:]]


def test_the_targets_share_one_release_and_a_binary_has_only_a_unit(made: Make, tmp_path: Path) -> None:
    release = made()
    assert files_of("quadlet", release) == ("box.container",)
    assert files_of("docker", release) == ("run-docker", "docker.json")
    assert set(files_of("all", release)) == set(release.files)
    assert "run-docker" not in files_of("systemd", release)
    binary = render_binary(tmp_path)
    assert "tiny.container" not in binary.files
    with pytest.raises(ArchonError) as refused:
        files_of("podman", binary)
    assert refused.value.code == "render-target-unsupported"


def render_binary(folder: Path) -> Release:
    path = folder / "tiny.toml"
    path.write_text(
        '[contract]\nseqs = 1\nlen = 4096\n[engine]\nkind = "llamacpp"\nversion = "b11434"\nbinary = "/bin/echo"\n'
        '[model]\npath = "/models/m.gguf"\n'
    )
    loaded = load_endpoint(path, {}, {})
    return render_release(loaded, command_of(loaded))


@pytest.mark.parametrize(
    "settings",
    [
        {"container__network": "a b"},
        {"container__gpus": "0, 1"},
        {"container__shm": "1.5g"},
        {"container__stop_s": 0},
        {"container__runtime": "lxc"},
        {"container__devices": ("/dev/kfd --privileged",)},
        {"container__groups": (-1,)},
    ],
)
def test_what_no_runtime_could_take_is_refused_with_its_key(made: Make, settings: dict[str, Any]) -> None:
    with pytest.raises(ArchonError) as refused:
        made(**settings)
    assert "container." in str(refused.value)
