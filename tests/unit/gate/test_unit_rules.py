"""Units: what loops, what gives up, what is killed too early, and what systemd reads otherwise than it looks."""

from __future__ import annotations

from pathlib import Path

import pytest

from archonctl.gate.unit.service import size_bytes
from archonctl.gate.unit.timespan import seconds
from unit.gate.conftest import Judge, codes

UNIT = "# archonctl: engine=llamacpp version=b11434\n[Unit]\n{unit}\n[Service]\nExecStart={start}\n{service}\n"
START = "/usr/bin/llama-server -m /srv/m.gguf"
CALM = "Restart=on-failure\nRestartSec=15\nRestartPreventExitStatus=2"
STEPS = "RestartSec=1\nRestartSteps=4\nRestartMaxDelaySec=60"
BOUND = "StartLimitIntervalSec=1800\nStartLimitBurst=5"


def text(service: str = CALM, unit: str = BOUND, start: str = START) -> str:
    return UNIT.format(unit=unit, service=service, start=start)


@pytest.mark.parametrize(
    ("unit", "service", "code"),
    [
        ("", "Restart=always", "unit-restart-gives-up"),
        ("", "Restart=on-failure\nRestartSec=1", "unit-restart-gives-up"),
        ("", "Restart=on-failure\nRestartSec=2", "unit-restart-loops"),
        ("", "Restart=always\nRestartSec=1min", "unit-restart-loops"),
        ("StartLimitIntervalSec=0", "Restart=always\nRestartSec=5", "unit-restart-loops"),
        ("StartLimitBurst=0", "Restart=always\nRestartSec=5", "unit-restart-loops"),
        ("StartLimitIntervalSec=50", "Restart=always\nRestartSec=10", "unit-restart-loops"),
        ("StartLimitIntervalSec=51", "Restart=always\nRestartSec=10", ""),
        ("StartLimitInterval=600", "Restart=always\nRestartSec=10", ""),
        ("", "Restart=always\nRestartSec=10\nStartLimitInterval=600", ""),
        ("", "Restart=always\nRestartSec=3\nStartLimitBurst=3", "unit-restart-gives-up"),
        ("StartLimitIntervalSec=infinity", "Restart=always\nRestartSec=10", ""),
        ("StartLimitIntervalSec=60", f"Restart=always\n{STEPS}", "unit-restart-loops"),
        ("StartLimitIntervalSec=999", f"Restart=always\n{STEPS}", ""),
        ("", "Restart=no", ""),
        ("", "Restart=on-success", ""),
        ("", "", ""),
    ],
)
def test_a_restart_policy_is_counted(judge: Judge, unit: str, service: str, code: str) -> None:
    found = codes(judge(text(service, unit), "x.service"), "error", "warning")
    assert found == ([code] if code else [])


def test_a_limit_in_the_wrong_section_is_an_error_at_its_line(judge: Judge) -> None:
    found = judge(text(f"{CALM}\nStartLimitIntervalSec=600"), "x.service")
    assert [(one.code, one.place.line) for one in found if one.severity == "error"] == [
        ("unit-start-limit-ignored", 10)
    ]


@pytest.mark.parametrize(
    ("line", "code", "severity"),
    [
        ("KillMode=process", "unit-kill-mode", "error"),
        ("KillMode=none", "unit-kill-mode", "error"),
        ("KillMode=mixed", "", ""),
        ("KillSignal=SIGKILL", "unit-kill-mode", "warning"),
        ("KillSignal=SIGINT", "", ""),
        ("TimeoutStopSec=1", "unit-stop-timeout-short", "warning"),
        ("TimeoutStopSec=90", "", ""),
        ("TimeoutStopSec=infinity", "", ""),
        ("MemoryMax=16G", "unit-memory-limit", "warning"),
        ("MemoryMax=infinity", "", ""),
        ("MemoryMax=80%", "", ""),
        ("Type=notify", "unit-type-mismatch", "error"),
        ("Type=forking", "unit-type-mismatch", "error"),
        ("Type=oneshot", "unit-type-mismatch", "error"),
        ("Type=idle", "", ""),
        ('EnvironmentFile="-/etc/x"', "unit-env-file-ignored", "error"),
        ("EnvironmentFile='/etc/x'", "unit-env-file-ignored", "error"),
        ('EnvironmentFile=-"/etc/x"', "unit-env-file-ignored", "error"),
        ("EnvironmentFile=etc/x", "unit-env-file-ignored", "error"),
        ("EnvironmentFile=-/etc/x", "", ""),
        ("EnvironmentFile=%h/x", "", ""),
        ("Environment=A=1 B=2", "", ""),
        ('Environment="A=x y" B=2', "", ""),
        ("Environment=A=x y", "unit-environment-word", "error"),
        ('Environment="A=1 B=2"', "unit-environment-word", "warning"),
        ("Environment=A=50%", "unit-percent", "error"),
        ("Environment=A=50%%", "", ""),
        ("Environment=A=%i", "", ""),
        ('Environment="A=1', "unit-quote-open", "error"),
    ],
)
def test_a_line_is_judged(judge: Judge, line: str, code: str, severity: str) -> None:
    found = [one for one in judge(text(f"{CALM}\n{line}"), "x.service") if one.severity != "note"]
    assert [(one.code, one.severity, one.place.line) for one in found] == ([(code, severity, 10)] if code else [])


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ("--port ${PORT}", ""),
        ("$EXTRA", ""),
        ("--alias a$$b", ""),
        ("--alias=x", None),
        ("--alias a-$PORT", "unit-dollar"),
        ("--alias ${A:-x}", "unit-dollar"),
        ("--alias ~/x", "unit-shell-syntax"),
        ("--alias $(hostname)", "unit-shell-syntax"),
        ("--alias '{% if x %}'", "unit-percent"),
        ("--alias '{%% if x %%}'", ""),
        ("--alias a > /tmp/x", "unit-shell-syntax"),
        ("--alias a && true", "unit-shell-syntax"),
        ("--alias %H", ""),
        ('--alias "a', "unit-quote-open"),
    ],
)
def test_a_command_line_is_not_a_shells(judge: Judge, rest: str, code: str | None) -> None:
    found = {one.code for one in judge(text(start=f"{START} {rest}"), "x.service") if one.severity != "note"}
    assert code is None or {one for one in found if one.startswith("unit-")} == ({code} if code else set())


