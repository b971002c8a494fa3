"""pytest plugin: with ``CI=true`` a skip fails the run, unless the test is marked ``optional``.

A test that could not run where everything was to be installed proves nothing, and must not look like success.
"""

from __future__ import annotations

import os

import pytest


def skips_are_failures() -> bool:
    """True if ``CI`` is set to "true" or "1"."""
    return os.environ.get("CI", "").lower() in {"true", "1"}


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and listen on the process that writes the summary only."""
    config.addinivalue_line("markers", "optional: may be skipped even where CI=true")
    if skips_are_failures() and not hasattr(config, "workerinput"):
        config.pluginmanager.register(RequiredSkips(), "required-skips")


class RequiredSkips:
    """Collects skips that are not optional, and turns a green run that has some into a red one."""

    def __init__(self) -> None:
        self.skipped: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a skipped test (an expected failure is reported as skipped too, and is none)."""
        if report.skipped and "optional" not in report.keywords and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] = _reason(report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that skipped itself as a whole."""
        if report.skipped:
            self.skipped[report.nodeid] = _reason(report.longrepr)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a session that would otherwise be green."""
        if self.skipped and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List what was skipped and why that is a failure."""
        if not self.skipped:
            return
        terminalreporter.section("required tests were skipped (CI=true)", red=True, bold=True)
        for nodeid, reason in sorted(self.skipped.items()):
            terminalreporter.line(f"{nodeid}: {reason}")


def _reason(longrepr: object) -> str:
    """The reason inside pytest's (path, line, reason) of a skip."""
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
