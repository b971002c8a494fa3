"""Take a log line out of what carries it: containers, journals, Ray, structured logs, colours, tags.

What is left starts with the engine's own message, so that grammars can be anchored: a prompt that quotes a
ledger line in the middle of another message is no evidence.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import product

LINE_LIMIT = 16 * 1024
"""Characters of one line that are looked at; no engine prints a longer ledger line."""

# Some pastes lose the escape byte and keep "[1;36m".
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]|\[(?:\d{1,3};){0,3}\d{1,3}m")

_PREFIX = re.compile(
    r"""(?:
      (?<=[\dZ\]])\ ?[\w.<>-]+\ [\w.@/-]+\[\d+\]:                                           # journald, short-iso
    | (?<=\d)\ (?:UTC|GMT|MSK|[A-Z]{1,3}[SD]?T)\ [\w.<>-]+\ [\w.@/-]+\[\d+\]:                # journald, short-full
    | (?<=[\dZ])\ [\w.-]+\[[\w.-]+\]:                                                       # "app[worker.1]:"
    | (?<=[\dZ])\ [\w.-]+\ [\w.@/-]+\ (?:\d+|-)\ [\w.-]+\ (?:-|\[[^\[\]]{1,160}\])(?=\ )    # RFC 5424
    | (?<=[\dZ])\ (?:stdout|stderr)\ [FP](?=\ )                                             # containerd, CRI-O
    | \s+ | \.{3} | \.+(?=\[|[A-Z]{4}) | \*\* | [\#*•-]\ | -?>{1,3}\ | `(?!\w+`)(?=[\w\[(])           # quoted, listed
    | [\u2800-\u28ff]\ (?=\w)                                                               # a spinner
    | <\d{1,3}>(?:1\ )? | MESSAGE= | <(?:stdout|stderr)>:                                   # syslog, journald, MPI
    | (?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\ (?=\d{4}-)
    | (?:\d{4}[-/]\d\d[-/]\d\d[T\ ])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?(?:\ \|(?=\ ))?  # ISO 8601
    | [A-Z][a-z]{2}\ [\ \d]\d\ \d\d:\d\d:\d\d(?:\.\d{1,9})?(?=\ )                             # journald, syslog, ts
      (?:\ (?:[\w.<>-]{2,}\ [\w.@/<>-]+(?:\[\d+\])?|[\w.@/<>-]+\[\d+\]):)?
    | \d\d[-/]\d\d\ \d\d:\d\d:\d\d(?:\.\d+)?                                                 # vLLM
    | \d\d?\.\d\d\.\d{3}\.\d{3}\ [A-Z](?=\ )                                                 # llama.cpp since 2026
    | \d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?=\ ) | \d{1,5}:(?=\ )                                 # a time alone; srun -l
    | [IWEF]\d{4}\ \d\d:\d\d:\d\d\.\d{1,9}\ +\d+(?=\ )                                      # glog, klog
    | (?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b:?
    | (?<=[A-Z]:)[a-z_][\w.]{0,80}: | (?<=[A-Z]\ )[a-z_]\w{0,60}(?:(?:\.|::)[\w<>]{1,60}){1,6}:(?=\ )   # "INFO a.b:"
    | \|\ [\w.]{1,80}:[\w.<>]{1,60}:\d+\ -(?=\ )                                             # loguru
    | (?<=-\ )[a-z_][\w.]{0,80}\ -(?=\ )                                                    # "date - name - INFO - "
    | \((?:[^()]{0,80}\ )?(?:pid|ip)=[^()]{0,80}\)                                           # vLLM workers, Ray
    | \[[^\[\]]{1,160}\](?::(?=\s)|\ \|(?=\ ))?                                              # any [tag]
    | \d{1,5}\|[\w.-]{1,64}\ {1,20}\|(?=\ )                                                  # pm2
    | [\w.-]{1,64}(?:\ {1,20})\|(?=\ )                                                       # compose
    | [a-z\d.]{1,60}-[a-z\d.-]{1,100}\ [a-z][a-z\d-]{0,62}\ (?=(?:DEBUG|INFO|WARNING|ERROR)\ [\d\[])   # stern
    | [\w./-]{1,120}\.(?:py|go|cpp|cu|rs|cc):\d+(?:\]|(?=\ ))                           # "file.py:123]", "file.py:123 "
    | (?:srv|slot|cmn|que|res|spec)\ +[\w()~]{1,40}:(?=\ )                                   # llama-server's columns
    )""",
    re.VERBOSE,
)
_LETTER = re.compile(r"([EWIDT])(?:\[(\d{1,4})\])? (?:[\w./-]{1,80}:\d+:? )?")
_LETTERED = re.compile(r"\d\d?\.\d\d\.\d{3}\.\d{3} ([A-Z]) ")
_WORD = re.compile(r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|ERROR|CRITICAL|FATAL)")
_RANK = re.compile(r"(?:\b|_)(TP|DP|PP|EP|CP|DCP|PCP)(\d+)|\b(?:rank|RANK)[= ](\d+)")
_PID = re.compile(r"pid=(\d+)")
_LOGFMT = re.compile(r'(?:[\w.]{1,40}=(?:"(?:[^"\\]|\\.){0,400}"|[^\s"]{0,200})\s+){1,12}(?:msg|message)=')
_GO_SOURCE = re.compile(r"\bsource=\S{1,80}\.go:\d")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"?')
_JSON_KEYS = ("message", "msg", "MESSAGE", "log", "text", "event", "line", "body", "textPayload")
_JSON_NESTS = ("fields", "jsonPayload", "record", "log", "body", "message")
"""Keys under which some collectors keep the record of the program."""


@dataclass(frozen=True, slots=True)
class Message:
    """A line without its carriers. ``rank`` tells workers apart, ``level`` is a letter; "" where none is named."""

    text: str
    rank: str = ""
    level: str = ""
    tagged: bool = False
    """True if a prefix was taken off: such a line begins a message and continues none."""


def _unwrap_json(line: str, depth: int = 0) -> str:
    if depth > 3 or not line.startswith("{") or not line.rstrip().endswith("}"):
        return line
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return line
    nests = [record, *(record.get(key) for key in _JSON_NESTS)] if isinstance(record, dict) else []
    for nest, key in product([nest for nest in nests if isinstance(nest, dict)], _JSON_KEYS):
        value = nest.get(key)
        if isinstance(value, list) and value and all(isinstance(b, int) and 0 <= b < 256 for b in value):
            value = bytes(value).decode("utf-8", "replace")  # journald writes non-ASCII messages as byte arrays
        if isinstance(value, str):
            return _unwrap_json(value.strip("\r\n"), depth + 1)
    return line


def _unwrap_logfmt(text: str) -> str:
    match = _LOGFMT.match(text)
    if not match:
        return text
    if _GO_SOURCE.search(match.group()):
        return text[match.end() - len("msg=") :]  # ollama: what follows msg= are the figures
    rest = text[match.end() :]
    quoted = _QUOTED.match(rest)
    return quoted.group(1).replace('\\"', '"') if quoted else rest


def _strip(text: str) -> tuple[str, str]:
    """Split a line into its carriers and its message."""
    at = 0
    while match := _PREFIX.match(text, at):
        if match.end() == at:
            break
        at = match.end()
    return text[:at], text[at:]


def _rank_of(prefix: str) -> str:
    found = [f"{kind or 'R'}{number or plain}" for kind, number, plain in _RANK.findall(prefix)]
    if found:
        return " ".join(found)
    pids = _PID.findall(prefix)
    return f"pid {pids[-1]}" if pids else ""  # the innermost: Ray's tag stands around that of the worker


def _level_of(prefix: str) -> str:
    lettered = _LETTERED.search(prefix)
    if lettered:
        return lettered.group(1)
    words = _WORD.findall(prefix)
    return words[-1][0] if words else ""


def clean(line: str) -> Message:
    """One log line as the engine said it. Never raises; looks at the first ``LINE_LIMIT`` characters."""
    text = _ANSI.sub("", line[:LINE_LIMIT].rstrip("\r\n")).replace("\r", " ")
    prefix = ""
    for _ in range(4):  # docker around compose around JSON around logfmt: each carrier may hold another
        start, rest = _strip(text)
        inner = _unwrap_logfmt(_unwrap_json(rest))
        prefix += start + ("" if inner is rest else " " + rest[: len(rest) - len(inner)][:400] + " ")
        if inner == rest:
            break
        text = inner
        rest = inner
    letter = _LETTER.match(rest)
    if letter:
        rank = f"R{letter.group(2)}" if letter.group(2) else _rank_of(prefix)
        return Message(rest[letter.end() :], rank, letter.group(1), True)
    return Message(rest, _rank_of(prefix), _level_of(prefix), bool(prefix.strip()))
