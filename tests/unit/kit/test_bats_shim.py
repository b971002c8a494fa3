"""The plugin that makes bats tests pytest items."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_bats_shim import find_bats, parse_bats

RunBats = Callable[..., pytest.RunResult]


@pytest.fixture
def run_bats(pytester: pytest.Pytester) -> RunBats:
    """Write one bats file and run it through the plugin."""

    def run(text: str, *args: str, name: str = "sample.bats") -> pytest.RunResult:
        (pytester.path / name).write_text(text, encoding="utf-8")
        return pytester.runpytest("-p", "pytest_bats_shim", "-p", "no:cacheprovider", "-rA", "-v", *args)

    return run


def test_a_passing_a_failing_and_a_skipped_test_are_told_apart(run_bats: RunBats) -> None:
    result = run_bats(
        '@test "good" {\n  true\n}\n'
        '@test "bad" {\n  echo "what I saw"\n  [ 1 -eq 2 ]\n}\n'
        '@test "later" {\n  skip "no ttm here"\n}\n'
        '@test "reasonless" {\n  skip\n}\n'
    )
    result.assert_outcomes(passed=1, failed=1, skipped=2)
    result.stdout.fnmatch_lines(["*what I saw*", "*no ttm here*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    "name",
    [
        "[1-9]+ (a|b)? ^x$ {2} .* \\d",
        "it's got an apostrophe",
        'a \\"quoted\\" word',
        "dollar $HOME and `ticks`",
        "héllo → wörld",
        "ok 1 looks like TAP # skip not really",
        "ends with a star*",
        "braces { inside } it",
    ],
)
def test_any_name_selects_exactly_its_own_test(run_bats: RunBats, name: str) -> None:
    result = run_bats(
        f'@test "{name}" {{\n  true\n}}\n@test "x{name}" {{\n  false\n}}\n@test "other" {{\n  false\n}}\n'
    )
    result.assert_outcomes(passed=1, failed=2)


def test_single_quotes_bare_names_and_one_liners_are_tests(run_bats: RunBats) -> None:
    text = "@test 'single quotes' { true; }\n@test bare { true; }\n  @test   \"indented\"   {\n true\n}\n"
    run_bats(text).assert_outcomes(passed=3)


def test_the_comment_form_is_a_test(run_bats: RunBats) -> None:
    run_bats("my_check() { # @test\n  true\n}\n").assert_outcomes(passed=1)


def test_names_that_contain_one_another_do_not_run_together(run_bats: RunBats) -> None:
    run_bats('@test "a" {\n true\n}\n@test "a b" {\n false\n}\n').assert_outcomes(passed=1, failed=1)


def test_keyword_and_tag_select_tests(run_bats: RunBats) -> None:
    text = '# bats test_tags=slow:one\n@test "first" {\n true\n}\n@test "second" {\n false\n}\n'
    run_bats(text, "-m", "bats_slow_one").assert_outcomes(passed=1, deselected=1)
    run_bats(text, "-k", "first").assert_outcomes(passed=1, deselected=1)


def test_file_tags_reach_every_test_and_test_tags_only_the_next() -> None:
    text = '# bats file_tags=all\n# bats test_tags=one, two\n@test "a" {\n}\n@test "b" {\n}\n'
    assert [(test.name, test.line, test.tags) for test in parse_bats(text)] == [
        ("a", 3, ("all", "one", "two")),
        ("b", 5, ("all",)),
    ]


def test_two_tests_of_one_name_are_a_collection_error_with_both_lines(run_bats: RunBats) -> None:
    result = run_bats('@test "same" {\n true\n}\n@test "same" {\n true\n}\n')
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*sample.bats:4: duplicate test name 'same' (first on line 1)*"])


def test_a_test_that_hangs_is_killed_with_its_children(run_bats: RunBats) -> None:
    result = run_bats('@test "hangs" {\n  sleep 600\n}\n', "--bats-timeout", "1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*still running after 1 s, killed*"])


def test_a_syntax_error_fails_the_test_and_shows_what_bash_said(run_bats: RunBats) -> None:
    result = run_bats('@test "broken" {\n  if true; then\n}\n')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*syntax error*"])


def test_a_failing_setup_file_fails_the_test(run_bats: RunBats) -> None:
    run_bats('setup_file() {\n  false\n}\n@test "never runs" {\n  true\n}\n').assert_outcomes(failed=1)


def test_a_file_without_tests_collects_nothing(run_bats: RunBats) -> None:
    assert run_bats("# nothing here\n").ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_missing_bats_is_a_failure_and_not_a_skip(run_bats: RunBats, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_bats_shim.find_bats", lambda: None)
    result = run_bats('@test "good" {\n  true\n}\n')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*bats is not installed*"])


def test_bats_comes_from_the_variable_before_the_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATS", "/opt/bats")
    assert find_bats() == "/opt/bats"


def test_commands_of_the_virtual_environment_are_on_the_path(run_bats: RunBats) -> None:
    pytest_command = Path(sys.executable).with_name("pytest")
    run_bats(f'@test "path" {{\n  [ "$(command -v pytest)" = "{pytest_command}" ]\n}}\n').assert_outcomes(passed=1)


def test_windows_line_ends_and_spaces_in_the_path_do_no_harm(run_bats: RunBats) -> None:
    run_bats('@test "crlf" {\r\n  true\r\n}\r\n', name="with a space.bats").assert_outcomes(passed=1)
