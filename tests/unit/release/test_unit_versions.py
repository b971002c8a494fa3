"""Every setting of the shipped units is known to systemd 247; newer ones are placed only where they are known."""

from __future__ import annotations

import re
from pathlib import Path

from archonctl.release.sandbox import rows

OLDEST = 247
SINCE = {
    # "Added in version" of systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.kill(5) and of the NEWS
    "ProtectProc": 247,
    "TimeoutStartFailureMode": 246,
    "ProtectClock": 245,
    "ProtectKernelLogs": 244,
    "RestrictSUIDSGID": 242,
    "ProtectHostname": 242,
    "LogRateLimitIntervalSec": 240,
    "LogRateLimitBurst": 240,
    "RestrictNamespaces": 233,
    "StartLimitIntervalSec": 230,
    "OOMPolicy": 243,
    "RestartSteps": 254,
    "RestartMaxDelaySec": 254,
}
_OLD = """
    Description Documentation Wants After Requisite OnFailure AssertPathExists StartLimitBurst Type User CacheDirectory
    Environment ExecStartPre ExecStart ExecStartPost NotifyAccess Restart RestartSec RestartPreventExitStatus
    TimeoutStartSec TimeoutStopSec KillMode LimitMEMLOCK WantedBy Nice CapabilityBoundingSet NoNewPrivileges
    ProtectSystem ReadWritePaths ProtectHome PrivateTmp PrivateDevices ProtectKernelTunables ProtectKernelModules
    ProtectControlGroups LockPersonality MemoryDenyWriteExecute RestrictRealtime RestrictAddressFamilies
    SystemCallArchitectures
    SystemCallFilter SystemCallErrorNumber UMask OnBootSec OnStartupSec OnCalendar RandomizedDelaySec Persistent
    RuntimeDirectory RuntimeDirectoryPreserve RequiresMountsFor
"""
"""In systemd 235 or earlier."""
_SETTING = re.compile(r"^([A-Z][A-Za-z]+)=", re.MULTILINE)


def names(text: str) -> set[str]:
    return set(_SETTING.findall(text))


def test_what_the_units_use_is_in_the_oldest_systemd_that_is_promised(repository: Path) -> None:
    units = [*(repository / "units").glob("archon*.service"), *(repository / "units").glob("*.timer")]
    units += (repository / "units/user").iterdir()
    used = names("\n".join(str(row["line"]) for row in rows()))
    for unit in units:
        used |= names(unit.read_text(encoding="utf-8"))
    unknown = used - set(SINCE) - set(_OLD.split())
    assert not unknown, f"look up since when systemd has them: {unknown}"
    assert {name for name in used if SINCE.get(name, 0) > OLDEST} == set()


def test_the_delay_that_grows_is_apart(repository: Path) -> None:
    text = (repository / "units/archon-restart-steps.conf").read_text(encoding="utf-8")
    assert names(text) == {name for name, since in SINCE.items() if since > OLDEST}
