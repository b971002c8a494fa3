"""Ctrl-C, SIGTERM and SIGHUP while something of ours runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The first signal: raised wherever the program is, so that what was started gets stopped."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """A context in which the first signal raises Interrupted, once, and later ones only call ``hurry``.

    ``held()`` puts the raising off to its end, ``shield()`` ends it for good (cleaning up). Outside the main
    thread there are no handlers to set, and the context does nothing.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.hurry: Callable[[], None] = lambda: None
        self._shielded = False
        self._held = False
        self._raised = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def shield(self) -> None:
        """From here on signals do not raise."""
        self._shielded = True

    @property
    def held_back(self) -> bool:
        """True if a first signal came after ``shield``, and so interrupted nothing."""
        return self._shielded and self.number is not None and not self._raised

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let a step that must not be torn (a start and the note of it) end before a signal raises."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self._raise()

    @contextlib.contextmanager
    def for_asyncio(self) -> Iterator[None]:
        """Let ``asyncio.run`` handle the signals: it cancels its tasks in order, where a raise would tear them.

        It does so for SIGINT alone, and only over Python's own handler (asyncio.Runner); the others become SIGINT.
        """
        if not self._before:
            yield
            return
        try:
            # Inside, because a signal may come between any two of these lines.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for number in SIGNALS[1:]:
                signal.signal(number, self._as_sigint)
            yield
        except KeyboardInterrupt:
            self.number, self._raised = self.number or signal.SIGINT, True
            raise Interrupted(self.number) from None
        finally:
            for number in SIGNALS:
                signal.signal(number, self._handle)

    def _as_sigint(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        signal.raise_signal(signal.SIGINT)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number
            self._raise()
        else:
            self.hurry()

    def _raise(self) -> None:
        if self.number is not None and not (self._raised or self._held or self._shielded):
            self._raised = True
            raise Interrupted(self.number)
