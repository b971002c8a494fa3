"""What Ansible tells while it runs, as the collection's callback writes it: one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Kind = Literal["begin", "result"]
Status = Literal["ok", "failed", "unreachable", "skipped"]
COLLECTION = "archonctl.endpoints"


@dataclass(frozen=True, slots=True)
class Happening:
    """A task begins on a host, or ended there. ``at`` is Unix time in seconds; ``module`` is what the task runs, of our
    collection without its name."""

    kind: Kind
    host: str
    task: str
    module: str
    at: float
    status: Status = "ok"
    is_ignored: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Happening, ...]:
        """What happened for each item of a loop; the one itself without a loop, and where no item tells why it failed
        (under no_log none does)."""
        items = self.result.get("results")
        if not isinstance(items, list) or not items:
            return (self,)
        found = tuple(replace(self, status=_status(item), result=item) for item in items if isinstance(item, Mapping))
        return found if self.status != "failed" or any(each.status == "failed" for each in found) else (self,)

    @property
    def error(self) -> Mapping[str, Any]:
        """What the host's archonctl refused, with code, message, where and hint; empty where it did not."""
        found = self.result.get("error")
        return found if isinstance(found, Mapping) else {}

    @property
    def exit_code(self) -> int | None:
        """Of the host's archonctl, where it was run."""
        found = self.result.get("exit_code")
        return found if isinstance(found, int) else None

    def text(self, name: str) -> str:
        """A text of the result, or of its refusal; empty where it is none."""
        found = self.result.get(name, self.error.get(name))
        return found if isinstance(found, str) else ""


def happening_of(line: str) -> Happening | None:
    """A line of the callback; None for one that tells of no host, and for whatever else Ansible prints."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("event") not in ("begin", "result"):
        return None
    names = {name: str(value.get(name, "")) for name in ("host", "task", "action")}
    names["task"] = names["task"].rpartition(" : ")[2]  # without the role
    status, result = value.get("status", "ok"), value.get("result")
    return Happening(
        value["event"],
        names["host"],
        names["task"],
        names["action"].removeprefix(f"{COLLECTION}."),
        float(value.get("at") or 0.0),
        status if status in ("ok", "failed", "unreachable", "skipped") else "failed",
        bool(value.get("ignored")),
        result if isinstance(result, dict) else {},
    )


def _status(item: Mapping[str, Any]) -> Status:
    if item.get("unreachable"):
        return "unreachable"
    return "failed" if item.get("failed") else "skipped" if item.get("skipped") else "ok"
