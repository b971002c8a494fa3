"""A running Prometheus, asked over its API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlencode
from urllib.request import urlopen


@dataclass(frozen=True)
class Prometheus:
    """A running server."""

    url: str

    def ask(self, path: str, **query: str) -> dict[str, object]:
        """The data of one API answer."""
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(query)}", timeout=30) as answer:
            value = json.load(answer)
        assert value["status"] == "success", value
        found: dict[str, object] = value["data"]
        return found

    def alerts(self) -> dict[str, str]:
        """State of every alert by its name."""
        found = self.ask("alerts")["alerts"]
        assert isinstance(found, list)
        return {each["labels"]["alertname"]: each["state"] for each in found}

    def value(self, expr: str) -> float | None:
        """The value of an expression with one result; None where there is none."""
        found = self.ask("query", query=expr)["result"]
        assert isinstance(found, list)
        return float(found[0]["value"][1]) if found else None
