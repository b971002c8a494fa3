"""Talk on stderr while something long happens: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from archonctl.cli.harmless import harmless
from archonctl.cli.output import Output, written
from archonctl.probe.values import Progress
from archonctl.service.events import Event, Phase, Say

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_EVERY_S = 5.0
_IDLE_S = 30.0
_MOVED = 0.05
"""Where there is no terminal to redraw: a line every 5 s while it moves by 5 % or says other words, else every 30 s."""
_FIGURES = re.compile(r"\d[\d,.]*")


class Talker:
    """Says steps and draws progress. Silent with ``--quiet``. Use as a context manager."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._live = not out.quiet and sys.stderr.isatty()
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._last = 0.0
        self._share = 0.0
        self._words = ""

    def __enter__(self) -> Talker:
        if self._live:
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("  {task.description}"), BarColumn(24), TimeElapsedColumn())
            console = Console(stderr=True, no_color=not self._out.colour, highlight=False)
            self._bar = Bar(*columns, console=console, transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """A finished step: stays on the screen."""
        self._forget()
        if self._bar is None:
            self._out.talk(text)
        else:
            self._bar.console.print(harmless(text), markup=False, soft_wrap=True)

    def answer(self, text: str) -> None:
        """The answer, in the middle of talk: on stdout, with no live line across it."""
        self._forget()
        if self._bar is not None:
            self._bar.stop()
        self._out.answer(text)
        with written():
            sys.stdout.flush()
        if self._bar is not None:
            self._bar.start()

    def event(self, event: Event) -> None:
        """A step of ``up``."""
        if event.progress:
            self._draw(f"{event.phase}: {event.text}", event.fraction)
        else:
            self.say(f"{event.elapsed_s:6.1f} s  {event.phase:<9} {event.text}")

    def probe(self, progress: Progress) -> None:
        """Tokens of a running leg; the short ones have nothing to count."""
        if progress.total_tokens <= 1:
            return
        share = progress.done_tokens / progress.total_tokens if progress.total_tokens else None
        count = f"{progress.done_tokens:,} of {progress.total_tokens:,} tokens"
        left = "" if progress.left_s is None else f", about {_span(progress.left_s)} left"
        self._draw(f"{progress.leg}: {count}{f', {progress.text}' if progress.text else ''}{left}", share)

    def read(self, path: str, done_bytes: int, total_bytes: int) -> None:
        """How far a file was read."""
        count = f"{done_bytes / 2**30:,.1f} of {total_bytes / 2**30:,.1f} GiB"
        self._draw(f"sha256 of {path}: {count}", done_bytes / total_bytes if total_bytes else None)

    def _draw(self, text: str, share: float | None) -> None:
        if self._bar is None:
            now, words = time.monotonic(), _FIGURES.sub("", text)
            moved = share is None or abs(share - self._share) >= _MOVED or words != self._words
            if now - self._last >= (_EVERY_S if moved else _IDLE_S):
                self._last, self._share, self._words = now, share or 0.0, words
                self._out.talk(f"          {text}")
            return
        text, total = harmless(text), None if share is None else 1.0
        if self._task is None:
            self._task = self._bar.add_task(text, total=total)
        self._bar.update(self._task, description=text, total=total, completed=share or 0.0)

    def _forget(self) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def saying(talker: Talker) -> Say:
    """The talker for rooms that tell steps before the time of a change counts."""
    began = time.monotonic()

    def say(phase: Phase, text: str, fraction: float | None = None, *, progress: bool = False) -> None:
        talker.event(Event(phase, text, time.monotonic() - began, fraction, progress))

    return say
