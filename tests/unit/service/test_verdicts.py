"""The verdict that a start wrote down is believed for that start alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from archonctl.service.installed import Installed
from archonctl.service.place import Place
from archonctl.service.verdicts import written_record, written_verdict

DIGEST, INVOCATION = "0123456789abcdef", "ab" * 16
VALUE = {
    "schema": "archonctl.verify/1",
    "verdict": "holds",
    "reasons": [],
    "code": None,
    "depth": "admission",
    "probe": {"legs": []},
    "release": DIGEST + "0" * 48,
    "invocation": INVOCATION,
    "at": 5.0,
    "boot_id": "b",
}


def tiny(root: Path) -> Installed:
    """An endpoint whose verdicts lie in ``root``."""
    return Installed("tiny", root, Place(Path("/var/lib/archon"), root, user=False))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the verdict lies; only root's counts."""
    if os.geteuid() != 0:
        pytest.skip("only a file of root's is believed")
    return tmp_path / "tiny.verdict.json"


def test_it_counts_for_its_start_release_and_depth(file: Path, tmp_path: Path) -> None:
    file.write_text(json.dumps(VALUE))
    installed = tiny(tmp_path)
    found = written_verdict(installed, DIGEST, INVOCATION, "admission")
    assert found is not None
    assert (found.word, found.depth) == ("holds", "admission")
    assert written_verdict(installed, DIGEST, INVOCATION, "full") is None
    assert written_verdict(installed, DIGEST, "cd" * 16, "ledger") is None
    assert written_verdict(installed, DIGEST, "", "ledger") is None
    assert written_verdict(installed, "f" * 16, INVOCATION, "ledger") is None
    assert written_verdict(installed, "", INVOCATION, "ledger") is None


def test_a_broken_one_counts_however_deep_it_looked(file: Path, tmp_path: Path) -> None:
    legs = [{"id": "ledger", "status": "fail", "code": "kv-tokens-short"}, {"id": "x", "status": "pass", "code": None}]
    broken = VALUE | {"verdict": "broken", "reasons": ["short"], "depth": "ledger", "probe": {"legs": legs}}
    file.write_text(json.dumps(broken))
    found = written_verdict(tiny(tmp_path), DIGEST, INVOCATION, "full")
    assert found is not None
    assert (found.word, found.reasons, found.codes) == ("broken", ("short",), ("kv-tokens-short",))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"verdict": 1}', "[" * 100_000])
def test_what_is_no_verdict_is_none(file: Path, tmp_path: Path, text: str) -> None:
    file.write_text(text)
    assert written_verdict(tiny(tmp_path), DIGEST, INVOCATION, "ledger") is None
    assert written_record(tiny(tmp_path), DIGEST, INVOCATION) is None


def test_a_link_and_another_users_file_are_not_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "real").write_text(json.dumps(VALUE))
    file.symlink_to(tmp_path / "real")
    assert written_record(tiny(tmp_path), DIGEST, INVOCATION) is None
    file.unlink()
    file.write_text(json.dumps(VALUE))
    os.chown(file, 65534, 65534)
    assert written_record(tiny(tmp_path), DIGEST, INVOCATION) is None


def test_as_an_event_it_has_its_boot(file: Path, tmp_path: Path) -> None:
    file.write_text(json.dumps(VALUE))
    found = written_record(tiny(tmp_path), DIGEST, INVOCATION)
    assert found is not None
    assert (found.verdict, found.at, found.facts) == ("holds", 5.0, {"boot_id": "b"})
