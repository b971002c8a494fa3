"""``archonctl watch`` in a terminal: what is on its screen, and that the terminal is given back as it was."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.simd import do_apply, machine
from support.terminal import Terminal

TESTS = Path(__file__).parents[2]
Env = dict[str, str]


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The command, over a machine with one endpoint."""
    do_apply(machine(tmp_path), "a")
    return [sys.executable, "-m", "support.watching", str(tmp_path)]


@pytest.fixture
def env() -> Env:
    """Where the command finds its parts."""
    return {"PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


@pytest.fixture
def terminal(words: list[str], env: Env) -> Iterator[Terminal]:
    """A terminal of 80 x 24 that shows the endpoint."""
    with Terminal(words, (80, 24), env) as at:
        at.until("✓ holds")
        yield at


@pytest.mark.parametrize("key", ["q", "\x03", "\x04"])
def test_it_is_left_by_a_key_and_gives_the_terminal_back(terminal: Terminal, key: str) -> None:
    assert "▸ tiny" in terminal.text
    assert not terminal.is_restored
    terminal.type(key)
    assert terminal.ended() == 0
    assert terminal.is_restored


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_gives_the_terminal_back(terminal: Terminal, number: signal.Signals) -> None:
    os.kill(terminal.pid, number)
    assert terminal.ended() == 128 + number
    assert terminal.is_restored


def test_it_follows_the_window(terminal: Terminal) -> None:
    for columns, lines in ((40, 12), (120, 40), (20, 5), (80, 24)):
        terminal.resize(columns, lines)
        terminal.until(lambda text: text.startswith(("archonctl watch", "1 holds")) and ":" in text.splitlines()[0])
        terminal.until(lambda text, at=lines: "q quit" in text.splitlines()[-1] if at >= 8 else "q quit" not in text)  # type: ignore[misc]
        assert len(terminal.text.splitlines()) <= lines


def test_what_did_not_change_is_not_written_again(terminal: Terminal) -> None:
    terminal.read(1.5)
    before = len(terminal.raw)
    terminal.read(3)
    assert b"\x1b[2J" not in terminal.raw[before:], "the screen is cleared, which flickers"
    assert len(terminal.raw) - before < 6 * 24 * 80 / 4


def test_it_stops_for_the_shell_and_goes_on(words: list[str], env: Env, tmp_path: Path) -> None:
    modes = tmp_path / "modes"
    script = f"{shlex.join(words)}; stty -a >{modes}; echo to the shell; fg >/dev/null; echo over"
    with Terminal(["bash", "-mc", script], (80, 24), env) as at:
        at.until("✓ holds")
        at.type("\x1a")
        at.until(lambda _: b"to the shell" in at.raw)
        shown = at.raw.index(b"to the shell")
        assert b"\x1b[?1049l" in at.raw[:shown]
        assert {"echo", "icanon", "isig"} <= set(modes.read_text().replace(";", " ").split())
        at.until("✓ holds")
        at.until("q quit")
        at.type("q")
        assert at.ended() == 0
        assert at.is_restored
        assert "over" in at.text


def test_it_may_be_started_in_the_background_and_fetched(words: list[str], env: Env) -> None:
    script = f"{shlex.join(words)} & until jobs | grep -q Stopped; do sleep 0.1; done; echo it stopped; fg"
    with Terminal(["bash", "-mc", script], (80, 24), env) as at:
        at.until(lambda _: b"it stopped" in at.raw)
        at.until("✓ holds")
        at.type("q")
        assert at.ended() == 0
        assert at.is_restored


@pytest.mark.parametrize(
    ("more", "has", "lacks"),
    [
        ({"NO_COLOR": "1"}, b"\xe2\x9c\x93 holds", b"\x1b[32m"),
        ({"LC_ALL": "C"}, b"+ holds", b"\xe2"),
    ],
)
def test_no_colour_and_no_unicode_where_they_are_not_wanted(
    words: list[str], env: Env, more: Env, has: bytes, lacks: bytes
) -> None:
    with Terminal(words, (80, 24), env | more) as at:
        at.until(lambda _: has in at.raw)
        at.type("q")
        assert at.ended() == 0
        assert lacks not in at.raw


def test_without_a_terminal_it_is_one_plain_frame(words: list[str], env: Env) -> None:
    done = subprocess.run(
        words, check=False, env=os.environ | env | {"LC_ALL": "C.UTF-8"}, capture_output=True, text=True, timeout=120
    )
    assert "tiny" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.returncode == 0, done.stderr


def test_no_endpoint_is_said_and_is_no_error(words: list[str], env: Env) -> None:
    with Terminal(words, (80, 24), env | {"WATCHED": "none"}) as at:
        at.until("no endpoint is installed on this machine")
        at.type("jq")
        assert at.ended() == 0
