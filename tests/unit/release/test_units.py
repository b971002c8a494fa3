"""systemd's own verdict on the units: the template that ships, and rendered ones."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from archonctl import engines, ledger
from archonctl.deployment.load import LoadedEndpoint
from archonctl.engines.base import CommandLine
from archonctl.release import unit
from archonctl.release.render import render_release
from archonctl.release.values import Release

Render = Callable[..., Release]
Load = Callable[..., LoadedEndpoint]
TEMPLATE = Path(__file__).parents[3] / "units" / "archon@.service"


def verify(*paths: Path) -> str:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *paths],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def standing(folder: Path) -> Path:
    """The template with /bin/true in place of what is not installed here."""
    path = folder / TEMPLATE.name
    path.write_text(re.sub(r"(?m)^(Exec\w+=[-+]*)\S+", r"\1/bin/true", TEMPLATE.read_text()))
    return path


def test_the_template_verifies(tmp_path: Path) -> None:
    assert verify(standing(tmp_path)) == ""


def test_the_template_with_a_rendered_drop_in_verifies(tmp_path: Path, rendered: Render) -> None:
    standing(tmp_path)
    folder = tmp_path / "archon@tiny.service.d"
    folder.mkdir()
    (folder / "10-release.conf").write_bytes(rendered(service__user="root").files["drop-in.conf"].content)
    assert verify(tmp_path / "archon@tiny.service") == ""


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ((), {}),
        (("--mlock", 'a "b" \\ c', "$HOME", "100%", "é", "\n", ";", "", "{'a': [1]}"), {"service__user": "root"}),
        ((), {"engine__kind": "radiance"}),
    ],
)
def test_a_rendered_unit_verifies(
    tmp_path: Path, rendered: Render, words: tuple[str, ...], settings: dict[str, object]
) -> None:
    release = rendered(*words, **settings)
    path = tmp_path / release.unit_name
    path.write_text(release.unit_text)
    assert verify(path) == ""


def test_a_rendered_unit_of_a_container_verifies(tmp_path: Path, loaded: Load) -> None:
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\n")
    podman.chmod(0o755)
    release = render_release(loaded(), CommandLine((str(podman), "run", "--rm", "x@sha256:0"), {}))
    path = tmp_path / release.unit_name
    path.write_text(release.unit_text)
    assert verify(path) == ""


def test_template_and_rendered_unit_agree_where_both_speak(rendered: Render) -> None:
    def values(text: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))

    template, unit_of = values(TEMPLATE.read_text()), values(rendered().unit_text)
    differ = {key for key in template.keys() & unit_of.keys() if template[key] != unit_of[key]}
    assert differ <= {
        "Description",
        "After",
        "ExecStart",
        "EnvironmentFile",
        "TimeoutStartSec",
        "StartLimitIntervalSec",
    }


def test_every_exit_status_has_a_reason_and_a_source() -> None:
    rows = tomllib.loads(Path(unit.__file__).with_name("restart.toml").read_text())["status"]
    for row in rows:
        assert row.keys() == {"engine", "code", "why", "source"}
        assert 0 < row["code"] < 256
        assert row["engine"] in {"*", "radiance", "vllm", "sglang", "llamacpp"}
        assert row["why"]
        assert row["source"]
    assert len({(row["engine"], row["code"]) for row in rows}) == len(rows)


def test_every_final_refusal_is_a_code_of_a_grammar_with_a_reason_and_a_source() -> None:
    rows = tomllib.loads(Path(unit.__file__).with_name("restart.toml").read_text())["refusal"]
    files = [*Path(engines.__file__).parent.glob("*/ledger.toml"), Path(ledger.__file__).with_name("common.toml")]
    grammars = "".join(file.read_text() for file in files)
    for row in rows:
        assert row.keys() == {"code", "why", "source"}
        assert f'code = "{row["code"]}"' in grammars
        assert row["why"]
        assert row["source"]
        assert unit.is_final_refusal(row["code"])
    assert not unit.is_final_refusal("out-of-memory")
