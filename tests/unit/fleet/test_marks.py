"""Which rollouts of this machine are known to be gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from archonctl.errors import HostRefusal
from archonctl.fleet.rollout.marks import gone_rollouts, marked


def test_a_rollout_is_gone_when_nobody_has_its_lock_and_it_left_its_mark(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert gone_rollouts(environ) == ()
    with marked("killed", environ):  # what a killed process leaves is the same: the file, and no lock
        assert gone_rollouts(environ) == ()
    with marked("done", environ) as done, marked("lives", environ):
        done.unlink()
        assert gone_rollouts(environ) == ("killed",)
    assert gone_rollouts(environ) == ("killed", "lives")


def test_a_very_old_mark_is_removed(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    with marked("old", environ) as mark:
        long_ago = time.time() - 90 * 24 * 3600
        os.utime(mark, (long_ago, long_ago))
        assert gone_rollouts(environ) == ()
        assert mark.exists()
    assert gone_rollouts(environ) == ("old",)
    assert gone_rollouts(environ) == ()


def test_a_cache_that_cannot_be_written_is_a_refusal_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    assert gone_rollouts(environ) == ()
    with pytest.raises(HostRefusal, match="state-unwritable"), marked("a", environ):
        pass
