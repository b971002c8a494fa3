"""Which endpoint is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.deployment.find import declarations, find_endpoint
from archonctl.errors import DeclarationError, UsageError

DECLARATION = "[contract]\nseqs = 1\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "env" / "hosts").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "env" / "hosts" / "big.toml").write_text(DECLARATION)
    (tmp_path / "env" / "notes.toml").write_text("[other]\n")
    return tmp_path


def find(place: Path, arg: str | None = None, **environ: str) -> tuple[Path, str]:
    return find_endpoint(arg, environ, place, system_dir=place / "etc")


def declare(place: Path, *names: str, folder: str = "env") -> None:
    for name in names:
        (place / folder / f"{name}.toml").write_text(DECLARATION)


def test_a_name_stands_for_a_file_in_env_then_in_the_systems_folder(place: Path) -> None:
    declare(place, "tiny")
    declare(place, "tiny", "far", folder="etc")
    assert find(place, "tiny") == (Path("env/tiny.toml"), "")
    assert find(place, "far") == (Path("etc/far.toml"), "")


def test_a_path_is_taken_as_it_is(place: Path) -> None:
    declare(place, "tiny")
    assert find(place, "env/tiny.toml") == (Path("env/tiny.toml"), "")
    assert find(place, str(place / "env/tiny.toml")) == (place / "env/tiny.toml", "")
    (place / "plain").write_text(DECLARATION)
    assert find(place, "plain") == (Path("plain"), "")


def test_without_a_name_the_variable_decides_and_it_is_said(place: Path) -> None:
    declare(place, "archon", "tiny")
    assert find(place, ARCHON_ENDPOINT="tiny") == (
        Path("env/tiny.toml"),
        "endpoint env/tiny.toml (from $ARCHON_ENDPOINT)",
    )
    assert find(place, ARCHON_ENDPOINT="")[0] == Path("env/archon.toml")
    with pytest.raises(UsageError) as caught:
        find(place, ARCHON_ENDPOINT="tinny")
    assert caught.value.where == "from $ARCHON_ENDPOINT"


def test_archon_is_preferred_then_the_only_one_then_the_systems_folder(place: Path) -> None:
    declare(place, "far", folder="etc")
    assert find(place) == (Path("etc/far.toml"), "endpoint etc/far.toml (the only one in etc)")
    declare(place, "tiny")
    assert find(place) == (Path("env/tiny.toml"), "endpoint env/tiny.toml (the only one in env)")
    declare(place, "archon")
    assert find(place) == (Path("env/archon.toml"), "endpoint env/archon.toml (the one named 'archon' in env)")


def test_several_are_listed(place: Path) -> None:
    declare(place, "one", "two")
    with pytest.raises(UsageError) as caught:
        find(place)
    assert caught.value.code == "endpoint-ambiguous"
    assert caught.value.exit_code == 2
    assert "one, two" in caught.value.message


def test_none_at_all_says_where_it_looked(place: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find(place)
    assert caught.value.code == "endpoint-not-found"
    assert str(place / "etc") in caught.value.message


@pytest.mark.parametrize("arg", ["", "x\0y", "tinny", "env/tinny.toml", "n" * 5000, "\udcff", "../x", "é"])
def test_what_matches_nothing_is_refused_with_the_candidates(place: Path, arg: str) -> None:
    declare(place, "tiny")
    with pytest.raises(UsageError) as caught:
        find(place, arg)
    assert caught.value.code == "endpoint-not-found"
    assert "tiny" in caught.value.hint
    str(caught.value).encode()
    if arg == "tinny":
        assert "did you mean tiny?" in caught.value.hint


def test_only_declarations_directly_in_the_folder_count(place: Path) -> None:
    declare(place, "good", ".hidden")
    (place / "env" / "broken.toml").write_text("[[[\n [contract]\nseqs = = 3\n")
    (place / "env" / "dotted.toml").write_text("contract.seqs = 3\n")
    (place / "env" / "folder.toml").mkdir()
    (place / "env" / "dangling.toml").symlink_to("nowhere")
    (place / "env" / "comment.toml").write_text("# [contract]\nx = '[contract]'\n")
    assert [path.stem for path in declarations(place / "env")] == ["broken", "dotted", "good"]
    assert declarations(place / "nowhere") == ()


def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(place, "other", folder="etc")

    def refused(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("archonctl.deployment.find.os.listdir", refused)
    with pytest.raises(DeclarationError, match=r"declaration-unreadable: .*/env: cannot list .*: Permission denied"):
        find(place)
