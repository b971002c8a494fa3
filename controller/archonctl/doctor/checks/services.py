"""systemd: whether it is process 1 here, and whether its version knows what the units say."""

from __future__ import annotations

from archonctl.doctor.machine import Machine
from archonctl.doctor.values import Result, failed, passed, skipped
from archonctl.release.directives import OLDEST, newest_used
from archonctl.service.install import STEPS_SINCE


def systemd_running(machine: Machine) -> tuple[Result, ...]:
    """As sd_booted(3) tells: /run/systemd/system is there."""
    first = machine.read.text("/proc/1/comm") or "unknown"
    installed = [subject.name for subject in machine.subjects if subject.installed]
    if machine.read.exists("/run/systemd/system"):
        return (passed(f"systemd is process 1{'' if first == 'systemd' else f' (which is named {first})'}"),)
    message = f"process 1 is {first}, not systemd: apply, rollback and status have no units here"
    if installed:
        return (failed("no-systemd", f"{message}, and {', '.join(installed)} is installed", "boot the machine itself"),)
    return (skipped(f"{message}; archonctl up starts engines without it"),)


def systemd_version(machine: Machine) -> tuple[Result, ...]:
    """The version against the newest setting of the units (``release/directives.toml``)."""
    version, (setting, since) = machine.systemd_version, newest_used()
    if version is None:
        why = (
            "systemctl is not here or tells no version"
            if machine.is_live
            else "another machine's files tell no version"
        )
        return (skipped(why),)
    told = f"systemd {version}, the units use {setting}= of {since}"
    if version < max(since, OLDEST):
        return (failed("systemd-too-old", told, f"systemd {OLDEST} or newer, or archonctl up without units"),)
    grows = "" if version >= STEPS_SINCE else f"; the delay between tries grows from {STEPS_SINCE} on only"
    return (passed(f"{told}{grows}"),)
