"""Safe edits: what a diff shows is what is written, in one step, and nothing that changed meanwhile is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from archonctl.errors import HostRefusal
from archonctl.findings import Edit, Finding, Place
from archonctl.gate.fix import fixes, write
from archonctl.gate.paths import Options, check_paths

GOLDEN = Path(__file__).parents[2] / "golden" / "gate"
NO_UNITS = Options(verify_units=False)


def finding(path: Path, line: int, old: str, new: str | None) -> Finding:
    return Finding("a-b", "error", "m", Place(str(path), line), "", Edit(str(path), line, old, new))


def test_several_edits_of_one_line_and_removed_lines(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one --a --b two\r\nthree\nfour")
    found = fixes(
        [
            finding(path, 1, "one --a --b two", "one --A --b two"),
            finding(path, 1, "one --a --b two", "one --a --BB two"),
            finding(path, 2, "three", None),
            finding(path, 3, "another line", "x"),
        ]
    )
    assert [(one.after, one.left) for one in found] == [("one --A --BB two\r\nfour", 1)]


def test_edits_that_overlap_wait_for_another_run(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("abc\n")
    (found,) = fixes([finding(path, 1, "abc", "aXc"), finding(path, 1, "abc", "Zbc"), finding(path, 1, "abc", "Q")])
    assert found.left >= 1


def test_stale_declarations_and_scripts_become_clean_of_what_can_be_renamed(tmp_path: Path) -> None:
    for name in ("short.toml", "stale.sh", "loops.service", "archon.env"):
        shutil.copy(GOLDEN / "bad" / name, tmp_path / name)
    before = check_paths([tmp_path], NO_UNITS)
    assert sum(one.edit is not None for one in before.findings) >= 4
    for fixed in fixes(before.findings):
        write(fixed)
    after = check_paths([tmp_path], NO_UNITS)
    assert not [one for one in after.findings if one.edit]
    assert "prefix-cache-mib = 8192        # renamed since" in (tmp_path / "short.toml").read_text()
    assert "  --prefix-cache-mib 8192\n" in (tmp_path / "stale.sh").read_text()
    assert "EnvironmentFile=-/etc/default/llama\n" in (tmp_path / "loops.service").read_text()
    assert (tmp_path / "archon.env").read_text().startswith("HOST_POOL_MIB=45568\n")


@pytest.mark.optional
@pytest.mark.skipif(shutil.which("patch") is None, reason="patch(1) is the user's own tool")
def test_the_diff_is_one_that_patch_takes(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "bad" / "stale.sh", tmp_path / "stale.sh")
    (fixed,) = fixes(check_paths([tmp_path / "stale.sh"], NO_UNITS).findings)
    done = subprocess.run(["patch", "-p0", fixed.path], input=fixed.diff, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "stale.sh").read_text() == fixed.after


def test_the_mode_is_kept_and_a_link_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "real" / "f.sh"
    path.parent.mkdir()
    path.write_text("a\n")
    path.chmod(0o750)
    (tmp_path / "link.sh").symlink_to(path)
    (fixed,) = fixes([finding(tmp_path / "link.sh", 1, "a", "b")])
    write(fixed)
    assert path.read_text() == "b\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "link.sh").is_symlink()
    assert os.listdir(path.parent) == ["f.sh"]  # noqa: PTH208


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a\n")
    (fixed,) = fixes([finding(path, 1, "a", "b")])
    path.write_text("a\nc\n")
    with pytest.raises(HostRefusal) as caught:
        write(fixed)
    assert caught.value.code == "fix-not-written"
    assert path.read_text() == "a\nc\n"


def test_no_edit_no_file(tmp_path: Path) -> None:
    assert fixes([finding(tmp_path / "none", 1, "a", "b")]) == ()
    assert fixes([]) == ()


def test_stale_variables_of_an_env_file_are_renamed_or_removed(tmp_path: Path) -> None:
    path = tmp_path / "archon.env"
    path.write_text(
        "IMAGE=r/radiance:1.8.1\nPREFIX_CACHE_HOST_MIB=8192\nexport PREFIX_CACHE_DISK_MIB='1'\n"
        "VRAM_KV_MIB=1\nMAX_SEQS=3\nHOST_POOL_MIB=1\nPREFIX_CACHE_DIR=/a b\n"
    )
    (fixed,) = fixes(check_paths([path], Options(verify_units=False)).findings)
    assert fixed.after == (
        "IMAGE=r/radiance:1.8.1\nPREFIX_CACHE_MIB=8192\n"
        "VRAM_KV_MIB=1\nMAX_SEQS=3\nHOST_POOL_MIB=1\nPREFIX_CACHE_DIR=/a b\n"
    )


def test_a_stale_variable_of_a_script_is_left_to_its_author(tmp_path: Path) -> None:
    path = tmp_path / "a.sh"
    path.write_text("#!/bin/sh\n# archonctl: engine=vllm version=0.26.0\nVLLM_USE_V1=1 vllm serve m\n")
    findings = check_paths([path], Options(verify_units=False)).findings
    assert [one.code for one in findings] == ["knob-retired"]
    assert fixes(findings) == ()
