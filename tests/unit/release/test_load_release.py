"""A stored release is read back as it was declared, or refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from archonctl.errors import HostRefusal
from archonctl.release.load import load_release
from archonctl.release.store import write_release


@pytest.fixture
def stored(rendered, tmp_path: Path) -> Path:
    return write_release(rendered("-c", "8192", env={"A": "1"}), tmp_path / "releases").path


def test_what_was_declared_comes_back(rendered, loaded, stored: Path) -> None:
    release = load_release(stored.parent / "current")
    assert release.loaded.endpoint == loaded().endpoint
    assert release.loaded.name == "tiny"
    assert release.folder == stored
    assert release.digest.startswith(stored.name)
    assert json.loads(release.files["argv.json"]) == ["/bin/echo", "-c", "8192"]


def test_no_release_is_said_as_such(tmp_path: Path) -> None:
    with pytest.raises(HostRefusal) as caught:
        load_release(tmp_path / "current")
    assert caught.value.code == "release-missing"


@pytest.mark.parametrize("file", ["start", "declaration.json", "release.json", "engine.env"])
@pytest.mark.parametrize("damage", ["cut", "other", "gone", "link", "folder", "huge"])
def test_every_damage_is_refused(stored: Path, file: str, damage: str, tmp_path: Path) -> None:
    path = stored / file
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "other":
        path.write_bytes(content.replace(b"e", b"E") + b"x")
    elif damage == "link":
        (tmp_path / "elsewhere").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere")
    elif damage == "folder":
        path.mkdir()
    elif damage == "huge":
        with path.open("wb") as out:
            out.truncate(1 << 40)
    with pytest.raises(HostRefusal) as caught:
        load_release(stored)
    assert caught.value.code == ("release-missing" if (file, damage) == ("release.json", "gone") else "release-damaged")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"schema": "archonctl.release/1"}', "[" * 100_000])
def test_a_manifest_that_is_none_is_refused(stored: Path, text: str) -> None:
    (stored / "release.json").write_text(text)
    with pytest.raises(HostRefusal, match="release"):
        load_release(stored)


def test_a_manifest_cannot_name_files_elsewhere(stored: Path) -> None:
    manifest = json.loads((stored / "release.json").read_text())
    manifest["files"]["../../x"] = {"sha256": "0" * 64}
    (stored / "release.json").write_text(json.dumps(manifest))
    with pytest.raises(HostRefusal) as caught:
        load_release(stored)
    assert caught.value.code == "release-damaged"
