"""The systemd unit of one endpoint, and the drop-in that gives the template unit the same settings."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from archonctl.errors import DeclarationError
from archonctl.memory.interval import GIB
from archonctl.release.quoting import exec_start, unit_word
from archonctl.release.sandbox import sandbox

LOAD_GIB_PER_S = 0.2
"""The slowest read that is still taken for progress: 120 GiB were seen to load in 348 to 1,940 s on one host."""

LOAD_BASE_S = 300
"""Time for everything but the weights: the driver, the pools, warm-up and graphs."""

RESTART_S = 15
"""Longer than the glitches that pass by themselves: a port in TIME_WAIT, memory that the last engine still holds."""

RESTART_MAX_S = 300
"""The longest delay between two tries, where systemd lets it grow (from 254: ``units/archon-restart-steps.conf``)."""

RESTART_TRIES = 5
STOP_S = 90

_CONTAINER_RUNTIMES = ("podman", "docker")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,30}|[0-9]{1,10}", re.ASCII)


def load_timeout_s(model_bytes: int | None, declared_s: int | None) -> int:
    """Seconds that a start may take: as declared, else from the model's bytes at the slowest read, in tens of seconds.

    With unknown bytes the time for 512 GiB: too long delays a verdict, too short kills a start that was going well.
    """
    if declared_s is not None:
        return declared_s
    gib = 512.0 if model_bytes is None else model_bytes / GIB
    return math.ceil((LOAD_BASE_S + gib / LOAD_GIB_PER_S) / 10) * 10


@cache
def _restart_rows() -> dict[str, list[dict[str, str | int]]]:
    """``restart.toml``."""
    return tomllib.loads(Path(__file__).with_name("restart.toml").read_text(encoding="utf-8"))


def prevented_statuses(engine: str) -> tuple[str, ...]:
    """Exit statuses of an engine after which another start would end the same way (``restart.toml``).

    And 0 and SIGTERM: so ends an engine that was stopped because its contract does not hold, which a restart would
    not mend. An engine that ends so by itself is not started anew by ``Restart=on-failure`` anyway.
    """
    rows = _restart_rows()["status"]
    codes = {int(row["code"]) for row in rows if row["engine"] in ("*", engine)}
    return (*map(str, sorted({0} | codes)), "SIGTERM")


def is_final_refusal(code: str) -> bool:
    """True if an engine that printed this refusal would print it at the next start too (``restart.toml``)."""
    rows = _restart_rows()["refusal"]
    return any(row["code"] == code for row in rows)


def settings(
    *,
    user: str,
    engine: str,
    argv: Sequence[str],
    pinned: bool,
    timeout_s: int,
    where: str = "service.user",
    stop_s: int = STOP_S,
    model: str = "",
    writes: Iterable[str] = (),
    own_manager: bool = False,
) -> tuple[list[str], list[str]]:
    """The lines of ``[Unit]`` and of ``[Service]`` that both the rendered unit and the drop-in have.

    ``model``: its path; a mount that it lies on is waited for. ``writes``: what the engine may be told to write to, see
    ``sandbox``. ``own_manager``: for ``systemctl --user``.
    Raises DeclarationError ``declaration-bad-value`` for a user that systemd would not take.
    """
    # each try may take the whole start time: a window that is too short would never see the limit reached
    window_s = RESTART_TRIES * (timeout_s + RESTART_MAX_S + stop_s)
    unit = [f"StartLimitIntervalSec={window_s}", f"StartLimitBurst={RESTART_TRIES}"]
    if model.startswith("/") and model.isprintable() and not own_manager:
        # after a power cut the disk or the share with the model may come later than the network
        unit.append(f"RequiresMountsFor={unit_word(model)}")
    service = []
    if user and not own_manager:
        if not _USER.fullmatch(user):
            message = f"service.user is {user[:40]!a}, expected the name or number of an account"
            raise DeclarationError("declaration-bad-value", message, where=where)
        service.append(f"User={user}")
    service += [
        "Restart=on-failure",
        f"RestartSec={RESTART_S}",
        f"RestartPreventExitStatus={' '.join(prevented_statuses(engine))}",
        f"TimeoutStartSec={timeout_s}",
        # a start that ran out of time ends by SIGKILL, which may be tried again; one that was judged ends by SIGTERM
        "TimeoutStartFailureMode=kill",
        f"TimeoutStopSec={stop_s}",
        "KillMode=control-group",
        # a worker that the kernel kills for memory takes the engine with it by SIGKILL, which is tried again: by
        # default systemd stops the rest by SIGTERM, as after a verdict
        "OOMPolicy=kill",
        # the boot log is evidence: the journal must not drop lines of it. An interval of 0 is not passed on to journald
        # (systemd 252, unit_export_log_ratelimit_interval), so its own limit would stay in force
        "LogRateLimitIntervalSec=1s",
        "LogRateLimitBurst=1000000",
    ]
    if pinned:
        service.append("LimitMEMLOCK=infinity")
    if PurePosixPath(argv[0]).name in _CONTAINER_RUNTIMES:
        # the container's processes stay in the unit's control group, so that stopping the unit stops them
        service.append("Delegate=yes")
    else:
        service += sandbox(writes, own_manager=own_manager)
    return unit, service


def unit_text(name: str, argv: Sequence[str], env_file: str, lines: tuple[list[str], list[str]]) -> str:
    """A whole unit. ``env_file`` is the absolute path of the environment file."""
    unit, service = lines
    return "\n".join(
        [
            "# Rendered by archonctl from the declaration. Change the declaration, not this file.",
            "[Unit]",
            f"Description=LLM endpoint {name}",
            "After=network.target",
            *unit,
            "",
            "[Service]",
            "Type=exec",
            f"ExecStart={exec_start(argv)}",
            f"EnvironmentFile={env_path(env_file)}",
            *service,
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def drop_in_text(name: str, lines: tuple[list[str], list[str]]) -> str:
    """What ``archon@NAME.service`` needs beyond the template."""
    unit, service = lines
    # an empty assignment takes the template's own value away: its list would be added to
    service = [part for line in service for part in (_reset(line), line) if part]
    if "Delegate=yes" in service and not any(line.startswith("User=") for line in service):
        # a container of root's own runtime; an engine that is in none keeps the template's unprivileged account
        service.insert(0, "User=")
    head = f"# Rendered by archonctl. Place: /etc/systemd/system/archon@{name}.service.d/10-release.conf"
    return "\n".join([head, "[Unit]", *unit, "", "[Service]", *service, ""])


def _reset(line: str) -> str:
    return "RestartPreventExitStatus=" if line.startswith("RestartPreventExitStatus=") else ""


def env_path(path: str) -> str:
    """A path as ``EnvironmentFile=`` takes it: not quoted, specifiers doubled.

    Raises DeclarationError ``release-path-unsupported`` for what systemd would read as a pattern or an escape.
    """
    if not path.startswith("/") or path != path.strip() or re.search(r"[*?\[\]\\\x00-\x1f\x7f\ud800-\udfff]", path):
        raise DeclarationError(
            "release-path-unsupported",
            f"the release folder {path[:200]!a} cannot be named in a unit",
            hint="use an absolute path without * ? [ ] \\ and control characters",
        )
    return path.replace("%", "%%")
