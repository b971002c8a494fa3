"""Ctrl-C, SIGTERM and SIGHUP while something of ours runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The first signal: raised wherever the program is, so that what was started gets stopped."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """A context in which the first signal raises Interrupted, and later ones only call ``hurry``.

    ``shield()`` ends the raising for good: from then on (cleaning up) every signal is a hurry. Outside the
    main thread there are no handlers to set, and the context does nothing.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.hurry: Callable[[], None] = lambda: None
        self._shielded = False
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

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        first, self.number = self.number is None, self.number or number
        if self._shielded or not first:
            if not first:
                self.hurry()
            return
        raise Interrupted(number)
