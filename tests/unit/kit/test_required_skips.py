"""CI accepts no silent skip."""

from __future__ import annotations

import pytest

SAMPLE = """
import pytest

def test_runs():
    pass

@pytest.mark.skipif(True, reason="no engine here")
def test_required():
    pass

@pytest.mark.optional
@pytest.mark.skipif(True, reason="needs luck")
def test_optional():
    pass

@pytest.mark.xfail
def test_expected_failure():
    assert False
"""


@pytest.fixture
def sample(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)
    pytester.makepyfile(test_sample=SAMPLE)
    return pytester


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "pytest_required_skips", "-p", "no:cacheprovider", *args)


def test_outside_ci_a_skip_is_a_skip(sample: pytest.Pytester) -> None:
    result = run(sample)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, skipped=2, xfailed=1)


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_in_ci_a_required_skip_fails_the_run_and_is_named(
    sample: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("CI", "true")
    result = run(sample, *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_sample.py::test_required: *no engine here*"])
    result.stdout.no_fnmatch_line("*needs luck*")


def test_in_ci_an_optional_skip_is_accepted(sample: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert run(sample, "-k", "optional or runs").ret == pytest.ExitCode.OK


def test_in_ci_a_file_that_skips_itself_fails_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    pytester.makepyfile(test_ok="def test_ok(): pass", test_gone="import pytest; pytest.importorskip('no_such_module')")
    assert run(pytester).ret == pytest.ExitCode.TESTS_FAILED
