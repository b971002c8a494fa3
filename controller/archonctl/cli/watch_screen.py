"""A terminal that is taken over and given back as it was: alternate screen, keys, resizes, stops and signals."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import termios
import tty
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Literal

Key = Literal["quit", "up", "down", "page up", "page down", "first", "last", "redraw"]

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The alternate screen, no cursor, no wrapping at the margin, nothing on it (xterm's ctlseqs)."""
_LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_KEYS: dict[bytes, Key] = {
    **dict.fromkeys((b"q", b"Q", b"\x04"), "quit"),
    **dict.fromkeys((b"k", b"\x1b[A", b"\x1bOA"), "up"),
    **dict.fromkeys((b"j", b"\x1b[B", b"\x1bOB"), "down"),
    **dict.fromkeys((b"b", b"\x1b[5~"), "page up"),
    **dict.fromkeys((b" ", b"\x1b[6~"), "page down"),
    **dict.fromkeys((b"g", b"\x1b[H", b"\x1b[1~", b"\x1bOH"), "first"),
    **dict.fromkeys((b"G", b"\x1b[F", b"\x1b[4~", b"\x1bOF"), "last"),
    b"\x0c": "redraw",
}
_LONGEST = max(map(len, _KEYS))
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


def keys_of(raw: bytes) -> tuple[list[Key], bytes]:
    """The keys in what was read, and the beginning of one that has not come whole; unknown ones are passed over."""
    found: list[Key] = []
    while raw:
        size = next((n for n in range(_LONGEST, 0, -1) if raw[:n] in _KEYS), 0)
        if size:
            found.append(_KEYS[raw[:size]])
        elif len(raw) < _LONGEST and raw[:1] == b"\x1b" and any(key.startswith(raw) for key in _KEYS):
            return found, raw
        raw = raw[max(1, size) :]
    return found, b""


class Screen:
    """A context: the terminal of ``out`` is ours inside it, and as it was outside, however that is left.

    ``keys`` is the terminal that is typed at, None where there is none. ``ended`` is the signal that ends it, else 0.
    """

    def __init__(self, out: int, keys: int | None) -> None:
        self._out, self._keys = out, keys
        self._modes: list[int | list[bytes | int]] | None = None
        self._drawn: list[str] = []
        self._size = (0, 0)
        self._rest = b""
        self._stopped = False
        self._wake: tuple[int, int] = (-1, -1)
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._wakeup_before = -1
        self.ended = 0

    def __enter__(self) -> Screen:
        self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup_before = signal.set_wakeup_fd(self._wake[1], warn_on_full_buffer=False)
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, self._heard)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for end in self._wake:
            os.close(end)

    def size(self) -> tuple[int, int]:
        """Columns and lines now; 80 x 24 where the terminal does not say."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return (found.columns or 80, found.lines or 24)

    def draw(self, lines: Sequence[str], size: tuple[int, int]) -> None:
        """Show them, each as wide as the screen: only those that changed are written, in one piece."""
        parts: list[str] = []
        if size != self._size or len(lines) != len(self._drawn):
            parts.append("\x1b[0m\x1b[2J")
            self._drawn, self._size = [""] * len(lines), size
        for number, (line, before) in enumerate(zip(lines, self._drawn, strict=True), 1):
            if line != before:
                parts.append(f"\x1b[{number};1H{line}")
        self._drawn = list(lines)
        if parts:
            self._write("".join(parts).encode("utf-8", "replace"))

    def wait(self, seconds: float) -> list[Key]:
        """Until a key or a signal comes, or the time is over. A stop (Ctrl-Z) is slept through in here."""
        watched = [self._wake[0]] if self._keys is None else [self._wake[0], self._keys]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wake[0] in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake[0], 512)
        if self._stopped:
            self._sleep()
            return ["redraw"]
        if self._keys is None or self._keys not in ready:
            return []
        found = self._typed(self._keys)
        if "redraw" in found:
            self._drawn = []
        return found

    def _typed(self, keys: int) -> list[Key]:
        try:
            raw = os.read(keys, 256)
        except OSError:  # the terminal has gone
            raw = b""
        if not raw:
            return ["quit"]
        found, self._rest = keys_of(self._rest + raw)
        return found

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        """Only notes what came: the loop acts on it, between two frames."""
        if number == signal.SIGTSTP:
            self._stopped = True
        elif number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.ended = number

    def _sleep(self) -> None:
        """Stop as any program does, with the terminal given back; go on where it was left."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._heard)
        self._stopped = False
        self._take()

    def _take(self) -> None:
        if self._keys is not None:
            self._modes = termios.tcgetattr(self._keys)
            _uninterrupted(lambda keys: tty.setcbreak(keys, termios.TCSANOW), self._keys)
        self._drawn, self._size = [], (0, 0)
        self._write(_ENTER)

    def _give_back(self) -> None:
        self._write(_LEAVE)
        if self._keys is not None and self._modes is not None:
            modes = self._modes
            with contextlib.suppress(termios.error):  # the terminal has gone
                _uninterrupted(lambda keys: termios.tcsetattr(keys, termios.TCSANOW, modes), self._keys)

    def _write(self, raw: bytes) -> None:
        with contextlib.suppress(OSError):  # the terminal has gone: SIGHUP or the end of its input tells
            while raw:
                raw = raw[os.write(self._out, raw) :]


def _uninterrupted(change: Callable[[int], object], keys: int) -> None:
    """Change the modes of a terminal, again where a signal came between: whoever is stopped for changing them from the
    background (SIGTTOU) hears of SIGCONT in the middle of it. Raises termios.error."""
    while True:
        try:
            change(keys)
        except termios.error as err:
            if err.args[0] != errno.EINTR:
                raise
        else:
            return
