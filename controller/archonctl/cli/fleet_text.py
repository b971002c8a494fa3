"""What became of a fleet's hosts, for people: while it runs, and at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from archonctl.cli.harmless import harmless
from archonctl.cli.output import Output
from archonctl.fleet.rollout.happenings import Happening
from archonctl.fleet.rollout.values import FleetResult, HostResult, HostWord

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_COLOUR: dict[HostWord, str] = {"holds": "green", "checked": "green", "untouched": "dim", "in flight": "yellow"}
_YELLOW = frozenset({"no evidence", "unreachable", "busy", "drift", "rolled back"})
_LONG = frozenset({"archon_apply", "archon_rollback", "archon_probe"})
"""What is worth a line as it begins: the rest is over at once."""


class HostsTalker:
    """A line for every host that gets a word; on a terminal also one for each that is being dealt with."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._began = time.monotonic()
        self._told: dict[str, HostWord] = {}
        self._bar: Bar | None = None
        self._live: dict[str, TaskID] = {}

    def __enter__(self) -> HostsTalker:
        if not self._out.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar
            from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

            console = Console(stderr=True, no_color=not self._out.colour, highlight=False)
            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
            self._bar = Bar(*columns, console=console, transient=True)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def see(self, what: Happening, now: HostResult) -> None:
        """One more thing happened."""
        if self._bar is not None:
            self._draw(what)
        if what.kind == "begin" and what.module in _LONG:
            self._say(f"{what.host}: {what.task[:1].lower()}{what.task[1:]}")
        changed = what.module in _LONG and not what.result.get("previewed")
        is_word = what.kind == "result" and (now.fault is not None or changed)
        if is_word and self._told.get(what.host) != now.word:
            self._told[what.host] = now.word
            self._say(f"{what.host}: {now.word}{_why(now)}")

    def _draw(self, what: Happening) -> None:
        assert self._bar is not None
        if what.kind == "result":
            if what.host in self._live:
                self._bar.remove_task(self._live.pop(what.host))
        elif what.host not in self._live:
            self._live[what.host] = self._bar.add_task(harmless(f"{what.host}  {what.task}"), total=None)

    def _say(self, text: str) -> None:
        line = f"{time.monotonic() - self._began:6.1f} s  {text}"
        if self._bar is None:
            self._out.talk(line)
        else:
            self._bar.console.print(harmless(line), markup=False, soft_wrap=True)


def _why(host: HostResult) -> str:
    return f": {host.fault.code}: {host.fault.message[:200]}" if host.fault else ""


def fleet_text(result: FleetResult, out: Output) -> str:
    """A line a host, what is wrong below it, and how many of each there are."""
    width = max([len(host.host) for host in result.hosts] or [0])
    lines: list[str] = []
    for host in result.hosts:
        colour = _COLOUR.get(host.word, "yellow" if host.word in _YELLOW else "red")
        about = "; ".join(_endpoint(each) for each in host.endpoints)
        lines.append(f"{host.host.ljust(width)}  {out.paint(host.word.ljust(11), colour)}  {about}".rstrip())
        if host.fault:
            hint = f" ({host.fault.hint})" if host.fault.hint else ""
            lines.append(f"{' ' * width}  {host.fault.code}: {host.fault.message}{hint}")
        if host.busy_with and host.word != "busy":
            lines.append(f"{' ' * width}  a rollout has it: {host.busy_with}")
        lines += [
            f"{' ' * width}  {each['endpoint']}: {each['remark']}" for each in host.endpoints if each.get("remark")
        ]
    lines += [f"note: {remark}" for remark in result.remarks]
    lines.append(_summary(result, out))
    return "\n".join(lines)


def _endpoint(each: Mapping[str, Any]) -> str:
    name = str(each.get("endpoint") or "?")
    words = [each.get("outcome") or each.get("word") or each.get("verdict")]
    if "drift" in each:
        words = [{True: "drift", False: "as released", None: "not all seen"}.get(each["drift"])]
    release = each.get("release")
    words.append(f"release {str(release)[:8]}" if release else None)
    return f"{name} {', '.join(str(word) for word in words if word)}"


def _summary(result: FleetResult, out: Output) -> str:
    counts: dict[str, int] = {}
    for host in result.hosts:
        counts[host.word] = counts.get(host.word, 0) + 1
    count = len(result.hosts)
    words = ", ".join(f"{number} {word}" for word, number in counts.items())
    text = f"{count} host{'' if count == 1 else 's'}: {words}"
    if result.stopped_at:
        text += f"; stopped at {result.stopped_at}"
    if result.signal:
        text += "; interrupted"
    return out.paint(text, "bold")
