"""What a unit takes away from its engine."""

from __future__ import annotations

import pytest

from archonctl.release.sandbox import rows, sandbox


def test_every_line_has_a_reason_and_is_there_once() -> None:
    names = [str(row["line"]).partition("=")[0] for row in rows()]
    assert len(set(names)) == len(names)
    assert all(row["why"] and set(row) <= {"line", "why", "privileged"} for row in rows())


@pytest.mark.parametrize("word", ["/home/ann/cache", "--slot-save-path=/home/ann", "/root/x", "a:/home", "/root"])
def test_homes_are_read_only_unless_the_engine_may_write_there(word: str) -> None:
    assert "ProtectHome=read-only" in sandbox(["--threads", "1", "/srv/home/x", "--roots=/rootfs"])
    assert "ProtectHome=read-only" not in sandbox(["--threads", word])


def test_a_users_own_manager_is_asked_for_nothing_that_it_cannot_do() -> None:
    """Capabilities and mounts failed such a unit with 218 and 226 (seen on systemd 252)."""
    names = {line.partition("=")[0] for line in sandbox([], own_manager=True)}
    assert "NoNewPrivileges" in names
    assert not {name for name in names if name.startswith(("Protect", "Capability", "Private"))}
