"""A program in a pseudo-terminal, and its screen as a terminal would show it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence

import pyte


class Terminal:
    """``with Terminal(words, (80, 24)) as at: at.until(...)``. The program is killed at the end if it still runs."""

    def __init__(self, words: Sequence[str], size: tuple[int, int], env: Mapping[str, str] | None = None) -> None:
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.status: int | None = None
        self._master, self._slave = pty.openpty()
        self.resize(*size)
        self.modes = termios.tcgetattr(self._slave)
        full = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(env or {})}
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
                for number in (0, 1, 2):
                    os.dup2(self._slave, number)
                os.execvpe(words[0], list(words), full)
            finally:
                os._exit(127)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)
        os.close(self._slave)

    def resize(self, columns: int, lines: int) -> None:
        """Another size; the program hears of it."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def type(self, text: str) -> None:
        """Keys."""
        os.write(self._master, text.encode())

    def read(self, seconds: float) -> None:
        """Take what is written within that time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self._master], [], [], left)
            if not ready:
                return
            chunk = os.read(self._master, 65536)
            self.raw += chunk
            self._stream.feed(chunk)

    @property
    def text(self) -> str:
        """The screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, wanted: Callable[[str], bool] | str, seconds: float = 60) -> str:
        """The screen once it has that text, or is as wanted."""
        end = time.monotonic() + seconds
        while not (wanted in self.text if isinstance(wanted, str) else wanted(self.text)):
            assert time.monotonic() < end, f"not seen: {wanted}\n{self.text}"
            self.read(0.05)
        return self.text

    def ended(self, seconds: float = 30) -> int:
        """The exit code, once the program has ended."""
        end = time.monotonic() + seconds
        while self.status is None:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, f"it goes on\n{self.text}"
        self.read(0.1)
        return self.status

    def is_stopped(self, seconds: float = 30) -> bool:
        """True once it is stopped, as by Ctrl-Z."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid:
                return os.WIFSTOPPED(status)
        return False

    @property
    def is_restored(self) -> bool:
        """True if echo, line mode, cursor and the ordinary screen are back."""
        now = termios.tcgetattr(self._slave)
        enter, leave = self.raw.rfind(b"\x1b[?1049h"), self.raw.rfind(b"\x1b[?1049l")
        shown = self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")
        return now[3] == self.modes[3] and leave > enter and shown


def main(words: Sequence[str]) -> None:
    """``COLUMNS LINES WANTED KEYS COMMAND...``: the screen that has a text, and how it ended after keys, as JSON."""
    columns, lines, wanted, keys, *command = words
    with Terminal(command, (int(columns), int(lines))) as at:
        seen = at.until(wanted)
        at.type(keys)
        print(json.dumps({"screen": seen, "exit": at.ended(), "restored": at.is_restored}))


if __name__ == "__main__":
    main(sys.argv[1:])
