"""What the guards before endpoints count. There need be none; one that is dead or hangs costs its own look alone."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from archonctl.errors import DeclarationError
from archonctl.observe.refusals import METRIC, Kind, guard_kinds
from archonctl.observe.values import Sample, sample
from archonctl.probe.address import Addresses, base_url
from archonctl.probe.client import Http
from archonctl.probe.faults import unseen
from archonctl.probe.limits import Limits
from archonctl.service.unit import systemctl

_BOUNDS = Limits(connect_s=2.0, read_s=5.0, body_bytes=256 * 1024)
_PREFIX, _SUFFIX = "archon-guard@", ".service"
_ADMIN = "ARCHON_GUARD_ADMIN="
_COUNTER = "archon_guard_refusals_total"


def guards(*, user: bool = False, timeout_s: float = 10.0) -> dict[str, str]:
    """Where the guard of each endpoint publishes (``http://host:port``), of those whose unit is up or failed.

    Raises HostRefusal ``systemctl-failed``.
    """
    words = ["--user"] if user else []
    properties = "--property=Id,ActiveState,Environment"
    return parse(systemctl(*words, "show", f"{_PREFIX}*{_SUFFIX}", properties, timeout_s=timeout_s))


def parse(shown: str) -> dict[str, str]:
    """The same, from what ``systemctl show`` prints: a block a unit."""
    found: dict[str, str] = {}
    for block in shown.split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        name = values.get("Id", "").removeprefix(_PREFIX).removesuffix(_SUFFIX)
        if values.get("ActiveState") in (None, "inactive") or not name:
            continue
        try:
            given = [word for word in shlex.split(values.get("Environment", "")) if word.startswith(_ADMIN)]
            found[name] = base_url(given[-1].removeprefix(_ADMIN))
        except (ValueError, IndexError, DeclarationError):
            continue  # it publishes nothing ("off"), or nobody says where
    return found


def guard_look(name: str, base: str, limits: Limits = _BOUNDS) -> list[Sample]:
    """Who was turned away by it. Raises Fault: it does not answer, not in time, or not as a guard does."""
    return asyncio.run(_ask(name, base, limits))


async def _ask(name: str, base: str, limits: Limits) -> list[Sample]:
    async with Http(Addresses(base, base), "", limits) as http:
        answer = await http.get("/metrics", limits.read_s, limits.body_bytes)
    if answer.status != 200:
        raise unseen("metrics-unusable", f"{base}/metrics answers HTTP {answer.status}")
    counts = refusals(answer.body.decode("utf-8", "replace"))
    return [sample(METRIC, name, kind.cls, kind.reason, "guard", value=count) for kind, count in counts.items()]


def refusals(text: str) -> Mapping[Kind, float]:
    """How many, of every kind that there may be. Raises Fault ``metrics-unusable``."""
    kinds = guard_kinds()
    found = dict.fromkeys(kinds.values(), 0.0)
    try:
        for family in text_string_to_metric_families(text):
            for each in family.samples:
                kind = kinds.get(each.labels.get("code", ""))
                if each.name == _COUNTER and kind is not None:
                    found[kind] += each.value
    except (ValueError, KeyError, IndexError) as err:
        raise unseen("metrics-unusable", f"these are no metrics: {str(err)[:100]}") from None
    return found
