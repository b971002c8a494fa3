"""The host that a declaration names."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.deployment.load import load_endpoint
from archonctl.errors import DeclarationError
from archonctl.host.load import load_host, read_profile
from archonctl.host.profile import Host

PROFILE = """\
name = "archon"
ram_mib = 251_976
ttm_target_mib = 204_800
[[cards]]
index = 0
name = "rank 0"
total_mib = 31_856
outside_mib = 1_710
reserve_mib = 1_024
[cards.settle]
free_gib = "2.01"
floor_mib = 209.19
at_ceiling_mib = 29_120
[[cards]]
index = 1
name = "rank 1"
total_mib = 31_856
"""


def host_of(tmp_path: Path, section: str) -> Host:
    path = tmp_path / "env" / "e.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        f'[contract]\nseqs = 1\nlen = 4096\n[engine]\nkind = "radiance"\n[model]\npath = "m"\n[host]\n{section}\n'
    )
    return load_host(load_endpoint(path, {}, {}, cwd=tmp_path), root=tmp_path)


def test_a_profile_is_read_below_the_root_of_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "env" / "hosts").mkdir(parents=True)
    (tmp_path / "env" / "hosts" / "archon.toml").write_text(PROFILE)
    host = host_of(tmp_path, 'profile = "env/hosts/archon.toml"')
    assert (host.name, host.source, host.ram_mib) == ("archon", "declared", 251_976)
    assert [c.total_mib for c in host.cards] == [31_856, 31_856]
    assert host.cards[0].settle is not None
    assert host.cards[0].settle.free_gib == "2.01"


def test_detection_reads_this_machine(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 4096000 kB\nMemAvailable: 1024000 kB\n")
    host = host_of(tmp_path, "detect = true")
    assert (host.source, host.ram_mib, host.available_mib) == ("sysfs", 4000, 1000)


def test_neither_is_a_host_of_unknowns_that_says_so(tmp_path: Path) -> None:
    host = host_of(tmp_path, "")
    assert (host.source, host.ram_mib, host.cards) == ("assumed", None, ())
    assert host.notes


def test_a_profile_that_is_not_there_names_the_key_that_wants_it(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError) as caught:
        host_of(tmp_path, 'profile = "nowhere.toml"')
    assert caught.value.code == "declaration-not-found"
    assert "host profile" in caught.value.message
    assert caught.value.hint.endswith("e.toml:9")


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "text"),
    [
        ("ram_mib = 251_976", "ram_mb = 3", "unknown-key", 2, "did you mean ram_mib?"),
        ("ram_mib = 251_976", "ram_mib = 0", "out-of-range", 2, "ram_mib is 0, expected a whole number above 0"),
        ("ram_mib = 251_976", 'ram_mib = "3"', "wrong-type", 2, "the text '3'"),
        ("ram_mib = 251_976", "ram_mib = 5\navailable_mib = 6", "contradiction", 3, "at most ram_mib, 5"),
        ("index = 1", "index = 0", "contradiction", 15, "card index 0 is used 2 times"),
        ("index = 1", "index = 1\nfre_mib = 3", "unknown-key", 16, "cards[1].fre_mib is no key in [[cards]]"),
        ('free_gib = "2.01"', "free_gib = 2.01", "wrong-type", 11, "the printed decimal as text"),
        ('free_gib = "2.01"', 'free_gib = "2,01"', "bad-value", 11, "the printed decimal as text"),
        (
            "outside_mib = 1_710",
            "outside_mib = 31_000",
            "contradiction",
            8,
            "32,024, expected at most total_mib, 31,856",
        ),
        ("index = 1", "index = 1\nfree_mib = 40_000", "contradiction", 16, "expected at most total_mib"),
        ('name = "rank 1"', "", "missing-key", 14, "cards[1].name is missing, expected text"),
        ("floor_mib = 209.19", "floor_mib = inf", "out-of-range", 12, "inf"),
    ],
)
def test_a_mistake_in_a_profile_is_one_error_with_its_line(
    tmp_path: Path, old: str, new: str, code: str, line: int, text: str
) -> None:
    path = tmp_path / "p.toml"
    path.write_text(PROFILE.replace(old, new))
    with pytest.raises(DeclarationError) as caught:
        read_profile(path)
    assert caught.value.code == f"declaration-{code}"
    assert caught.value.where == f"{path}:{line}"
    assert text in str(caught.value)


def test_an_empty_profile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text("\n")
    with pytest.raises(DeclarationError, match="the host profile is empty"):
        read_profile(path)
