"""Work on what cannot be trusted, in a process that may do little: fork, drop root, talk over one pipe.

The parent stays root and reads bounded JSON lines from its own child; nothing that an engine wrote or answered is
parsed by root.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from archonctl.errors import HostRefusal

Message = dict[str, object]
Send = Callable[[Message], None]

LINE_LIMIT_BYTES = 4 * 1024 * 1024
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Account:
    """Whom the work is done as: numbers, and the groups that let it see what it has to."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def account(name: str, groups: Sequence[str], more: Sequence[int] = ()) -> Account:
    """The named account, or nobody where it does not exist; groups that do not exist are left out."""
    try:
        found = pwd.getpwnam(name)
        uid, gid = found.pw_uid, found.pw_gid
    except KeyError:
        uid = gid = _NOBODY
    known = {group.gr_name: group.gr_gid for group in grp.getgrall()}
    return Account(uid, gid, tuple(dict.fromkeys([*(known[each] for each in groups if each in known), *more])))


def apart(who: Account | None, work: Callable[[Send], Message], on_message: Callable[[Message], None]) -> Message:
    """Run ``work`` in a child process as ``who`` (None: as this user) and return its answer.

    What ``work`` sends is given to ``on_message`` as it comes; an exception of that ends the child. Raises HostRefusal
    ``helper-died`` where the child ends without an answer or says something that is none.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(who, work, writing)
    os.close(writing)
    ended = False
    try:
        with os.fdopen(reading, "rb") as pipe:
            while line := pipe.readline(LINE_LIMIT_BYTES):
                message = _parsed(line)
                if "answer" in message:
                    answer = message["answer"]
                    if isinstance(answer, dict):
                        return answer
                    raise _died("its answer is no object")
                on_message(message)
        status = os.waitpid(child, 0)[1]
        ended = True
        raise _died(f"it ended without an answer, {_words(status)}")
    finally:
        if not ended:
            _end(child)


def _child(who: Account | None, work: Callable[[Send], Message], writing: int) -> None:
    """Never returns."""
    code = 70
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if who is not None:
            os.setgroups(list(who.groups))
            os.setresgid(who.gid, who.gid, who.gid)
            os.setresuid(who.uid, who.uid, who.uid)

        def send(message: Mapping[str, object]) -> None:
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(writing, data) :]

        send({"answer": work(send)})
        code = 0
    except BaseException as err:  # noqa: BLE001 - the last frame of this process: whatever it is, it must end here
        os.write(2, f"archonctl: {type(err).__name__}: {str(err)[:500]}\n".encode())
    finally:
        os._exit(code)


def _parsed(line: bytes) -> Message:
    try:
        message = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise _died("what it says is not JSON")
    return message


def _end(child: int) -> None:
    """SIGTERM, so that its journalctl and connections end with it; it has no handler that could refuse."""
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)


def _words(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit {code}" if code >= 0 else f"signal {-code}"


def _died(why: str) -> HostRefusal:
    hint = "a defect of archonctl, or the machine is out of memory: see the journal"
    return HostRefusal("helper-died", f"the process that judges the engine failed: {why}", hint=hint)