def test_an_inner_shell_may_redirect(judge: Judge) -> None:
    start = f"/bin/sh -c 'exec {START} >/var/log/x 2>&1'"
    assert codes(judge(text(start=start), "x.service")) == []


def test_a_start_that_waits_for_a_large_model_needs_its_time(judge: Judge, tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    with model.open("wb") as file:
        file.truncate(40 << 30)
    start = f"/usr/bin/llama-server -m {model}"
    held = f"{CALM}\nExecStartPost=/usr/bin/archonctl verify x"
    found = judge(text(held, start=start), "x.service")
    assert [(one.code, one.severity) for one in found] == [("unit-start-timeout-short", "error")]
    assert "40.0 GiB" in found[0].message
    assert "500 s" in found[0].message
    assert codes(judge(text(f"{held}\nTimeoutStartSec=500", start=start), "x.service")) == []
    assert codes(judge(text(f"{held}\nTimeoutStartSec=8min", start=start), "x.service")) == ["unit-start-timeout-short"]
    assert codes(judge(text(f"{CALM}\nTimeoutStartSec=60", start=start), "x.service"), "error", "warning") == []
    assert codes(judge(text(f"{CALM}\nMemoryMax=60G", start=start), "x.service"), "warning") == []
    assert codes(judge(text(f"{CALM}\nMemoryMax=30G", start=start), "x.service"), "warning") == ["unit-memory-limit"]


def test_a_pinning_engine_needs_its_limit(judge: Judge) -> None:
    start = "/opt/radiance/bin/radiance --model /m.rad"
    head = text(start=start).replace("llamacpp version=b11434", "radiance version=1.8.1")
    assert codes(judge(head, "x.service"), "error") == ["unit-memlock"]
    assert codes(judge(head + "LimitMEMLOCK=64M\n", "x.service"), "error") == ["unit-memlock"]
    assert codes(judge(head + "LimitMEMLOCK=infinity\n", "x.service"), "error") == []
    assert codes(judge(head + "LimitMEMLOCK=400G\n", "x.service"), "error") == []


def test_a_drop_in_is_judged_with_its_unit(tmp_path: Path, judge: Judge) -> None:
    (tmp_path / "u" / "x.service.d").mkdir(parents=True)
    (tmp_path / "u" / "x.service.d" / "a.conf").write_text("[Service]\nRestart=no\n")
    from archonctl.gate.paths import Options, check_paths

    (tmp_path / "u" / "x.service").write_text(text("Restart=always\nRestartSec=9", ""))
    assert codes(check_paths([tmp_path / "u"], Options(verify_units=False)).findings) == []
    assert "unit-restart-loops" in codes(judge(text("Restart=always\nRestartSec=9", ""), "y.service"))


@pytest.mark.parametrize(
    ("span", "value"),
    [
        ("90", 90),
        ("1min 30s", 90),
        ("1.5s", 1.5),
        ("100ms", 0.1),
        ("infinity", float("inf")),
        ("", None),
        ("5 q", None),
    ],
)
def test_time_spans(span: str, value: float | None) -> None:
    assert seconds(span) == value


@pytest.mark.parametrize(("size", "value"), [("1K", 1024), ("2G", 2 << 30), ("7", 7), ("50%", None), ("", None)])
def test_sizes(size: str, value: float | None) -> None:
    assert size_bytes(size) == value
