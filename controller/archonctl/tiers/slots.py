"""llama-server's slot API: what lies in each slot, and saving, restoring and erasing it. Bounded in time and bytes.

Read in llama.cpp b11434, tools/server/server-context.cpp (``process_single_task``, ``handle_slots_save`` and on) and
src/llama-context.cpp (``state_seq_save_file``, ``state_seq_load_file``):

- A file is written in place below ``--slot-save-path``, and ``fclose`` is not looked at: only its size and the answer's
  ``n_written`` together say that it is whole.
- A file that is cut short ends the engine (``GGML_ASSERT(nread <= state_size)``): never restore what is not verified.
- Nothing in a file names the model. Shapes and cache types are compared, so the state of another model of the same
  shape is taken, and answered from.
- A slot number beyond the last wraps around; a busy slot defers the action until it is free.
- A restore that fails leaves the slot empty. Context checkpoints are not in a file.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum

from archonctl.probe.jsonread import as_int, as_str, pick

Send = Callable[[str, str, bytes | None, int], Awaitable[tuple[int, bytes]]]
"""``await send(method, path, body, most_bytes)`` -> status and body. Raises OSError for anything that went wrong."""

FILE_NAME = re.compile(r"[0-9a-f]{32}\.kv")
"""The names that are used: far inside of what ``fs_validate_filename`` (common/common.cpp) takes."""
_LIST_BYTES = 4 << 20
_ANSWER_BYTES = 64 << 10


class Trouble(StrEnum):
    """Why the engine did not do it; a closed set, so that it may be a label of a metric."""

    UNREACHABLE = "unreachable"
    TIMED_OUT = "timed_out"
    NOT_SERVED = "not_served"
    """It was started without ``--slot-save-path``, or with ``--no-slots``."""
    REFUSED = "refused"
    FAILED = "failed"
    """It tried and could not: a full or read-only folder."""
    BAD_ANSWER = "bad_answer"


class SlotError(Exception):
    """The engine did not do what it was asked."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot as ``GET /slots`` has it. Figures are ``None`` until it has had a request since the engine started."""

    id: int
    n_ctx: int
    busy: bool
    task: int | None = None
    """The number of its latest request: another number, another content."""
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """What the engine says of a save or a restore."""

    tokens: int
    bytes: int
    seconds: float


class SlotClient:
    """The slot API of one engine."""

    def __init__(self, send: Send, *, look_s: float = 10.0, move_s: float = 120.0) -> None:
        self._send = send
        self._look_s = look_s
        self._move_s = move_s

    async def slots(self) -> tuple[Slot, ...]:
        """Every slot, by its number. Raises SlotError."""
        value = await self.get("/slots", _LIST_BYTES)
        found = tuple(_slot(each) for each in value) if isinstance(value, list) else ()
        if not found or [slot.id for slot in found] != list(range(len(found))):
            raise SlotError(Trouble.BAD_ANSWER, "GET /slots is no list of slots")
        return found

    async def save(self, slot: int, name: str) -> Moved:
        """Write a slot's tokens and state to a file. Raises SlotError; the slot is as it was."""
        return _moved(await self._act(slot, "save", name), "n_saved", "n_written", "save_ms")

    async def restore(self, slot: int, name: str) -> Moved:
        """Read a file into a slot in place of what was there. Raises SlotError; the slot may be empty then.

        Only ever a file that was verified just now: see the module.
        """
        return _moved(await self._act(slot, "restore", name), "n_restored", "n_read", "restore_ms")

    async def erase(self, slot: int) -> int:
        """Empty a slot; returns its tokens. Raises SlotError."""
        erased = as_int(pick(await self._act(slot, "erase", None), "n_erased"))
        if erased is None:
            raise SlotError(Trouble.BAD_ANSWER, "no n_erased in the answer")
        return erased

    async def get(self, path: str, most_bytes: int = _LIST_BYTES) -> object:
        """A JSON answer. Raises SlotError."""
        return await self._json("GET", path, None, most_bytes, self._look_s)

    async def _act(self, slot: int, action: str, name: str | None) -> object:
        if slot < 0 or (name is not None and not FILE_NAME.fullmatch(name)):
            raise ValueError(f"no slot {slot}, or no name {name!r} for a file")
        body = json.dumps({} if name is None else {"filename": name}).encode()
        answer = await self._json("POST", f"/slots/{slot}?action={action}", body, _ANSWER_BYTES, self._move_s)
        if as_int(pick(answer, "id_slot")) != slot or (name is not None and pick(answer, "filename") != name):
            raise SlotError(Trouble.BAD_ANSWER, f"{action} of slot {slot} was answered for something else")
        return answer

    async def _exchange(
        self, method: str, path: str, body: bytes | None, most_bytes: int, total_s: float
    ) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(total_s):
                return await self._send(method, path, body, most_bytes)
        except TimeoutError:
            raise SlotError(Trouble.TIMED_OUT, f"{method} {path}: no answer in {total_s:g} s") from None
        except OSError as err:
            raise SlotError(Trouble.UNREACHABLE, f"{method} {path}: {err}") from None

    async def _json(self, method: str, path: str, body: bytes | None, most_bytes: int, total_s: float) -> object:
        status, answer = await self._exchange(method, path, body, most_bytes, total_s)
        try:
            value: object = json.loads(answer)
        except (ValueError, RecursionError):
            value = None
        if status == 200 and value is not None:
            return value
        said = as_str(pick(pick(value, "error"), "message"))[:200] or "no JSON"
        raise SlotError(_trouble(status), f"{method} {path}: HTTP {status}, {said}")


def _trouble(status: int) -> Trouble:
    if status in (404, 405, 501):
        return Trouble.NOT_SERVED
    if status == 503:
        return Trouble.UNREACHABLE
    return Trouble.BAD_ANSWER if status == 200 else Trouble.FAILED if status >= 500 else Trouble.REFUSED


def _slot(value: object) -> Slot:
    number, n_ctx, busy = as_int(pick(value, "id")), as_int(pick(value, "n_ctx")), pick(value, "is_processing")
    if number is None or n_ctx is None or not isinstance(busy, bool):
        raise SlotError(Trouble.BAD_ANSWER, "a slot without id, n_ctx or is_processing")
    return Slot(
        number,
        n_ctx,
        busy,
        as_int(pick(value, "id_task")),
        as_int(pick(value, "n_prompt_tokens")),
    )


def _moved(answer: object, tokens: str, size: str, took: str) -> Moved:
    n_tokens, n_bytes, ms = as_int(pick(answer, tokens)), as_int(pick(answer, size)), pick(answer, "timings", took)
    if n_tokens is None or n_bytes is None or n_tokens < 0 or n_bytes <= 0 or not isinstance(ms, int | float):
        raise SlotError(Trouble.BAD_ANSWER, f"no {tokens}, {size} and {took} in the answer")
    return Moved(n_tokens, n_bytes, max(float(ms), 0.0) / 1000)
