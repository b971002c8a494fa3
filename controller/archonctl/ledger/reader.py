"""Read a boot log in one pass, with bounded memory: whole, or line by line while it is written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from archonctl.errors import UsageError
from archonctl.ledger.clean import LINE_LIMIT, Message, clean
from archonctl.ledger.grammar import ENGINES, Row, common_grammar, grammar, kind_of, shorts
from archonctl.ledger.sieve import Sieve, blind, pieces
from archonctl.ledger.track import TEXT_LIMIT, Taken, Track
from archonctl.ledger.values import BootLedger, Change
from archonctl.redact import without_secrets

Line = bytes | str

BLOCK_BYTES = 1 << 20
DEEP_BYTES = 16 << 20
"""Bytes in which everything is looked for, whatever the engine; most boots end long before."""
CARRIERS = (('"MESSAGE":[', '"MESSAGE":['), ('"MESSAGE": [', '"MESSAGE": ['))
"""journald writes a message with colours or other non-printable bytes as an array of numbers."""
WRAP_AT = 40
"""Where the literal of a wrapped message may begin: after "ValueError: ", not in the middle of a prompt."""
HOLD_LINES = 3
"""Lines by which a wrapped message may go on."""


@dataclass
class _Held:
    """The beginning of a message that goes on in the next lines."""

    row: Row
    message: Message
    line_no: int
    text: str
    left: int = HOLD_LINES


class LedgerReader:
    """Reads the log of one engine, or finds out whose log it is.

    ``feed`` takes a line and says what it changed; ``result`` gives the ledger of what was read so far and may be
    called at any time. ``engine`` is a folder name or what its people call it. ``version`` is used where the log
    does not name one. Raises UsageError ``engine-unknown`` for an engine name without a grammar.
    """

    def __init__(self, engine: str | None = None, version: str = "") -> None:
        self._given = _kind(engine)
        self._version = version
        self._tracks = [Track(grammar(name)) for name in ([self._given] if self._given else ENGINES)]
        self._common = Track(common_grammar())
        self._rows = _dispatch([*self._tracks, self._common])
        self._sieve = self._sieve_of(self._rows)
        self._plan = "family" if self._given else "all"
        self._lines = self._bytes = 0
        self._held: _Held | None = None

    def feed(self, line: Line) -> Change | None:
        """Take one line (with or without its end). None where nothing of interest was in it."""
        raw = line.encode("utf-8", "replace") if isinstance(line, str) else line
        self._lines += 1
        if self._held is None and not self._sieve.wants(raw):
            return None
        return self._change(self._look(raw, self._lines))

    def feed_block(self, block: bytes) -> None:
        """Take many whole lines at once: several times faster than ``feed`` where little of interest is in them."""
        self._bytes += len(block)
        for piece in pieces(block):
            wanted = self._sieve.wanted(piece)
            if not wanted and self._held is None:
                self._lines += piece.count(b"\n") + (not piece.endswith(b"\n"))
                continue
            for line in piece.removesuffix(b"\n").split(b"\n"):
                self._lines += 1
                if self._held is not None or blind(line) in wanted:
                    self._look(line, self._lines)
        if self._plan != "family" and self._bytes > DEEP_BYTES:
            self._narrow()

    def result(self) -> BootLedger:
        """The ledger as it stands. ``engine`` is "unknown" where the lines do not tell."""
        self._release()
        track = self._tracks[0] if self._given else _leader(self._tracks)
        if track is None:
            return self._common.ledger(self._lines, self._version)
        return track.ledger(self._lines, self._version)

    def detected(self) -> str:
        """The engine that the lines themselves tell, as its people call it ("llama.cpp"); "unknown" where unsure."""
        self._release()
        track = _leader(self._tracks)
        return track.name if track else "unknown"

    def _sieve_of(self, rows: Iterable[tuple[Row, Sequence[Track]]]) -> Sieve:
        return Sieve([*CARRIERS, *((row.marker or row.literal, row.literal) for row, _ in rows)], shorts())

    def _narrow(self) -> None:
        """Far into a long log: look for what the engines seen so far print; with none seen, for capacity alone."""
        told = [track for track in self._tracks if track.seen]
        plan = "family" if told else "capacity"
        if plan == self._plan:
            return
        self._plan = plan
        if told:
            rows = [pair for pair in self._rows if any(track in told or track is self._common for track in pair[1])]
        else:
            rows = [pair for pair in self._rows if any(pair[0].id in track.grammar.core for track in pair[1])]
        self._sieve = self._sieve_of(rows)

    def _change(self, taken: list[tuple[Track, Taken]]) -> Change | None:
        """What the line changed, as the engine that it tells sees it."""
        if not taken:
            return None
        leader = self._tracks[0] if self._given else _leader(self._tracks)
        track, what = next((pair for pair in taken if pair[0] is leader), taken[0])
        return track.change(what)

    def _look(self, raw: bytes, line_no: int) -> list[tuple[Track, Taken]]:
        text = raw[: 4 * LINE_LIMIT].decode("utf-8", "replace").rstrip("\r\n")
        message = clean(text)
        if self._held is not None:
            if self._is_known(message):
                self._release()
            elif taken := self._continue(self._held, message):
                return taken
        return self._match(message, line_no, text)

    def _match(self, message: Message, line_no: int, text: str, *, may_hold: bool = True) -> list[tuple[Track, Taken]]:
        """Try every row; one row an engine takes the line."""
        served: list[Track] = []
        taken: list[tuple[Track, Taken]] = []
        for row, tracks in self._rows:
            if row.literal not in message.text or (row.levels and message.level not in row.levels):
                continue
            match = row.regex.match(message.text)
            if match is None:
                if row.wraps and may_hold and not taken and -1 < message.text.find(row.literal) <= WRAP_AT:
                    self._release()
                    self._held = _Held(row, message, line_no, text)
                    return []
                continue
            for track in tracks:
                if track not in served:
                    served.append(track)
                    said = without_secrets(text[: 4 * TEXT_LIMIT])[:TEXT_LIMIT]
                    sighting = track.grammar.read(row, match, message.rank, line_no, said)
                    if sighting and (what := track.take(row, sighting)) is not None:
                        taken.append((track, what))
        return taken

    def _is_known(self, message: Message) -> bool:
        """True if a line is a message of its own, and so no rest of another one."""
        return any(row.literal in message.text and row.regex.match(message.text) for row, _ in self._rows)

    def _continue(self, held: _Held, message: Message) -> list[tuple[Track, Taken]]:
        """Try a line as the rest of a held one: with a space for wrapped text, without for a word broken in two."""
        for joiner in (" ", ""):
            joined = Message(held.message.text + joiner + message.text, held.message.rank, held.message.level)
            if held.row.regex.match(joined.text):
                self._held = None
                return self._match(joined, held.line_no, joined.text)
        held.left -= 1
        held.message = Message(
            f"{held.message.text} {message.text}"[:LINE_LIMIT], held.message.rank, held.message.level
        )
        if not held.left:
            self._release()
        return []

    def _release(self) -> None:
        """Give up waiting for the rest of a message and read what there is of it."""
        held, self._held = self._held, None
        if held is not None:
            self._match(clean(held.text), held.line_no, held.text, may_hold=False)


def _kind(engine: str | None) -> str:
    if not engine or engine == "auto":
        return ""
    kind = kind_of(engine)
    if not kind:
        raise UsageError(
            "engine-unknown", f"no ledger grammar for engine {engine!r}", hint=f"auto, {', '.join(ENGINES)}"
        )
    return kind


def _dispatch(tracks: Sequence[Track]) -> list[tuple[Row, list[Track]]]:
    """Each row once, with the engines that print it."""
    rows: dict[int, tuple[Row, list[Track]]] = {}
    for track in tracks:
        for row in track.grammar.rows:
            rows.setdefault(id(row), (row, []))[1].append(track)
    return list(rows.values())


def _leader(tracks: Sequence[Track]) -> Track | None:
    """The engine that the lines tell; None where they tell none, or two alike."""
    ranked = sorted(tracks, key=lambda track: track.score, reverse=True)
    if not ranked[0].score or (len(ranked) > 1 and ranked[0].score == ranked[1].score):
        return None
    return ranked[0]


@runtime_checkable
class _Readable(Protocol):
    def read(self, size: int, /) -> Line: ...


def read_ledger(
    source: Iterable[Line] | IO[bytes] | str | Path, engine: str | None = None, version: str = ""
) -> BootLedger:
    """Read one boot log: a path, an open file (binary is fastest), or any iterable of lines.

    One pass, memory bounded whatever the input. ``engine`` None finds out whose log it is. Raises UsageError
    ``ledger-unreadable`` where a path cannot be opened.
    """
    reader = LedgerReader(engine, version)
    if isinstance(source, str | Path):
        try:
            with Path(source).open("rb") as stream:
                _pump(reader, stream)
        except OSError as err:
            raise UsageError("ledger-unreadable", f"cannot read {source}: {err.strerror or err}") from err
    elif isinstance(source, _Readable):
        _pump(reader, source)
    else:
        _pump_lines(reader, source)
    return reader.result()


def _pump(reader: LedgerReader, stream: _Readable) -> None:
    """Read whole blocks and cut them at line ends; a line longer than a block loses its middle."""
    rest = b""
    while chunk := stream.read(BLOCK_BYTES):
        data = chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk
        cut = data.rfind(b"\n") + 1
        if not cut:
            rest = (rest + data)[: 4 * LINE_LIMIT]
            continue
        reader.feed_block(rest + data[:cut])
        rest = data[cut:]
    if rest:
        reader.feed_block(rest)


def _pump_lines(reader: LedgerReader, lines: Iterable[Line]) -> None:
    """Gather lines into blocks, which are looked at faster than lines."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        raw = line.encode("utf-8", "replace") if isinstance(line, str) else line
        raw = raw.rstrip(b"\r\n")[: 4 * LINE_LIMIT]
        block.append(raw)
        size += len(raw) + 1
        if size >= BLOCK_BYTES:
            reader.feed_block(b"\n".join(block) + b"\n")
            block, size = [], 0
    if block:
        reader.feed_block(b"\n".join(block) + b"\n")
