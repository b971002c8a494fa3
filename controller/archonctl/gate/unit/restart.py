"""Restart policies: loops without end, and limits that are reached over a glitch.

Source: systemd.service(5) "Restart=", systemd.unit(5) "StartLimitIntervalSec=", ``ratelimit_below`` in systemd's
src/basic/ratelimit.c, ``service_restart_usec_next`` in src/core/service.c (RestartSteps, since v254).
"""

from __future__ import annotations

from archonctl.findings import Finding
from archonctl.gate.unit.timespan import in_words, seconds
from archonctl.gate.unit.unit import UnitFile

INTERVAL_S = 10.0
BURST = 5
DELAY_S = 0.1
"""What systemd takes where a unit says nothing."""

TRANSIENT_S = 15.0
"""Longer than the glitches that pass by themselves: a port in TIME_WAIT, memory that the last engine still holds."""

_RESTARTS = frozenset({"always", "on-failure"})


def restart_findings(unit: UnitFile, limits: str = "Unit") -> list[Finding]:
    """What the restart policy of one unit does when its engine refuses at once. ``limits`` is the section that holds
    the start limit."""
    found = _misplaced(unit)
    policy = unit.last("Service", "Restart")
    if policy is None or policy.text not in _RESTARTS:
        return found
    burst, interval = _limit(unit, limits)
    delays = _delays(unit, burst)
    total = sum(delays)
    place = policy.place
    if burst == 0 or interval == 0:
        message = f"Restart={policy.text} with the start limit switched off starts a refusing engine again for ever"
        fix = "give StartLimitIntervalSec= and StartLimitBurst= of [Unit] a bound"
        return [*found, Finding("unit-restart-loops", "error", message, place, fix)]
    if interval <= total:
        message = (
            f"Restart={policy.text} never reaches its limit: {burst} starts take {in_words(total)} of delay, the "
            f"limit counts within {in_words(interval)}; a refusing engine is started again for ever"
        )
        fix = f"[Unit] StartLimitIntervalSec= above {in_words(total)} plus {burst} times the time of a failing start"
        found.append(Finding("unit-restart-loops", "warning", message, place, fix))
    elif total < TRANSIENT_S:
        message = (
            f"Restart={policy.text} gives up {in_words(total)} after the first failure ({burst} starts, RestartSec "
            f"{in_words(delays[0] if delays else DELAY_S)}): a glitch of a few seconds ends it for good"
        )
        fix = "RestartSec=15, and a StartLimitIntervalSec= that five such starts fit in"
        found.append(Finding("unit-restart-gives-up", "warning", message, place, fix))
    if not unit.all("Service", "RestartPreventExitStatus"):
        message = "no RestartPreventExitStatus=: what the engine refuses every time is tried again like a glitch"
        fix = "RestartPreventExitStatus=2 64 78 126 127 203"
        found.append(Finding("unit-restart-refusals", "note", message, place, fix))
    return found


def _misplaced(unit: UnitFile) -> list[Finding]:
    """systemd knows StartLimitIntervalSec= in [Unit] only (StartLimitBurst= it still takes in [Service])."""
    return [
        Finding(
            "unit-start-limit-ignored",
            "error",
            f"StartLimitIntervalSec={item.text} stands in [Service], where systemd does not know it: it is ignored",
            item.place,
            f"move StartLimitIntervalSec={item.text} to [Unit]",
        )
        for item in unit.all("Service", "StartLimitIntervalSec")
    ]


def _limit(unit: UnitFile, section: str) -> tuple[int, float]:
    """Starts and seconds of the limit in force."""
    burst, interval = BURST, INTERVAL_S
    for name in (section, "Service"):
        count = unit.last(name, "StartLimitBurst")
        burst = int(count.text) if count and count.text.isdigit() else burst
    for name, key in (
        ("Service", "StartLimitInterval"),
        (section, "StartLimitInterval"),
        (section, "StartLimitIntervalSec"),
    ):
        span = unit.last(name, key)
        value = seconds(span.text) if span else None
        interval = interval if value is None else value
    return burst, interval


def _delays(unit: UnitFile, starts: int) -> list[float]:
    """The delay before each of the next starts, in seconds."""
    item = unit.last("Service", "RestartSec")
    first = seconds(item.text) if item else None
    first = DELAY_S if first is None else first
    steps, most = unit.last("Service", "RestartSteps"), unit.last("Service", "RestartMaxDelaySec")
    limit = seconds(most.text) if most else None
    count = int(steps.text) if steps and steps.text.isdigit() else 0
    if not count or not limit or not first or limit <= first:
        return [first] * min(starts, 10_000)
    return [min(limit, first * (limit / first) ** (number / count)) for number in range(min(starts, 10_000))]
