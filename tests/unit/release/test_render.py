"""The rendered files of one endpoint."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl import __version__
from archonctl.deployment.load import LoadedEndpoint, load_endpoint
from archonctl.engines.base import CommandLine
from archonctl.errors import ArchonError, DeclarationError
from archonctl.release.env_file import parse_env
from archonctl.release.render import render_release
from archonctl.release.unit import load_timeout_s, prevented_statuses
from archonctl.release.values import Release

Render = Callable[..., Release]
Load = Callable[..., LoadedEndpoint]


def lines_of(release: Release) -> list[str]:
    return release.unit_text.splitlines()


def test_a_release_has_every_file_and_a_manifest_of_them(rendered: Render, loaded: Load) -> None:
    release = rendered("--port", "8000", env={"LLAMA_ARG_LOG_VERBOSITY": "4"})
    names = {"argv.json", "engine.env", "start", "drop-in.conf", "declaration.json", "archon-tiny.service"}
    assert set(release.files) == names | {"release.json"}
    manifest = json.loads(release.files["release.json"].content)
    assert manifest["schema"] == "archonctl.release/1"
    assert manifest["archonctl"] == __version__
    assert manifest["engine"] == {"kind": "llamacpp", "version": "b11434", "image": ""}
    assert manifest["files"]["start"]["mode"] == "0755"
    assert {name: entry["sha256"] for name, entry in manifest["files"].items()} == {
        name: release.files[name].sha256 for name in names
    }
    assert json.loads(release.files["argv.json"].content) == ["/bin/echo", "--port", "8000"]
    assert parse_env(release.files["engine.env"].content.decode()) == {"LLAMA_ARG_LOG_VERBOSITY": "4"}
    assert len(release.digest) == 64


def test_the_same_declaration_gives_the_same_bytes_from_any_directory(
    tmp_path: Path, rendered: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = rendered("x")
    path = tmp_path / "env" / "tiny.toml"
    monkeypatch.chdir(tmp_path)
    second = render_release(load_endpoint(Path("env/tiny.toml"), {}, {}), CommandLine(("/bin/echo", "x"), {}))
    monkeypatch.chdir(tmp_path / "env")
    third = render_release(load_endpoint(Path("tiny.toml"), {}, {}), CommandLine(("/bin/echo", "x"), {}))
    assert first == second == third
    assert first.digest == third.digest
    assert path.name in first.files["declaration.json"].content.decode()


def test_a_change_changes_the_digest(rendered: Render) -> None:
    digests = {
        rendered("x").digest,
        rendered("y").digest,
        rendered("x", env={"A": "1"}).digest,
        rendered("x", contract__seqs=3).digest,
        rendered("x", home=Path("/srv/x")).digest,
    }
    assert len(digests) == 5


def test_the_declaration_in_force_is_kept_with_its_origins(rendered: Render, loaded: Load) -> None:
    kept = json.loads(rendered(contract__seqs=7).files["declaration.json"].content)
    assert kept["declared"]["contract"]["seqs"] == 7
    assert kept["origins"]["contract.seqs"] == "flag --seqs"
    assert kept["origins"]["contract.len"] == "tiny.toml:3"
    assert kept["origins"]["contract.margin"] == "default"


def test_the_unit_has_what_a_start_needs(rendered: Render) -> None:
    lines = lines_of(rendered("--port", "8000", home=Path("/srv/a 100%/r"), service__user="archon"))
    assert 'ExecStart=:"/bin/echo" "--port" "8000"' in lines
    assert "EnvironmentFile=/srv/a 100%%/r/engine.env" in lines
    assert "User=archon" in lines
    assert "KillMode=control-group" in lines
    assert "Type=exec" in lines
    assert "LimitMEMLOCK=infinity" not in lines
    assert lines.index("StartLimitBurst=5") < lines.index("[Service]")


def test_a_restart_is_delayed_bounded_and_not_tried_after_a_usage_error(rendered: Render) -> None:
    values = dict(line.split("=", 1) for line in lines_of(rendered()) if "=" in line)
    assert values["Restart"] == "on-failure"
    assert int(values["RestartSec"]) >= 10
    assert {"2", "64", "78", "127", "203"} <= set(values["RestartPreventExitStatus"].split())
    window, tries = int(values["StartLimitIntervalSec"]), int(values["StartLimitBurst"])
    # even a start that fails at the very end of its time is counted within the window
    assert window >= tries * (int(values["TimeoutStartSec"]) + int(values["RestartSec"]))
    assert prevented_statuses("radiance") == ("0", "2", "64", "70", *prevented_statuses("llamacpp")[3:])


@pytest.mark.parametrize(
    ("model_bytes", "declared", "seconds"),
    [
        (None, None, 2860),
        (1 << 30, None, 310),
        (121_969_901_568, None, 870),
        (121_969_901_568, 5400, 5400),
        (1, 30, 30),
    ],
)
def test_the_start_time_comes_from_the_models_bytes_or_the_declaration(
    model_bytes: int | None, declared: int | None, seconds: int
) -> None:
    assert load_timeout_s(model_bytes, declared) == seconds


def test_the_start_time_follows_the_file_where_bytes_are_not_declared(tmp_path: Path, loaded: Load) -> None:
    path = tmp_path / "m-00001-of-00003.gguf"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    text = (tmp_path / "env" / "tiny.toml").read_text() if (tmp_path / "env").exists() else ""
    for model, seconds in ((path, 320), (tmp_path, 2860), (tmp_path / "none", 2860)):
        declaration = tmp_path / "t.toml"
        declaration.write_text(
            f'[contract]\nseqs = 1\nlen = 4096\n[engine]\nkind = "llamacpp"\n[model]\npath = "{model}"\n{text}'
        )
        release = render_release(load_endpoint(declaration, {}, {}), CommandLine(("/bin/echo",), {}))
        assert f"TimeoutStartSec={seconds}" in lines_of(release)


def test_pinned_memory_lifts_the_lock_limit(loaded: Load) -> None:
    assert "LimitMEMLOCK=infinity" in lines_of(render_release(loaded(), CommandLine(("/bin/echo",), {}, pinned=True)))
    assert "LimitMEMLOCK=infinity" not in lines_of(render_release(loaded(), CommandLine(("/bin/echo",), {})))


def test_a_container_runtime_is_not_hardened(loaded: Load) -> None:
    native = lines_of(render_release(loaded(), CommandLine(("/bin/echo",), {})))
    podman = lines_of(render_release(loaded(), CommandLine(("podman", "run", "x"), {})))
    assert "NoNewPrivileges=yes" in native
    assert "Delegate=yes" in podman
    assert "Delegate=yes" not in native
    assert not {line for line in podman if line.startswith(("Protect", "Restrict", "NoNew"))} - {
        line for line in podman if line.startswith("RestrictPrevent")
    }


def test_the_start_script_runs_the_argv_under_its_environment(tmp_path: Path, loaded: Load) -> None:
    words = ["a b", "it's", "$HOME", '"', "\n", ""]
    release = render_release(loaded(), CommandLine(("/usr/bin/printf", "%s\\0", *words), {}))
    script = tmp_path / "start"
    script.write_bytes(release.files["start"].content)
    done = subprocess.run(["/bin/sh", script], capture_output=True, check=True, timeout=30)
    assert done.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("name", ["a b", "-x", "é", "%i", "x" * 101, "a@b"])
def test_a_name_that_no_unit_can_have_is_refused(loaded: Load, name: str) -> None:
    with pytest.raises(DeclarationError, match="endpoint-name"):
        render_release(loaded(name=name), CommandLine(("/bin/echo",), {}))


@pytest.mark.parametrize("user", ["a b", "root;x", "%i", "-x", "é", "u" * 40, "12345678901"])
def test_a_user_that_systemd_would_not_take_is_refused(rendered: Render, user: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        rendered(service__user=user)
    assert caught.value.code == "declaration-bad-value"
    assert caught.value.where == "flag --set service.user"


@pytest.mark.parametrize("home", ["/a*", "/a?", "/a[b]", "/a\\b", "relative", "/a\nb"])
def test_a_folder_that_a_unit_cannot_name_is_refused(rendered: Render, home: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        rendered(home=Path(home))
    assert caught.value.code == "release-path-unsupported"


@pytest.mark.parametrize(
    ("words", "env", "settings"),
    [
        ((), {"HF_TOKEN": "hf_123"}, {}),
        ((), {"LLAMA_API_KEY": "k"}, {}),
        ((), {"DB_PASSWORD": "k"}, {}),
        ((), {"HTTPS_PROXY": "http://user:pw@proxy:3128"}, {}),
        (("--api-key", "k"), {}, {}),
        (("--api-key=k",), {}, {}),
        (("--admin-api-key", "k"), {}, {}),
        (("--hf-token", "k"), {}, {}),
        (("--url", "https://u:p@h/"), {}, {}),
        ((), {}, {"engine.knobs.api-key": "k"}),
        ((), {}, {"engine.env.HF_TOKEN": "k"}),
    ],
)
def test_no_secret_gets_into_a_release(
    loaded: Load, words: tuple[str, ...], env: dict[str, str], settings: dict[str, str]
) -> None:
    with pytest.raises(ArchonError) as caught:
        render_release(loaded(**settings), CommandLine(("/bin/echo", *words), env))
    assert caught.value.code == "release-inline-secret"
    assert "hf_123" not in str(caught.value)


def test_what_only_looks_like_a_secret_is_rendered(rendered: Render) -> None:
    rendered(
        *("--api-key-file", "/etc/archon/key", "--max-num-batched-tokens", "2048", "--url", "http://h:80/@x", "token"),
        env={"TOKENIZERS_PARALLELISM": "0", "MAX_TOKENS": "3", "KEY_FILE": "/x", "HF_TOKEN": ""},
    )


def test_nothing_declared_is_nothing_rendered(loaded: Load) -> None:
    with pytest.raises(DeclarationError, match="argument-unrepresentable"):
        render_release(loaded(), CommandLine((), {}))
