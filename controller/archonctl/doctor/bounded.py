"""Work that may never come back (a driver, a network mount, a daemon), each piece in a process of its own.

A thread would do for most, but a process that waits in the kernel keeps its threads from ending with it; a child can be
left behind. Nothing here raises for what the work does.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 8
"""Children at a time: more would only wait for each other on a small machine."""

_CHUNK_BYTES = 1 << 16
_REAP_S = 0.2
"""A killed child is gone within this, or waits in the kernel and never may be."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is none; ``late``: it still ran when its time was over."""

    why: str
    late: bool


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """What is to be done within ``deadline_s`` seconds."""

    work: Callable[[], T]
    deadline_s: float


@dataclass
class _Child:
    index: int
    pid: int
    pipe: int
    deadline_s: float
    until: float
    said: bytearray = field(default_factory=bytearray)


def gather(tasks: Sequence[Task[T]], at_once: int = AT_ONCE) -> list[T | NoAnswer]:
    """The answers in the order of the tasks. What a task returns must be picklable."""
    answers: list[T | NoAnswer] = [NoAnswer("it was not begun", late=False)] * len(tasks)
    waiting = list(enumerate(tasks))
    running: dict[int, _Child] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                index, task = waiting.pop(0)
                child = _begin(index, task)
                running[child.pipe] = child
            _listen(running)
            for child in [c for c in running.values() if c.until <= 0 or time.monotonic() >= c.until]:
                del running[child.pipe]
                answers[child.index] = _end(child)
    finally:
        for child in running.values():
            _end(child)
    return answers


def _begin(index: int, task: Task[T]) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _work(task, writing)
    os.close(writing)
    return _Child(index, pid, reading, task.deadline_s, time.monotonic() + task.deadline_s)


def _work(task: Task[T], writing: int) -> None:
    """The child. Never returns."""
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        try:
            answer: object = task.work()
        except Exception as err:  # noqa: BLE001 - whatever it is, the parent says it
            answer = NoAnswer(f"{type(err).__name__}: {str(err)[:300]}", late=False)
        data = pickle.dumps(answer)
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _listen(running: dict[int, _Child]) -> None:
    """Take what has come; a child that has said all has no time left."""
    soonest = min(child.until for child in running.values())
    ready, _, _ = select.select(list(running), [], [], max(0.0, soonest - time.monotonic()))
    for pipe in ready:
        chunk = os.read(pipe, _CHUNK_BYTES)
        running[pipe].said += chunk
        if not chunk:
            running[pipe].until = 0.0


def _end(child: _Child) -> Any:
    """Its answer. It and what it started end; one that cannot be ended is left to process 1."""
    is_late = child.until > 0
    os.close(child.pipe)
    for kill in (os.killpg, os.kill):  # the group: it may have started a program; itself: it may have no group yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child.pid, signal.SIGKILL)
    end = time.monotonic() + _REAP_S
    while os.waitpid(child.pid, os.WNOHANG)[0] == 0 and time.monotonic() < end:
        time.sleep(0.001)
    if is_late:
        return NoAnswer(f"no answer within {child.deadline_s:g} s", late=True)
    try:
        return pickle.loads(bytes(child.said))  # our own child wrote it
    except Exception as err:  # noqa: BLE001 - cut short: it was killed
        return NoAnswer(f"it ended without an answer ({type(err).__name__})", late=False)
